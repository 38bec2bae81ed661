// Case files of a layer, or of attention alone.
#include <algorithm>
#include <utility>

#include "support/case_reading.h"

namespace attnc {
namespace {

// Results that are compared, by role; with a role's name goes its tolerance, atol.ROLE.
constexpr const char* kResults[] = {"out",
                                    "ctx",
                                    "probs",
                                    "avg_probs",
                                    "lse",
                                    "scores",
                                    "present_key",
                                    "present_value",
                                    "out_row_sum",
                                    "out_row_sum_of_squares",
                                    "out_f64_arithmetic",
                                    "probs_f64_arithmetic"};

class LayerReader {
public:
    LayerReader(CaseSource& in, CaseFile& file) : in_(in), case_(file) {}

    void read() {
        read_sizes();
        read_layer();
        read_inputs();
        read_masks();
        read_results();
        check_flags();
    }

private:
    void read_sizes() {
        op_ = in_.take("op", "");
        if (op_ != "layer" && op_ != "attention" && op_ != "attention_bld")
            in_.fail("unknown op '" + op_ + "'");
        case_.batch = in_.take_size("batch", 1);
        case_.seq_q = in_.take_size("q_len", 0);
        case_.seq_kv = in_.take_size("kv_len", case_.seq_q);
        batched_ = in_.take_flag("batched", true);
        if (!batched_ && case_.batch != 1)
            in_.fail("an unbatched case has batch " + std::to_string(case_.batch));
    }

    void read_layer() {
        Config config;
        config.num_heads = in_.take_size("heads", 0);
        config.num_kv_heads = in_.take_size("kv_heads", config.num_heads);
        config.head_dim = in_.take_size("head_dim", 0);
        config.v_head_dim = in_.take_size("v_head_dim", config.head_dim);
        config.in_proj = op_ == "layer";
        config.out_proj = in_.has("wo");
        config.bias_kv = in_.take_flag("add_bias_kv", false);
        config.zero_attn = in_.take_flag("add_zero_attn", false);
        config.d_model = in_.take_size("d_model", config.num_heads * config.head_dim);
        if (config.in_proj) {
            config.k_dim = in_.take_size("kdim", config.d_model);
            config.v_dim = in_.take_size("vdim", config.d_model);
        }
        read_option_flags(in_, config);
        config = case_.config = completed(in_, config);
        case_.options.qk_scale = in_.take_number("scale", 0);

        const int64_t q = config.num_heads * config.head_dim;
        const int64_t k = config.num_kv_heads * config.head_dim;
        const int64_t v = config.num_kv_heads * config.v_head_dim;
        const bool bias = in_.take_flag("bias", in_.has("bq") || in_.has("bo"));
        if (bias != (in_.has("bq") || in_.has("bo"))) in_.fail("attribute bias disagrees with the tensors");
        if (config.in_proj) {
            case_.weights.wq = in_.view("wq", {q, config.d_model});
            case_.weights.wk = in_.view("wk", {k, config.k_dim});
            case_.weights.wv = in_.view("wv", {v, config.v_dim});
            case_.weights.bq = in_.view_if_there("bq", {q});
            case_.weights.bk = in_.view_if_there("bk", {k});
            case_.weights.bv = in_.view_if_there("bv", {v});
        }
        if (config.out_proj) {
            case_.weights.wo = in_.view("wo", {config.d_model, config.num_heads * config.v_head_dim});
            case_.weights.bo = in_.view_if_there("bo", {config.d_model});
        }
        if (config.bias_kv) {
            case_.weights.bias_k = flat(in_.view("bias_k", {1, 1, k}));
            case_.weights.bias_v = flat(in_.view("bias_v", {1, 1, v}));
        }
        read_option_values(in_, case_);
    }

    static attnc_tensor flat(attnc_tensor t) {
        t.extent[0] = t.extent[2];
        t.stride[0] = 1;
        t.rank = 1;
        return t;
    }

    // A batch dimension of 1 in front of an unbatched case's tensor.
    std::vector<int64_t> stored_shape(std::vector<int64_t> shape) const {
        if (!batched_) shape.erase(shape.begin());
        return shape;
    }
    attnc_tensor with_batch(attnc_tensor t, const std::vector<int64_t>& shape) const {
        if (batched_) return t;
        std::copy_backward(t.extent, t.extent + t.rank, t.extent + t.rank + 1);
        std::copy_backward(t.stride, t.stride + t.rank, t.stride + t.rank + 1);
        t.extent[0] = 1;
        t.stride[0] = t.extent[1] * t.stride[1];
        t.rank = static_cast<int32_t>(shape.size());
        return t;
    }
    attnc_tensor batched_view(const std::string& role, const std::vector<int64_t>& shape) {
        return with_batch(in_.view(role, stored_shape(shape)), shape);
    }

    void read_inputs() {
        const Config& c = case_.config;
        if (op_ == "attention") {
            case_.inputs.query = batched_view("q", {case_.batch, c.num_heads, case_.seq_q, c.head_dim});
            if (!case_.past.alone) {
                case_.inputs.key = batched_view("k", {case_.batch, c.num_kv_heads, case_.seq_kv, c.head_dim});
                case_.inputs.value =
                    batched_view("v", {case_.batch, c.num_kv_heads, case_.seq_kv, c.v_head_dim});
            }
        } else {
            const int64_t width = c.in_proj ? c.d_model : c.num_heads * c.head_dim;
            case_.inputs.query = batched_view("query", {case_.batch, case_.seq_q, width});
            if (in_.has("key")) case_.inputs.key = batched_view("key", {case_.batch, case_.seq_kv, c.k_dim});
            if (in_.has("value"))
                case_.inputs.value = batched_view("value", {case_.batch, case_.seq_kv, c.v_dim});
            const bool self = in_.take_flag("self_attention", !in_.has("key"));
            if (self == in_.has("key")) in_.fail("attribute self_attention disagrees with the tensors");
            if (in_.take_flag("key_is_value", !in_.has("value")) == in_.has("value")) {
                in_.fail("attribute key_is_value disagrees with the tensors");
            }
        }
        read_call_options(in_, case_);
    }

    void read_masks() {
        attnc_inputs& in = case_.inputs;
        const std::vector<int64_t> per_key = {case_.batch, case_.all_keys()};
        for (auto [role, mask] :
             {std::pair("keep_mask", &in.keep_mask), std::pair("drop_mask", &in.drop_mask)}) {
            if (!in_.has(role)) continue;
            const CaseSource::Tensor tensor = in_.take_tensor(role);
            *mask = in_.byte_mask(tensor, mask_shape(in_, case_, role, tensor.shape));
        }
        in.key_keep_mask = in_.byte_mask_if_there("key_keep_mask", per_key);
        in.key_drop_mask = in_.byte_mask_if_there("key_drop_mask", per_key);
        in.key_bias = in_.view_if_there("key_bias", per_key);
        if (in_.has("attn_bias")) {
            CaseSource::Tensor tensor = in_.take_tensor("attn_bias");
            in.bias = in_.own(ATTNC_F32, std::move(tensor.values),
                              mask_shape(in_, case_, "attn_bias", tensor.shape));
        }
        if (in_.has("scaled_drop_mask")) {
            if (in.bias.rank != 0) in_.fail("roles 'attn_bias' and 'scaled_drop_mask' exclude each other");
            const CaseSource::Tensor tensor = in_.take_tensor("scaled_drop_mask");
            case_.scaled_mask = tensor.values;
            case_.mask_factor = static_cast<float>(in_.take_number("mask_factor", -1e9));
            std::vector<float> bias;
            bias.reserve(tensor.values.size());
            for (const float value : tensor.values) bias.push_back(value * case_.mask_factor);
            in.bias =
                in_.own(ATTNC_F32, std::move(bias), mask_shape(in_, case_, "scaled_drop_mask", tensor.shape));
        }
        if (in_.has("attention_mask")) read_attention_mask(per_key);
        in_.take_role("input_ids");  // of the sentences that the hidden states come from
    }

    void read_attention_mask(const std::vector<int64_t>& per_key) {
        case_.attention_mask = in_.take_i64("attention_mask", per_key);
        if (case_.inputs.key_lengths.rank == 0) in_.fail("role 'attention_mask' comes without 'key_len'");
        const auto* lengths = static_cast<const int64_t*>(case_.inputs.key_lengths.data);
        for (int64_t n = 0; n < case_.batch * case_.seq_kv; ++n) {
            const bool valid = n % case_.seq_kv < lengths[n / case_.seq_kv];
            if ((case_.attention_mask[static_cast<size_t>(n)] != 0) != valid) {
                in_.fail("roles 'attention_mask' and 'key_len' disagree");
            }
        }
    }

    std::vector<int64_t> result_shape(const std::string& role) const {
        const Config& c = case_.config;
        const bool subset = !case_.out_items.empty();
        const int64_t items = subset ? static_cast<int64_t>(case_.out_items.size()) : case_.batch;
        const int64_t rows = subset ? static_cast<int64_t>(case_.out_rows.size()) : case_.seq_q;
        const int64_t all = case_.all_keys();
        const int64_t keys = all + (c.bias_kv ? 1 : 0) + (c.zero_attn ? 1 : 0);
        if (role == "scores") return {case_.batch, c.num_heads, case_.seq_q, all};
        if (role == "present_key") return {case_.batch, c.num_kv_heads, all, c.head_dim};
        if (role == "present_value") return {case_.batch, c.num_kv_heads, all, c.v_head_dim};
        if (role.starts_with("out_row_sum")) return {case_.batch, case_.seq_q};
        if (role == "lse") return {case_.batch, c.num_heads, case_.seq_q};
        if (role.starts_with("probs")) return {items, c.num_heads, rows, keys};
        if (role == "avg_probs") return {case_.batch, case_.seq_q, keys};
        if (role == "ctx") return {case_.batch, case_.seq_q, c.num_heads * c.v_head_dim};
        if (op_ == "attention") return {case_.batch, c.num_heads, case_.seq_q, c.v_head_dim};
        return {items, rows, c.out_proj ? c.d_model : c.num_heads * c.v_head_dim};
    }

    void read_results() {
        for (auto [role, indices] :
             {std::pair("out_batch_index", &case_.out_items), std::pair("out_row_index", &case_.out_rows)}) {
            in_.take_role(role);
            if (in_.has(role)) *indices = in_.take_i64(role, in_.shape(role));
            const int64_t end = indices == &case_.out_items ? case_.batch : case_.seq_q;
            for (const int64_t n : *indices) {
                if (n < 0 || n >= end) in_.fail(std::string("role '") + role + "' is out of range");
            }
        }
        if (case_.out_items.empty() != case_.out_rows.empty() ||
            in_.take_flag("out_is_subset", false) == case_.out_items.empty()) {
            in_.fail("attribute out_is_subset disagrees with the tensors");
        }
        const double rtol = in_.take_number("rtol", 0);
        for (const std::string role : kResults) {
            if (!in_.has(role)) continue;
            Expected expected;
            expected.shape = result_shape(role);
            if (in_.shape(role) != stored_shape(expected.shape))
                in_.fail("role '" + role + "' has another shape");
            expected.values = in_.take_f64(role);
            expected.atol = in_.take_number("atol." + role.substr(0, role.find("_f64_arithmetic")));
            expected.rtol = rtol;
            case_.expected.emplace(role, std::move(expected));
        }
        if (!case_.expected.contains("out")) in_.fail("role 'out' is missing");
    }

    // Flags that must agree with what was found.
    void check_flags() {
        const std::string weights = in_.take("weights_out", "");
        const bool averaged = case_.expected.contains("avg_probs");
        if (weights == "averaged"
                ? !averaged
                : (averaged || (weights == "per_head" && !case_.expected.contains("probs")))) {
            in_.fail("attribute weights_out is '" + weights + "', which disagrees with the tensors");
        }
        if (in_.take_flag("precision_dependent", false) != case_.expected.contains("out_f64_arithmetic")) {
            in_.fail("attribute precision_dependent disagrees with the tensors");
        }
        if (in_.take("weights_dtype", "float32") != "float32") in_.fail("weights_dtype is not float32");
    }

    CaseSource& in_;
    CaseFile& case_;
    std::string op_;
    bool batched_ = true;
};

}  // namespace

void read_layer_case(CaseSource& in, CaseFile& file) { LayerReader(in, file).read(); }

}  // namespace attnc
