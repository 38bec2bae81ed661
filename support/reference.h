// The layer in float64, straight from its equations: what every kernel, example and case file is compared
// with. Plain loops over the same views that the runtime takes; slow, and meant to be read.
//
//     q = query Wq^T + bq, k = key Wk^T + bk, v = value Wv^T + bv            split into heads
//     q and k RMS-normalised and rotated by position, where the layer does   each head
//     cap(s) = softcap * tanh(s / softcap), or s where there is no softcap
//     score(i, j) = cap(qk_scale * q_i . k_j) - slope * distance(i, j) + bias(i, j) + key_bias(j)
//     probs(i, j) = exp(score(i, j) - lse(i)),  lse(i) = log sum_j exp(score(i, j))   of the keys that i may attend
//     context(i) = sum_j probs(i, j) v_j,  out = merged context Wo^T + bo
//
// With a sink exp(sink) of the head is one more term of the sum in lse; it has no value and no column in probs.
// A key outside the window is dropped. A dropped key takes no part in any sum, so whatever its data holds changes
// nothing. A row whose scores are all -inf, for infinite data, has no weight to give and counts as a row without keys.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/attnc.h"
#include "stages/config.h"

namespace attnc {

// The layer's options, and what the reference needs to be told beside a call.
struct ReferenceOptions {
    attnc_empty_rows empty_rows = ATTNC_EMPTY_ROWS_NOT_GIVEN;
    double qk_scale = 0;  // 0: 1/sqrt(head_dim)
    // Keys beside its own on the diagonal that a query sees on each side; none: all.
    std::optional<int64_t> window_left = std::nullopt, window_right = std::nullopt;
    double softcap = 0;          // 0: none
    double qk_norm_epsilon = 0;  // 0: 1e-6
    attnc_rotary rotary{};
    attnc_scores_stage scores_stage = ATTNC_SCORES_NOT_GIVEN;  // of the scores that are wanted
};

// The same for the runtime: target and allocator are left out.
attnc_layer_options layer_options_of(const ReferenceOptions& options);

// Keys and values of earlier calls, in front of a call's own: normalised and rotated already, and exact. The diagonal
// counts them, and so do masks, biases, probs and scores, whose seq_kv is the largest count of an item.
struct ReferencePast {
    attnc_tensor keys{};           // F32 [batch, num_kv_heads, past, head_dim]; rank 0: there are none
    attnc_tensor values{};         // F32 [batch, num_kv_heads, past, v_head_dim]
    std::vector<int64_t> lengths;  // [batch]: the first ones that an item has; empty: all
    bool alone = false;            // the call has a query and attends the past, nothing else

    bool given() const { return keys.rank != 0; }
    int64_t length(int64_t item) const {
        if (!given()) return 0;
        return lengths.empty() ? keys.extent[2] : lengths[static_cast<size_t>(item)];
    }
};

// Results in C order, dense. Rows past an item's query length are 0 (lse -inf), as the runtime leaves them.
struct Reference {
    int64_t batch = 0, num_heads = 0, seq_q = 0;
    int64_t keys = 0;          // seq_kv, with those of the past, and the appended ones
    int64_t appended = 0;      // of them
    int64_t out_features = 0;  // d_model, or num_heads * v_head_dim without output projection
    int64_t v_head_dim = 0;
    std::vector<int64_t> queries;  // [batch]: valid ones of an item
    int64_t score_steps = 0;       // roundings of softcap and ALiBi in a score, for bounds

    std::vector<double> out;             // [batch, seq_q, out_features]
    std::vector<double> context;         // [batch, num_heads, seq_q, v_head_dim]
    std::vector<double> probs;           // [batch, num_heads, seq_q, keys]
    std::vector<double> probs_averaged;  // [batch, seq_q, keys]
    std::vector<double> lse;             // [batch, num_heads, seq_q]
    std::vector<double> scores;          // [batch, num_heads, seq_q, keys - appended]; empty: not wanted
    // Keys and values as attention takes them, those of the past in front: what a cache holds after the call. Items
    // that have fewer than others end in zeros.
    std::vector<double> keys_after;    // [batch, num_kv_heads, keys - appended, head_dim]
    std::vector<double> values_after;  // [batch, num_kv_heads, keys - appended, v_head_dim]

    // What bounds on a float32 result's error are made of (support/tolerance.h). First those of a row,
    // [batch, num_heads, seq_q], each the largest over the keys that the row may attend (or whose values it
    // averages).
    std::vector<double>
        score_size;  // sum_d |q_d k_d| * qk_scale + |ALiBi| + |bias| + |key_bias|; keys too small to matter left
                     // out
    std::vector<double>
        score_error;  // of q . k * qk_scale, from the errors of q and k; 0 where they arrive as they are attended
    std::vector<double> value_size;   // |v_d|
    std::vector<double> value_error;  // of v_d; 0 without in_proj
    std::vector<double>
        out_error;  // [batch, seq_q, out_features]: of the output projection alone; empty without it
    std::vector<double>
        wo_sum;  // [num_heads, out_features]: sum_d |wo| of a head's features; empty without it
    // As `scores` and as `keys_after`, `values_after`: the sizes that bounds of scores follow from, and bounds.
    std::vector<double> scores_size, scores_error, keys_error, values_error;

    bool empty_row(int64_t item, int64_t head,
                   int64_t row) const;  // no key to attend, or past the query length
};

// `config` is complete. The views are those of a call that attnc_layer_forward accepts; throws
// std::invalid_argument for one whose ranks or extents can't be. Non-finite data propagates as IEEE
// arithmetic has it.
Reference reference_layer(const Config& config, const attnc_weights& weights, const ReferenceOptions& options,
                          const attnc_inputs& inputs, const ReferencePast& past = {});

}  // namespace attnc
