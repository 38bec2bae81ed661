// Case files of ONNX nodes: Attention (opset 23 and later) and RotaryEmbedding.
#include <limits>
#include <utility>

#include "support/case_reading.h"

namespace attnc {
namespace {

using Shape = std::vector<int64_t>;

// Heads and sizes of a tensor [batch, heads, seq, features] or [batch, seq, heads * features].
struct Heads {
    int64_t batch = 0, heads = 0, seq = 0, features = 0;
    Shape shape;
};

Heads heads_of(const CaseSource& in, const std::string& role, int64_t heads) {
    const Shape shape = in.shape(role);
    if (shape.size() == 4) return {shape[0], shape[1], shape[2], shape[3], shape};
    if (shape.size() != 3) in.fail("role '" + role + "' has neither 3 nor 4 dimensions");
    if (heads < 1 || shape[2] % heads != 0)
        in.fail("role '" + role + "' has a width that is no multiple of its heads");
    return {shape[0], heads, shape[1], shape[2] / heads, shape};
}

void expect(CaseSource& in, CaseFile& file, const std::string& role, const Shape& shape) {
    if (!in.has(role)) return;
    if (in.shape(role) != shape) in.fail("role '" + role + "' has another shape");
    Expected expected;
    expected.shape = shape;
    expected.values = in.take_f64(role);
    const std::string own = "atol." + role;
    expected.atol = in.has_attribute(own) ? in.take_number(own) : in.take_number("atol");
    expected.rtol = in.take_number("rtol", 0);
    file.expected.emplace(role, std::move(expected));
}

void take_kind(CaseSource& in, const std::string& wanted) {
    const std::string kind = in.take("kind", wanted);
    if (kind != wanted) in.fail("attribute kind is '" + kind + "', wanted " + wanted);
}

class AttentionReader {
public:
    AttentionReader(CaseSource& in, CaseFile& file) : in_(in), case_(file) {}

    void read() {
        take_kind(in_, "onnx_attention");
        read_heads();
        read_past();
        read_lengths_and_diagonal();
        read_mask();
        read_results();
    }

private:
    void read_heads() {
        const Heads q = heads_of(in_, "q", in_.take_size("attr.q_num_heads", 0));
        const int64_t kv_heads = in_.take_size("attr.kv_num_heads", 0);
        const Heads k = heads_of(in_, "k", kv_heads), v = heads_of(in_, "v", kv_heads);
        const size_t rank = in_.take_choice("layout", {"B,L,H*D", "B,H,L,D"}, q.shape.size() - 3) + 3;
        if (q.shape.size() != rank) in_.fail("attribute layout disagrees with the tensors");
        Config config;
        config.in_proj = config.out_proj = false;
        config.num_heads = q.heads;
        config.num_kv_heads = k.heads;
        config.head_dim = q.features;
        config.v_head_dim = v.features;
        config.softcap = in_.take_number("attr.softcap", 0) != 0;
        config.cache = in_.has("past_key");
        stage_ = in_.take_size("attr.qk_matmul_output_mode", 0);
        if (stage_ > 3) in_.fail("attribute attr.qk_matmul_output_mode is above 3");
        config.scores = in_.has("qk_matmul_output") && stage_ < 3;
        case_.config = completed(in_, config);
        case_.batch = q.batch, case_.seq_q = q.seq, case_.seq_kv = k.seq;
        case_.options.qk_scale = in_.take_number("attr.scale", 0);
        case_.options.softcap = in_.take_number("attr.softcap", 0);
        case_.options.empty_rows = read_empty_rows(in_);
        case_.inputs.query = in_.view("q", q.shape);
        case_.inputs.key = in_.view("k", k.shape);
        case_.inputs.value = in_.view("v", v.shape);
        if (in_.take_size("attr.softmax_precision", 1) != 1)
            in_.fail("attribute attr.softmax_precision is not 1, float32");
        out_shape_ = rank == 4 ? Shape{q.batch, q.heads, q.seq, v.features}
                               : Shape{q.batch, q.seq, q.heads * v.features};
    }

    void read_past() {
        if (!in_.has("past_key")) return;
        const Config& c = case_.config;
        const Shape shape = in_.shape("past_key");
        if (shape.size() != 4) in_.fail("role 'past_key' has another shape");
        case_.past.keys = in_.view("past_key", {case_.batch, c.num_kv_heads, shape[2], c.head_dim});
        case_.past.values = in_.view("past_value", {case_.batch, c.num_kv_heads, shape[2], c.v_head_dim});
    }

    // The offset of the diagonal is the length of the past, or for each item its keys less its queries, else 0.
    void read_lengths_and_diagonal() {
        attnc_inputs& inputs = case_.inputs;
        inputs.key_lengths = in_.integers_if_there("nonpad_kv_seqlen", {case_.batch});
        const bool has_lengths = inputs.key_lengths.rank != 0;
        if (has_lengths && case_.past.given())
            in_.fail("roles 'nonpad_kv_seqlen' and 'past_key' exclude each other");
        inputs.causal = ATTNC_CAUSAL_NONE;
        if (in_.take_size("attr.is_causal", 0) == 0) return;
        const int64_t past = case_.past.given() ? case_.past.keys.extent[2] : 0;
        const std::string rule = has_lengths ? "key_len - q_len per sample" : std::to_string(past);
        if (const std::string offset = in_.take("causal_offset", rule); offset != rule)
            in_.fail("attribute causal_offset is '" + offset + "', wanted '" + rule + "'");
        if (has_lengths) {
            inputs.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        } else if (past == 0) {
            inputs.causal = ATTNC_CAUSAL_TOP_LEFT;
        } else {
            inputs.causal = ATTNC_CAUSAL_OFFSET;
            const std::vector<int64_t> offsets(static_cast<size_t>(case_.batch), past);
            inputs.causal_offsets = in_.own(ATTNC_I64, offsets, {case_.batch});
        }
    }

    // A last dimension between 1 and the keys is padded with what drops.
    CaseSource::Tensor padded_mask(float fill) {
        CaseSource::Tensor mask = in_.take_tensor("attn_mask");
        const int64_t keys = case_.all_keys();
        const int64_t columns = mask.shape.empty() ? 1 : mask.shape.back();
        if (columns > 1 && columns < keys) {
            std::vector<float> wide;
            for (size_t n = 0; n < mask.values.size(); ++n) {
                wide.push_back(mask.values[n]);
                if (static_cast<int64_t>(n) % columns == columns - 1)
                    wide.insert(wide.end(), static_cast<size_t>(keys - columns), fill);
            }
            mask.values = std::move(wide);
            mask.shape.back() = keys;
        }
        mask.shape = mask_shape(in_, case_, "attn_mask", mask.shape);
        return mask;
    }

    void read_mask() {
        if (!in_.has("attn_mask")) return;
        const bool keeps = in_.is_boolean("attn_mask");
        const std::string rule = keeps ? "boolean: true = attend" : "additive";
        if (in_.take("attn_mask_rule", rule) != rule)
            in_.fail("attribute attn_mask_rule disagrees with the tensor");
        CaseSource::Tensor mask = padded_mask(keeps ? 0 : -std::numeric_limits<float>::infinity());
        if (keeps) {
            case_.inputs.keep_mask = in_.byte_mask(mask, mask.shape);
        } else {
            case_.inputs.bias = in_.own(ATTNC_F32, std::move(mask.values), mask.shape);
        }
    }

    void read_results() {
        constexpr attnc_scores_stage kStages[] = {ATTNC_SCORES_SCALED, ATTNC_SCORES_SOFTCAPPED,
                                                  ATTNC_SCORES_BIASED, ATTNC_SCORES_NOT_GIVEN};
        const Config& c = case_.config;
        const int64_t keys = case_.all_keys();
        if (in_.has("qk_matmul_output")) case_.options.scores_stage = kStages[stage_];
        expect(in_, case_, "out", out_shape_);
        expect(in_, case_, "qk_matmul_output", {case_.batch, c.num_heads, case_.seq_q, keys});
        expect(in_, case_, "present_key", {case_.batch, c.num_kv_heads, keys, c.head_dim});
        expect(in_, case_, "present_value", {case_.batch, c.num_kv_heads, keys, c.v_head_dim});
    }

    CaseSource& in_;
    CaseFile& case_;
    int64_t stage_ = 0;
    Shape out_shape_;
};

}  // namespace

void read_onnx_attention(CaseSource& in, CaseFile& file) { AttentionReader(in, file).read(); }

void read_onnx_rotary(CaseSource& in, CaseFile& file) {
    take_kind(in, "onnx_rotary");
    const Heads x = heads_of(in, "x", in.take_size("attr.num_heads", 0));
    Config config;
    config.in_proj = config.out_proj = false;
    config.num_heads = x.heads;
    config.head_dim = x.features;
    config.rotary = in.take_size("attr.interleaved", 0) != 0 ? Rotary::kPairs : Rotary::kHalf;
    file.config = completed(in, config);
    file.rotates_only = true;
    file.batch = x.batch, file.seq_q = file.seq_kv = x.seq;
    file.inputs.query = in.view("x", x.shape);
    const int64_t dim = in.take_size("attr.rotary_embedding_dim", 0);
    file.options.rotary.dim = dim != 0 ? dim : x.features;
    const int64_t pairs = file.options.rotary.dim / 2;
    Shape table = in.shape("cos_cache");
    std::vector<int64_t> positions;
    if (in.has("position_ids")) {
        positions = in.take_i64("position_ids", {x.batch, x.seq});
    } else {
        // A row for each token.
        if (table != Shape{x.batch, x.seq, pairs}) in.fail("role 'cos_cache' has another shape");
        for (int64_t n = 0; n < x.batch * x.seq; ++n) positions.push_back(n);
    }
    const int64_t rows = in.has("position_ids") ? (table.empty() ? 0 : table[0]) : x.batch * x.seq;
    for (auto [role, view] : {std::pair("cos_cache", &file.weights.rotary_cos),
                              std::pair("sin_cache", &file.weights.rotary_sin)}) {
        CaseSource::Tensor tensor = in.take_tensor(role);
        if (tensor.shape != table || static_cast<int64_t>(tensor.values.size()) != rows * pairs)
            in.fail(std::string("role '") + role + "' has another shape");
        *view = in.own(ATTNC_F32, std::move(tensor.values), {rows, pairs});
    }
    for (const int64_t position : positions) {
        if (position < 0 || position >= rows) in.fail("role 'position_ids' is out of range");
    }
    file.inputs.query_positions = in.own(ATTNC_I64, std::move(positions), {x.batch, x.seq});
    expect(in, file, "out", x.shape);
}

}  // namespace attnc
