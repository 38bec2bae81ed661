// Decoders that turn their queries and keys by position.
#include <cmath>

#include "models/families.h"
#include "models/rotary_fields.h"

namespace attnc {

namespace {

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

// What a family's own configuration class fills in where a file leaves a field out.
constexpr int64_t kRequired = 0;    // nothing: the file must have it
constexpr int64_t kFromHeads = -1;  // from the sizes that there are
struct SizeDefaults {
    int64_t num_kv_heads = kRequired;  // from heads: num_heads
    int64_t head_dim = kRequired;      // from heads: d_model / num_heads
};

// 0 where complete() shall find it; null in a file means that too.
int64_t read_or(const Json& fields, const char* field, int64_t absent) {
    if (fields.contains(field) && fields[field].is_null()) return 0;
    if (absent == kFromHeads) return fields.contains(field) ? read_size(fields, field) : 0;
    return absent == kRequired ? read_size(fields, field) : read_size(fields, field, absent);
}

// Sizes, causal, cache, names: what all descendants of Llama have alike. Without biases, window or rotation.
void read_base(const Json& fields, const LayerRequest& request, SizeDefaults defaults, ModelLayer& layer) {
    read_sizes(fields, "hidden_size", "num_attention_heads", layer);
    layer.config.num_kv_heads = read_or(fields, "num_key_value_heads", defaults.num_kv_heads);
    layer.config.head_dim = read_or(fields, "head_dim", defaults.head_dim);
    make_decoder(layer);
    layer.names = {.prefixes = {"model.", "language_model.model.", "model.language_model."},
                   .layer = numbered("layers.", request.number, ".self_attn."),
                   .q = "q_proj",
                   .k = "k_proj",
                   .v = "v_proj",
                   .out = "o_proj"};
}

void rotate(const Json& fields, const LayerRequest& request, RotaryDefaults defaults, ModelLayer& layer) {
    layer.config = complete(layer.config);  // a head's features, within limits
    layer.config.rotary = Rotary::kHalf;
    defaults.max_positions = request.max_positions;
    layer.settings.rotary = read_rotary(fields, layer.config.head_dim, defaults);
}

// A field that says whether all four projections have a bias.
void read_biases(const Json& fields, const char* field, bool absent, ModelLayer& layer) {
    const bool biases = read_flag(fields, field, absent);
    set_biases(layer, biases, biases);
}

// A window of all layers, where there is one.
void read_window(const Json& fields, ModelLayer& layer) {
    if (find_field(fields, "sliding_window") != nullptr)
        set_window(layer, read_size(fields, "sliding_window"));
}

// A window of this layer; the family's own where the file has none, and none where it has null.
void read_window_or(const Json& fields, int64_t absent, ModelLayer& layer) {
    const bool is_null = fields.contains("sliding_window") && fields["sliding_window"].is_null();
    if (!is_null) set_window(layer, read_size(fields, "sliding_window", absent));
}

// Even layers have a window, odd ones see all.
std::string read_alternating_type(const Json& fields, const LayerRequest& request) {
    return read_layer_type(fields, request.number, request.number % 2 == 0 ? kSliding : kFull);
}

// RMS norms of the heads of queries and keys.
void read_head_norms(const Json& fields, ModelLayer& layer) {
    layer.config.qk_norm = true;
    layer.settings.qk_norm_epsilon = read_positive(fields, "rms_norm_eps", 1e-6);
    layer.names.q_norm = "q_norm";
    layer.names.k_norm = "k_norm";
}

void read_llama(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_base(fields, request, {kFromHeads, kFromHeads}, layer);
    rotate(fields, request, {}, layer);
    read_biases(fields, "attention_bias", false, layer);
}

void read_mistral(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_base(fields, request, {0, kFromHeads}, layer);
    rotate(fields, request, {}, layer);
    if (read_layer_type(fields, request.number, kSliding) == kSliding) read_window(fields, layer);
}

void read_mixtral(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_base(fields, request, {0, kFromHeads}, layer);
    rotate(fields, request, {.base = 1e6}, layer);
    read_window(fields, layer);
}

// Layers from max_window_layers on have the window, unless the file lists their types.
void read_qwen_window(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    const bool late = request.number >= read_size(fields, "max_window_layers", 28);
    const std::string type = read_layer_type(fields, request.number, late ? kSliding : kFull);
    if (read_flag(fields, "use_sliding_window", false) && type == kSliding)
        read_window_or(fields, 4096, layer);
}

void read_qwen2(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_base(fields, request, {0, kFromHeads}, layer);
    rotate(fields, request, {}, layer);
    read_qwen_window(fields, request, layer);
    set_biases(layer, read_flag(fields, "qkv_bias", true), false);
}

void read_qwen3(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_base(fields, request, {}, layer);
    rotate(fields, request, {}, layer);
    read_qwen_window(fields, request, layer);
    read_head_norms(fields, layer);
    read_biases(fields, "attention_bias", false, layer);
}

// Releases of the models' own code disagree on which layers have the window.
void read_qwen3_moe(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    if (read_flag(fields, "use_sliding_window", false))
        throw ConfigError("use_sliding_window true is not supported for this model_type");
    read_qwen3(fields, request, layer);
}

void refuse_both_ways(const Json& fields) {
    if (read_flag(fields, "use_bidirectional_attention", false))
        throw ConfigError("use_bidirectional_attention true is not supported: the layer is causal");
}

void read_gemma(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    refuse_both_ways(fields);
    read_base(fields, request, {0, 256}, layer);
    rotate(fields, request, {}, layer);
    read_biases(fields, "attention_bias", false, layer);
}

void read_gemma_scores(const Json& fields, ModelLayer& layer) {
    layer.settings.qk_scale = 1 / std::sqrt(read_positive(fields, "query_pre_attn_scalar", 256.0));
    const char* const cap = "attn_logit_softcapping";
    if (find_field(fields, cap) == nullptr) return;
    layer.config.softcap = true;
    layer.settings.softcap = read_positive(fields, cap);
}

void read_gemma2(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_gemma(fields, request, layer);
    read_gemma_scores(fields, layer);
    if (read_alternating_type(fields, request) == kSliding) read_window_or(fields, 4096, layer);
}

// Every sixth layer sees all; the others have a window, and a base frequency of their own.
void read_gemma3(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    refuse_both_ways(fields);
    read_base(fields, request, {0, 256}, layer);
    read_gemma_scores(fields, layer);
    const int64_t pattern = read_size(fields, "sliding_window_pattern", 6);
    const std::string type =
        read_layer_type(fields, request.number, (request.number + 1) % pattern == 0 ? kFull : kSliding);
    rotate(fields, request, {.base = 1e6, .layer_type = type}, layer);
    if (type == kSliding) {
        if (find_field(fields, "rope_parameters") == nullptr) {
            layer.settings.rotary = {.dim = layer.config.head_dim,
                                     .base = read_positive(fields, "rope_local_base_freq", 10000.0)};
        }
        read_window_or(fields, 4096, layer);
    }
    read_head_norms(fields, layer);
    layer.names.norm_adds_one = true;
    read_biases(fields, "attention_bias", false, layer);
}

void read_phi3(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_base(fields, request, {kFromHeads, kFromHeads}, layer);
    rotate(fields, request, {.yarn_is_longrope = true}, layer);
    read_window(fields, layer);
    layer.names.packing = Packing::kStacked;
    layer.names.q = "qkv_proj";
    layer.names.k = layer.names.v = "";
}

// A sink for each head, in layers of both types.
void read_gpt_oss(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_base(fields, request, {8, 64}, layer);
    rotate(fields, request, {.base = 150000}, layer);
    if (read_alternating_type(fields, request) == kSliding) read_window_or(fields, 128, layer);
    layer.config.sink = true;
    layer.names.sink = "sinks";
    read_biases(fields, "attention_bias", true, layer);
}

void read_starcoder2(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_base(fields, request, {0, kFromHeads}, layer);
    rotate(fields, request, {}, layer);
    read_window(fields, layer);
    read_biases(fields, "use_bias", true, layer);
}

void refuse_layer_norms(const Json& fields, const char* field) {
    if (read_flag(fields, field, false)) {
        throw ConfigError(std::string(field) +
                          " true is not supported: queries and keys are normalised by their mean square, not "
                          "by layer norms");
    }
}

void read_phi(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    refuse_layer_norms(fields, "qk_layernorm");
    read_base(fields, request, {kFromHeads, kFromHeads}, layer);
    rotate(fields, request, {.fraction = 0.5}, layer);
    layer.names.out = "dense";
    set_biases(layer, true, true);
}

void read_stablelm(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    refuse_layer_norms(fields, "qk_layernorm");
    read_base(fields, request, {0, kFromHeads}, layer);
    rotate(fields, request, {.fraction = 0.25}, layer);
    set_biases(layer, read_flag(fields, "use_qkv_bias", false), false);
}

void read_gpt_neox(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "hidden_size", "num_attention_heads", layer);
    make_decoder(layer);
    rotate(fields, request,
           {.base = read_positive(fields, "rotary_emb_base", 10000.0),
            .fraction = read_positive(fields, "rotary_pct", 0.25)},
           layer);
    layer.names = {.prefixes = {"gpt_neox."},
                   .layer = numbered("layers.", request.number, ".attention."),
                   .packing = Packing::kPerHead,
                   .q = "query_key_value",
                   .out = "dense"};
    read_biases(fields, "attention_bias", true, layer);
}

// Rotates neighbouring features together.
void read_gptj(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "n_embd", "n_head", layer);
    make_decoder(layer);
    layer.config = complete(layer.config);
    const int64_t dim = read_size(fields, "rotary_dim", layer.config.head_dim);
    if (dim > layer.config.head_dim || dim % 2 != 0) {
        throw ConfigError("rotary_dim " + std::to_string(dim) + " is not an even number of a head's " +
                          std::to_string(layer.config.head_dim) + " features");
    }
    layer.config.rotary = Rotary::kPairs;
    layer.settings.rotary = {.dim = dim, .base = 10000};
    layer.names = {.prefixes = {"transformer."},
                   .layer = numbered("h.", request.number, ".attn."),
                   .q = "q_proj",
                   .k = "k_proj",
                   .v = "v_proj",
                   .out = "out_proj"};
}

}  // namespace

const std::vector<Family>& rotary_families() {
    const auto one = [](const char* type, auto read) {
        return Family{{type}, {{"decoder.self", "num_hidden_layers", read}}};
    };
    static const std::vector<Family> all = {
        one("llama", read_llama),
        one("mistral", read_mistral),
        one("mixtral", read_mixtral),
        {{"qwen2", "qwen2_moe"}, {{"decoder.self", "num_hidden_layers", read_qwen2}}},
        one("qwen3", read_qwen3),
        one("qwen3_moe", read_qwen3_moe),
        one("gemma", read_gemma),
        one("gemma2", read_gemma2),
        one("gemma3_text", read_gemma3),
        {{"gemma3"}, {{"decoder.self", "num_hidden_layers", read_gemma3, "text_config"}}},
        one("phi3", read_phi3),
        one("gpt_oss", read_gpt_oss),
        one("starcoder2", read_starcoder2),
        one("phi", read_phi),
        one("stablelm", read_stablelm),
        one("gpt_neox", read_gpt_neox),
        {{"gptj"}, {{"decoder.self", "n_layer", read_gptj}}},
    };
    return all;
}

}  // namespace attnc
