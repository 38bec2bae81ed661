// Options of a layer and of a call in case files: the same names for every kind of case that has them.
#include <utility>

#include "support/case_reading.h"

namespace attnc {
namespace {

attnc_rotary read_rotary(CaseSource& in) {
    attnc_rotary r = {};
    r.dim = in.take_size("rotary.dim", 0);
    r.base = in.take_number("rotary.base", 0);
    r.scaling =
        static_cast<attnc_rotary_scaling>(in.take_choice("rotary.scaling", {"none", "linear", "llama3"}, 0));
    r.factor = in.take_number("rotary.factor", 0);
    r.low_freq_factor = in.take_number("rotary.low_freq_factor", 0);
    r.high_freq_factor = in.take_number("rotary.high_freq_factor", 0);
    r.original_positions = in.take_size("rotary.original_positions", 0);
    r.magnitude = in.take_number("rotary.magnitude", 0);
    return r;
}

void read_past(CaseSource& in, CaseFile& file) {
    if (!file.config.cache) return;
    const Config& c = file.config;
    const std::vector<int64_t> shape = in.shape("past_key");
    if (shape.size() != 4) in.fail("role 'past_key' has another shape");
    file.past.keys = in.view("past_key", {file.batch, c.num_kv_heads, shape[2], c.head_dim});
    file.past.values = in.view("past_value", {file.batch, c.num_kv_heads, shape[2], c.v_head_dim});
    file.past.alone = in.take_flag("past_alone", false);
    if (!in.has("past_len")) return;
    file.past.lengths = in.take_i64("past_len", {file.batch});
    for (const int64_t length : file.past.lengths) {
        if (length < 0 || length > shape[2]) in.fail("role 'past_len' is out of range");
    }
}

}  // namespace

void read_option_flags(CaseSource& in, Config& config) {
    constexpr Rotary kLayouts[] = {Rotary::kNone, Rotary::kHalf, Rotary::kPairs};
    config.sink = in.has("sink");
    config.alibi = in.has("alibi_slopes");
    config.softcap = in.has_attribute("softcap");
    config.qk_norm = in.has("q_norm") || in.has("k_norm");
    config.rotary = kLayouts[in.take_choice("rotary", {"none", "half", "pairs"}, 0)];
    config.cache = in.has("past_key");
    config.scores = in.has("scores");
}

void read_option_values(CaseSource& in, CaseFile& file) {
    const Config& c = file.config;
    attnc_weights& w = file.weights;
    ReferenceOptions& o = file.options;
    if (in.has_attribute("window_left")) o.window_left = in.take_size("window_left", 0);
    if (in.has_attribute("window_right")) o.window_right = in.take_size("window_right", 0);
    w.sink = in.view_if_there("sink", {c.num_heads});
    w.alibi_slopes = in.view_if_there("alibi_slopes", {c.num_heads});
    o.softcap = in.take_number("softcap", 0);
    if (c.qk_norm) {
        w.q_norm = in.view("q_norm", {c.head_dim});
        w.k_norm = in.view("k_norm", {c.head_dim});
        o.qk_norm_epsilon = in.take_number("qk_norm_epsilon", 0);
    }
    if (c.rotary != Rotary::kNone) {
        o.rotary = read_rotary(in);
        const int64_t pairs = (o.rotary.dim != 0 ? o.rotary.dim : c.head_dim) / 2;
        if (in.has("rotary_frequencies")) {
            if (in.shape("rotary_frequencies") != std::vector<int64_t>{pairs})
                in.fail("role 'rotary_frequencies' has another shape than the attributes say");
            w.rotary_frequencies = in.own(ATTNC_F64, in.take_f64("rotary_frequencies"), {pairs});
        }
        if (in.has("rotary_cos")) {
            const std::vector<int64_t> shape = in.shape("rotary_cos");
            const int64_t positions = shape.empty() ? 0 : shape[0];
            w.rotary_cos = in.view("rotary_cos", {positions, pairs});
            w.rotary_sin = in.view("rotary_sin", {positions, pairs});
        }
    }
    constexpr attnc_scores_stage kStages[] = {ATTNC_SCORES_SCALED, ATTNC_SCORES_SOFTCAPPED,
                                              ATTNC_SCORES_BIASED};
    if (c.scores)
        o.scores_stage = kStages[in.take_choice("scores_stage", {"scaled", "softcapped", "biased"}, 0)];
    o.empty_rows = read_empty_rows(in);
    read_past(in, file);
}

attnc_empty_rows read_empty_rows(CaseSource& in) {
    constexpr attnc_empty_rows kPolicies[] = {ATTNC_EMPTY_ROWS_ZERO, ATTNC_EMPTY_ROWS_MEAN_OF_VALUES,
                                              ATTNC_EMPTY_ROWS_NAN};
    return kPolicies[in.take_choice("empty_row", {"zero", "mean_of_values", "nan"}, 0)];
}

void read_call_options(CaseSource& in, CaseFile& file) {
    attnc_inputs& inputs = file.inputs;
    inputs.key_lengths = in.integers_if_there("key_len", {file.batch});
    inputs.query_lengths = in.integers_if_there("query_len", {file.batch});
    constexpr attnc_causal kDiagonals[] = {ATTNC_CAUSAL_NONE, ATTNC_CAUSAL_TOP_LEFT,
                                           ATTNC_CAUSAL_BOTTOM_RIGHT, ATTNC_CAUSAL_OFFSET};
    inputs.causal = kDiagonals[in.take_choice("causal", {"none", "top_left", "bottom_right", "offset"}, 0)];
    if (inputs.causal == ATTNC_CAUSAL_OFFSET) {
        inputs.causal_offsets = in.integers_if_there("causal_offset", {file.batch});
        if (inputs.causal_offsets.rank == 0) in.fail("role 'causal_offset' is missing");
    }
    if (file.config.rotary != Rotary::kNone) {
        inputs.position_offsets = in.integers_if_there("position_offset", {file.batch});
        inputs.query_positions = in.integers_if_there("query_positions", {file.batch, file.seq_q});
        inputs.key_positions = in.integers_if_there("key_positions", {file.batch, file.seq_kv});
    }
    if (in.has("block_keep_mask")) {
        inputs.block_q = in.take_size("block_q", 0);
        inputs.block_kv = in.take_size("block_kv", 0);
        if (inputs.block_q < 1 || inputs.block_kv < 1) in.fail("attributes block_q and block_kv are missing");
        const CaseSource::Tensor tensor = in.take_tensor("block_keep_mask");
        const int64_t rows = (file.seq_q + inputs.block_q - 1) / inputs.block_q;
        const int64_t columns = (file.all_keys() + inputs.block_kv - 1) / inputs.block_kv;
        const bool fits = tensor.shape.size() == 4 &&
                          (tensor.shape[0] == 1 || tensor.shape[0] == file.batch) &&
                          (tensor.shape[1] == 1 || tensor.shape[1] == file.config.num_heads) &&
                          tensor.shape[2] == rows && tensor.shape[3] == columns;
        if (!fits) in.fail("role 'block_keep_mask' has another shape than the attributes say");
        inputs.block_keep_mask = in.byte_mask(tensor, tensor.shape);
    }
}

}  // namespace attnc
