#include "support/case_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <set>
#include <sstream>
#include <utility>

#include "support/random.h"
#include "support/safetensors.h"

namespace attnc {
namespace {

// Attributes that say where a case comes from, or repeat what its tensors show.
const std::set<std::string, std::less<>> kInformation = {
    "case",     "empty_rows", "fill",           "kind", "layer",     "made_with", "note",
    "out_rule", "probs_note", "precision_note", "rng",  "sentences", "source",    "torch_result"};

const std::set<std::string, std::less<>> kResults = {"out",
                                                     "ctx",
                                                     "probs",
                                                     "avg_probs",
                                                     "lse",
                                                     "out_row_sum",
                                                     "out_row_sum_of_squares",
                                                     "out_f64_arithmetic",
                                                     "probs_f64_arithmetic"};

class CaseReader {
public:
    explicit CaseReader(const std::string& path) : file_(path), attributes_(file_.metadata()) {}

    CaseFile read() {
        case_.name = take("case", "");
        if (take("format", "attention-vector-1") != "attention-vector-1")
            fail("format is not attention-vector-1");
        read_sizes();
        read_layer();
        read_inputs();
        read_masks();
        read_results();
        check_flags();
        for (const auto& [name, value] : attributes_) {
            const bool known = kInformation.contains(name) || name.starts_with("f32_err.");
            if (!known && !taken_.contains(name)) fail("unknown attribute '" + name + "'");
        }
        for (const StoredTensor& tensor : file_.tensors()) {
            if (!taken_roles_.contains(tensor.name)) fail("unknown role '" + tensor.name + "'");
        }
        return std::move(case_);
    }

private:
    [[noreturn]] void fail(const std::string& what) const { throw CaseError(file_.path() + ": " + what); }

    // --- attributes

    std::string take(const std::string& name, const std::string& otherwise) {
        taken_.insert(name);
        const auto found = attributes_.find(name);
        return found == attributes_.end() ? otherwise : found->second;
    }

    bool take_flag(const std::string& name, bool otherwise) {
        const std::string text = take(name, otherwise ? "true" : "false");
        if (text != "true" && text != "false")
            fail("attribute " + name + " is '" + text + "', wanted true or false");
        return text == "true";
    }

    double number(const std::string& name, const std::string& text) const {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (text.empty() || *end != '\0') fail("attribute " + name + " is '" + text + "', wanted a number");
        return value;
    }

    int64_t take_size(const std::string& name, int64_t otherwise) {
        const std::string text = take(name, std::to_string(otherwise));
        const double value = number(name, text);
        if (value != std::floor(value) || value < 0 || value > 0x1p31) {
            fail("attribute " + name + " is '" + text + "', wanted a size");
        }
        return static_cast<int64_t>(value);
    }

    // --- tensors

    struct Stored {
        std::vector<int64_t> shape;
        std::vector<float> values;
    };

    bool has(const std::string& role) const {
        return file_.find(role) != nullptr || attributes_.contains("gen." + role);
    }

    // "seed=N amp=A shape=2,3" or "const=C shape=2,3".
    Stored generate(const std::string& role, const std::string& text) {
        std::map<std::string, std::string> fields;
        std::istringstream words(text);
        for (std::string word; words >> word;) {
            const size_t equals = word.find('=');
            if (equals == std::string::npos)
                fail("attribute gen." + role + " has '" + word + "', wanted name=value");
            if (!fields.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
                fail("attribute gen." + role + " has '" + word.substr(0, equals) + "' twice");
            }
        }
        Stored tensor;
        int64_t count = 1;
        std::istringstream extents(fields["shape"]);
        for (std::string extent; std::getline(extents, extent, ',');) {
            tensor.shape.push_back(static_cast<int64_t>(number("gen." + role, extent)));
            if (tensor.shape.back() < 0 || __builtin_mul_overflow(count, tensor.shape.back(), &count) ||
                count > int64_t{1} << 31) {
                fail("attribute gen." + role + " has shape " + fields["shape"]);
            }
        }
        if (fields.size() == 3 && fields.contains("seed") && fields.contains("amp")) {
            const uint64_t seed = std::strtoull(fields["seed"].c_str(), nullptr, 10);
            tensor.values = generated(count, seed, static_cast<float>(number("gen." + role, fields["amp"])));
        } else if (fields.size() == 2 && fields.contains("const")) {
            tensor.values.assign(static_cast<size_t>(count),
                                 static_cast<float>(number("gen." + role, fields["const"])));
        } else {
            fail("attribute gen." + role + " is '" + text +
                 "', wanted seed, amp and shape, or const and shape");
        }
        return tensor;
    }

    Stored take_tensor(const std::string& role) {
        const StoredTensor* stored = file_.find(role);
        taken_roles_.insert(role);
        const std::string generator = take("gen." + role, "");
        if ((stored != nullptr) == !generator.empty()) {
            fail("role '" + role + "' is " + (stored != nullptr ? "both stored and generated" : "missing"));
        }
        if (!generator.empty()) return generate(role, generator);
        Stored tensor{stored->shape, {}};
        for (const double value : file_.to_f64(*stored)) tensor.values.push_back(static_cast<float>(value));
        return tensor;
    }

    template <typename T>
    attnc_tensor own(attnc_dtype dtype, std::vector<T> values, const std::vector<int64_t>& shape) {
        auto memory = std::make_shared<std::vector<T>>(std::move(values));
        if (memory->empty()) memory->reserve(1);  // a pointer that is not null
        attnc_tensor view = {};
        view.data = memory->data();
        view.dtype = dtype;
        view.rank = static_cast<int32_t>(shape.size());
        int64_t stride = 1;
        for (size_t n = shape.size(); n-- > 0;) {
            view.extent[n] = shape[n];
            view.stride[n] = stride;
            stride *= shape[n];
        }
        case_.memory.push_back(std::move(memory));
        return view;
    }

    // The role's tensor as a view that has exactly this shape.
    attnc_tensor view(const std::string& role, const std::vector<int64_t>& shape) {
        Stored tensor = take_tensor(role);
        if (tensor.shape != shape) fail("role '" + role + "' has another shape than the attributes say");
        return own(ATTNC_F32, std::move(tensor.values), shape);
    }

    attnc_tensor view_if_there(const std::string& role, const std::vector<int64_t>& shape) {
        return has(role) ? view(role, shape) : attnc_tensor{};
    }

    // --- the parts of a case

    void read_sizes() {
        op_ = take("op", "");
        if (op_ != "layer" && op_ != "attention" && op_ != "attention_bld") fail("unknown op '" + op_ + "'");
        case_.batch = take_size("batch", 1);
        case_.seq_q = take_size("q_len", 0);
        case_.seq_kv = take_size("kv_len", case_.seq_q);
        batched_ = take_flag("batched", true);
        if (!batched_ && case_.batch != 1) fail("an unbatched case has batch " + std::to_string(case_.batch));
    }

    void read_layer() {
        Config config;
        config.num_heads = take_size("heads", 0);
        config.num_kv_heads = take_size("kv_heads", config.num_heads);
        config.head_dim = take_size("head_dim", 0);
        config.v_head_dim = take_size("v_head_dim", config.head_dim);
        config.in_proj = op_ == "layer";
        config.out_proj = has("wo");
        config.bias_kv = take_flag("add_bias_kv", false);
        config.zero_attn = take_flag("add_zero_attn", false);
        config.d_model = take_size("d_model", config.num_heads * config.head_dim);
        if (config.in_proj) {
            config.k_dim = take_size("kdim", config.d_model);
            config.v_dim = take_size("vdim", config.d_model);
        }
        try {
            config = complete(config);
        } catch (const ConfigError& error) {
            fail(error.what());
        }
        case_.config = config;
        case_.options.qk_scale = number("scale", take("scale", "0"));

        case_.weights.struct_size = sizeof(attnc_weights);
        const int64_t q = config.num_heads * config.head_dim;
        const int64_t k = config.num_kv_heads * config.head_dim;
        const int64_t v = config.num_kv_heads * config.v_head_dim;
        const bool bias = take_flag("bias", has("bq") || has("bo"));
        if (bias != (has("bq") || has("bo"))) fail("attribute bias disagrees with the tensors");
        if (config.in_proj) {
            case_.weights.wq = view("wq", {q, config.d_model});
            case_.weights.wk = view("wk", {k, config.k_dim});
            case_.weights.wv = view("wv", {v, config.v_dim});
            case_.weights.bq = view_if_there("bq", {q});
            case_.weights.bk = view_if_there("bk", {k});
            case_.weights.bv = view_if_there("bv", {v});
        }
        if (config.out_proj) {
            case_.weights.wo = view("wo", {config.d_model, config.num_heads * config.v_head_dim});
            case_.weights.bo = view_if_there("bo", {config.d_model});
        }
        if (config.bias_kv) {
            case_.weights.bias_k = flat(view("bias_k", {1, 1, k}));
            case_.weights.bias_v = flat(view("bias_v", {1, 1, v}));
        }
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
        return with_batch(view(role, stored_shape(shape)), shape);
    }

    void read_inputs() {
        const Config& c = case_.config;
        case_.inputs.struct_size = sizeof(attnc_inputs);
        if (op_ == "attention") {
            case_.inputs.query = batched_view("q", {case_.batch, c.num_heads, case_.seq_q, c.head_dim});
            case_.inputs.key = batched_view("k", {case_.batch, c.num_kv_heads, case_.seq_kv, c.head_dim});
            case_.inputs.value = batched_view("v", {case_.batch, c.num_kv_heads, case_.seq_kv, c.v_head_dim});
        } else {
            const int64_t width = c.in_proj ? c.d_model : c.num_heads * c.head_dim;
            case_.inputs.query = batched_view("query", {case_.batch, case_.seq_q, width});
            if (has("key")) case_.inputs.key = batched_view("key", {case_.batch, case_.seq_kv, c.k_dim});
            if (has("value"))
                case_.inputs.value = batched_view("value", {case_.batch, case_.seq_kv, c.v_dim});
            const bool self = take_flag("self_attention", !has("key"));
            if (self == has("key")) fail("attribute self_attention disagrees with the tensors");
            if (take_flag("key_is_value", !has("value")) == has("value")) {
                fail("attribute key_is_value disagrees with the tensors");
            }
        }
        const std::string causal = take("causal", "none");
        if (causal == "none") {
            case_.inputs.causal = ATTNC_CAUSAL_NONE;
        } else if (causal == "top_left") {
            case_.inputs.causal = ATTNC_CAUSAL_TOP_LEFT;
        } else if (causal == "bottom_right") {
            case_.inputs.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        } else {
            fail("unknown causal '" + causal + "'");
        }
        const std::string empty = take("empty_row", "zero");
        if (empty == "zero") {
            case_.options.empty_rows = ATTNC_EMPTY_ROWS_ZERO;
        } else if (empty == "mean_of_values") {
            case_.options.empty_rows = ATTNC_EMPTY_ROWS_MEAN_OF_VALUES;
        } else {
            fail("unknown empty_row '" + empty + "'");
        }
    }

    // Right-aligned to [batch, heads, seq_q, seq_kv], each extent that one or 1.
    std::vector<int64_t> mask_shape(const std::string& role, std::vector<int64_t> shape) const {
        const int64_t wanted[4] = {case_.batch, case_.config.num_heads, case_.seq_q, case_.seq_kv};
        if (shape.size() > 4) fail("role '" + role + "' has more than 4 dimensions");
        shape.insert(shape.begin(), 4 - shape.size(), 1);
        for (size_t n = 0; n < 4; ++n) {
            if (shape[n] != 1 && shape[n] != wanted[n])
                fail("role '" + role + "' does not broadcast to the scores");
        }
        return shape;
    }

    attnc_tensor byte_mask(const Stored& tensor, const std::vector<int64_t>& shape) {
        std::vector<uint8_t> bytes;
        for (const float value : tensor.values) bytes.push_back(value != 0 ? 1 : 0);
        return own(ATTNC_U8, std::move(bytes), shape);
    }

    void read_masks() {
        attnc_inputs& in = case_.inputs;
        const std::vector<int64_t> per_key = {case_.batch, case_.seq_kv};
        for (auto [role, mask] :
             {std::pair("keep_mask", &in.keep_mask), std::pair("drop_mask", &in.drop_mask)}) {
            if (!has(role)) continue;
            const Stored tensor = take_tensor(role);
            *mask = byte_mask(tensor, mask_shape(role, tensor.shape));
        }
        if (has("key_drop_mask")) {
            const Stored tensor = take_tensor("key_drop_mask");
            if (tensor.shape != per_key)
                fail("role 'key_drop_mask' has another shape than the attributes say");
            in.key_drop_mask = byte_mask(tensor, per_key);
        }
        in.key_bias = view_if_there("key_bias", per_key);
        if (has("attn_bias")) {
            Stored tensor = take_tensor("attn_bias");
            in.bias = own(ATTNC_F32, std::move(tensor.values), mask_shape("attn_bias", tensor.shape));
        }
        if (has("scaled_drop_mask")) {
            if (in.bias.rank != 0) fail("roles 'attn_bias' and 'scaled_drop_mask' exclude each other");
            const Stored tensor = take_tensor("scaled_drop_mask");
            case_.scaled_mask = tensor.values;
            case_.mask_factor = static_cast<float>(number("mask_factor", take("mask_factor", "-1e9")));
            std::vector<float> bias;
            for (const float value : tensor.values) bias.push_back(value * case_.mask_factor);
            in.bias = own(ATTNC_F32, std::move(bias), mask_shape("scaled_drop_mask", tensor.shape));
        }
        if (has("key_len")) {
            const StoredTensor& stored = file_.at("key_len");
            taken_roles_.insert("key_len");
            if (stored.shape != std::vector<int64_t>{case_.batch}) fail("role 'key_len' has another shape");
            in.key_lengths = own(ATTNC_I64, file_.to_i64(stored), stored.shape);
        }
        if (has("attention_mask")) read_attention_mask(per_key);
        taken_roles_.insert("input_ids");  // of the sentences that the hidden states come from
    }

    void read_attention_mask(const std::vector<int64_t>& per_key) {
        taken_roles_.insert("attention_mask");
        const StoredTensor& stored = file_.at("attention_mask");
        if (stored.shape != per_key) fail("role 'attention_mask' has another shape");
        case_.attention_mask = file_.to_i64(stored);
        if (case_.inputs.key_lengths.rank == 0) fail("role 'attention_mask' comes without 'key_len'");
        const auto* lengths = static_cast<const int64_t*>(case_.inputs.key_lengths.data);
        for (int64_t n = 0; n < case_.batch * case_.seq_kv; ++n) {
            const bool valid = n % case_.seq_kv < lengths[n / case_.seq_kv];
            if ((case_.attention_mask[static_cast<size_t>(n)] != 0) != valid) {
                fail("roles 'attention_mask' and 'key_len' disagree");
            }
        }
    }

    std::vector<int64_t> result_shape(const std::string& role) const {
        const Config& c = case_.config;
        const bool subset = !case_.out_items.empty();
        const int64_t items = subset ? static_cast<int64_t>(case_.out_items.size()) : case_.batch;
        const int64_t rows = subset ? static_cast<int64_t>(case_.out_rows.size()) : case_.seq_q;
        const int64_t keys = case_.seq_kv + (c.bias_kv ? 1 : 0) + (c.zero_attn ? 1 : 0);
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
            taken_roles_.insert(role);
            if (has(role)) *indices = file_.to_i64(file_.at(role));
            const int64_t end = indices == &case_.out_items ? case_.batch : case_.seq_q;
            for (const int64_t n : *indices) {
                if (n < 0 || n >= end) fail(std::string("role '") + role + "' is out of range");
            }
        }
        if (case_.out_items.empty() != case_.out_rows.empty() ||
            take_flag("out_is_subset", false) == case_.out_items.empty()) {
            fail("attribute out_is_subset disagrees with the tensors");
        }
        const double rtol = number("rtol", take("rtol", "0"));
        for (const StoredTensor& tensor : file_.tensors()) {
            if (!kResults.contains(tensor.name)) continue;
            taken_roles_.insert(tensor.name);
            Expected expected;
            expected.shape = result_shape(tensor.name);
            if (tensor.shape != stored_shape(expected.shape))
                fail("role '" + tensor.name + "' has another shape");
            expected.values = file_.to_f64(tensor);
            const std::string basic = tensor.name.substr(0, tensor.name.find("_f64_arithmetic"));
            expected.atol = number("atol." + basic, take("atol." + basic, ""));
            expected.rtol = rtol;
            case_.expected.emplace(tensor.name, std::move(expected));
        }
        if (!case_.expected.contains("out")) fail("role 'out' is missing");
    }

    // Flags that must agree with what was found.
    void check_flags() {
        const std::string weights = take("weights_out", "");
        const bool averaged = case_.expected.contains("avg_probs");
        if (weights == "averaged"
                ? !averaged
                : (averaged || (weights == "per_head" && !case_.expected.contains("probs")))) {
            fail("attribute weights_out is '" + weights + "', which disagrees with the tensors");
        }
        if (take_flag("precision_dependent", false) != case_.expected.contains("out_f64_arithmetic")) {
            fail("attribute precision_dependent disagrees with the tensors");
        }
        if (take("weights_dtype", "float32") != "float32") fail("weights_dtype is not float32");
    }

    SafetensorsFile file_;
    const std::map<std::string, std::string>& attributes_;
    std::set<std::string, std::less<>> taken_, taken_roles_;
    CaseFile case_;
    std::string op_;
    bool batched_ = true;
};

}  // namespace

CaseFile read_case(const std::string& path) { return CaseReader(path).read(); }

}  // namespace attnc
