// A layer and one call of it as plain data: what a test changes, repeats and compares.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/attnc.h"
#include "stages/config.h"
#include "support/random.h"
#include "support/reference.h"

namespace attnc::test {

// A dense tensor that owns its elements; no shape: not given.
template <typename T>
struct Array {
    std::vector<int64_t> shape;
    std::vector<T> values;

    bool given() const { return !shape.empty(); }
    int64_t count() const { return static_cast<int64_t>(values.size()); }
    // Element by index, C order.
    template <typename... Index>
    T& at(Index... index) {
        return values[place({static_cast<int64_t>(index)...})];
    }
    template <typename... Index>
    const T& at(Index... index) const {
        return values[place({static_cast<int64_t>(index)...})];
    }
    attnc_tensor view() const;

private:
    size_t place(std::initializer_list<int64_t> index) const {
        int64_t offset = 0;
        size_t n = 0;
        for (const int64_t i : index) offset = offset * shape[n++] + i;
        return static_cast<size_t>(offset);
    }
};

Array<float> random_array(std::vector<int64_t> shape, uint64_t seed, float amplitude);
// 1 with this chance, else 0.
Array<uint8_t> random_mask(std::vector<int64_t> shape, uint64_t seed, double chance);
template <typename T>
Array<T> filled(std::vector<int64_t> shape, T value) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return {std::move(shape), std::vector<T>(static_cast<size_t>(count), value)};
}

struct LayerCall {
    Config config;  // complete
    Sizes sizes;
    uint64_t seed = 0;  // that the data was made from, for failure messages

    Array<float> wq, wk, wv, wo, bq, bk, bv, bo, bias_k, bias_v, sink;
    Array<float> alibi_slopes, q_norm, k_norm, rotary_cos, rotary_sin;
    Array<double> rotary_frequencies;
    Array<float> query, key, value;
    Array<uint8_t> keep_mask, drop_mask, key_keep_mask, key_drop_mask, block_keep_mask;
    int64_t block_q = 0, block_kv = 0;
    Array<float> bias, key_bias;
    Array<int64_t> key_lengths, query_lengths, causal_offsets;
    Array<int64_t> position_offsets, query_positions, key_positions;
    attnc_causal causal = ATTNC_CAUSAL_NOT_GIVEN;

    attnc_empty_rows empty_rows = ATTNC_EMPTY_ROWS_NOT_GIVEN;
    float qk_scale = 0;
    std::optional<int64_t> window_left, window_right;
    float softcap = 0, qk_norm_epsilon = 0;
    attnc_rotary rotary = {};

    // Outputs that are asked for beside out.
    bool probs = false, probs_averaged = false, lse = false;
    attnc_scores_stage scores_stage = ATTNC_SCORES_NOT_GIVEN;

    attnc_weights weights() const;
    ReferenceOptions reference_options() const;
    attnc_layer_options options() const;  // of the layer; target and allocator are left out
    attnc_inputs inputs() const;
    Reference reference() const;

    int64_t keys() const;  // seq_kv and the appended keys
    int64_t query_length(int64_t item) const;
    int64_t key_length(int64_t item) const;
};

// Weights, biases and tokens of moderate size: scores of a few units, so that softmax is neither flat nor
// one-hot, slopes, norm weights and a softcap where the configuration has them. Key and value are separate arrays; tokens
// have rank 3. Masks, lengths and the rest are left out.
LayerCall random_call(const Config& config, const Sizes& sizes, uint64_t seed);
LayerCall random_call(std::string_view problem, uint64_t seed);  // "d32_h4_f32:b2_q7_kv9"
// The same, asking for every output that the library has; for scores as softmax takes them.
LayerCall everything(std::string_view problem, uint64_t seed);

// The item alone, as a call of batch 1.
LayerCall item_of(const LayerCall& call, int64_t item);

}  // namespace attnc::test
