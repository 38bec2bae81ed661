// Decoders whose positions are in their embeddings, or in a bias of the scores (ALiBi).
#include <cmath>

#include "models/families.h"

namespace attnc {

namespace {

double default_scale(const Config& config) {
    return 1 / std::sqrt(static_cast<double>(config.d_model) / static_cast<double>(config.num_heads));
}

void read_gpt2(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "n_embd", "n_head", layer);
    make_decoder(layer);
    const bool scaled = read_flag(fields, "scale_attn_weights", true);
    const bool by_layer = read_flag(fields, "scale_attn_by_inverse_layer_idx", false);
    if (!scaled) layer.settings.qk_scale = 1;
    if (by_layer) {
        layer.settings.qk_scale =
            (scaled ? default_scale(layer.config) : 1) / static_cast<double>(request.number + 1);
    }
    layer.names = {.prefixes = {"transformer."},
                   .layer = numbered("h.", request.number, ".attn."),
                   .packing = Packing::kStacked,
                   .q = "c_attn",
                   .out = "c_proj",
                   .transposed = true};
    set_biases(layer, true, true);
}

void read_gpt_bigcode(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "n_embd", "n_head", layer);
    make_decoder(layer);
    if (!read_flag(fields, "scale_attn_weights", true)) layer.settings.qk_scale = 1;
    const bool one_kv = read_flag(fields, "multi_query", true);
    if (one_kv) layer.config.num_kv_heads = 1;
    layer.names = {.prefixes = {"transformer."},
                   .layer = numbered("h.", request.number, ".attn."),
                   .packing = one_kv ? Packing::kStacked : Packing::kPerHead,
                   .q = "c_attn",
                   .out = "c_proj"};
    set_biases(layer, true, true);
}

void read_opt(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "hidden_size", "num_attention_heads", layer);
    make_decoder(layer);
    layer.names = {.prefixes = {"model."},
                   .layer = numbered("decoder.layers.", request.number, ".self_attn."),
                   .q = "q_proj",
                   .k = "k_proj",
                   .v = "v_proj",
                   .out = "out_proj"};
    const bool biases = read_flag(fields, "enable_bias", true);
    set_biases(layer, biases, biases);
}

// Scores are not scaled; layers are listed as global, or local with a window.
void read_gpt_neo(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "hidden_size", "num_heads", layer);
    make_decoder(layer);
    layer.settings.qk_scale = 1;
    const std::vector<std::string> types = read_texts(fields, "attention_layers");
    if (request.number >= static_cast<int64_t>(types.size())) {
        throw ConfigError("attention_layers has " + std::to_string(types.size()) +
                          " entries, none for layer " + std::to_string(request.number));
    }
    const std::string& type = types[static_cast<size_t>(request.number)];
    if (type == "local") {
        set_window(layer, read_size(fields, "window_size", 256));
    } else if (type != "global") {
        throw ConfigError("attention_layers has " + in_quotes(type) +
                          ", which is not supported, global and local are");
    }
    layer.names = {.prefixes = {"transformer."},
                   .layer = numbered("h.", request.number, ".attn.attention."),
                   .q = "q_proj",
                   .k = "k_proj",
                   .v = "v_proj",
                   .out = "out_proj"};
    set_biases(layer, false, true);
}

// Slopes of ALiBi (Press et al. 2022): 2^(-most k / n) for k = 1..n where the number of heads n is a power of two. Else
// those of the power below, then every second one of those of the power above.
std::vector<float> alibi_slopes(int64_t heads, double most) {
    int64_t power = 1;
    while (power * 2 <= heads) power *= 2;
    std::vector<float> slopes;
    const auto add = [&](int64_t k, int64_t of) {
        slopes.push_back(
            static_cast<float>(std::exp2(-most * static_cast<double>(k) / static_cast<double>(of))));
    };
    for (int64_t k = 1; k <= power; ++k) add(k, power);
    for (int64_t k = 1; static_cast<int64_t>(slopes.size()) < heads; k += 2) add(k, 2 * power);
    return slopes;
}

void read_bloom(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    layer.config.d_model = read_size_of(fields, {"hidden_size", "n_embed"});
    layer.config.num_heads = read_size_of(fields, {"n_head", "num_attention_heads"});
    make_decoder(layer);
    layer.config = complete(layer.config);  // before there is a slope for each head
    layer.config.alibi = true;
    layer.settings.alibi_slopes = alibi_slopes(layer.config.num_heads, 8);
    layer.names = {.prefixes = {"transformer."},
                   .layer = numbered("h.", request.number, ".self_attention."),
                   .packing = Packing::kPerHead,
                   .q = "query_key_value",
                   .out = "dense"};
    set_biases(layer, true, true);
}

void read_mpt(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "d_model", "n_heads", layer);
    make_decoder(layer);
    layer.config = complete(layer.config);  // before there is a slope for each head
    const Json& attention = read_section(fields, "attn_config");
    const std::string type = read_text(attention, "attn_type", "multihead_attention");
    if (type != "multihead_attention") {
        throw ConfigError("attn_type " + in_quotes(type) + " is not supported, multihead_attention is");
    }
    if (find_field(attention, "clip_qkv") != nullptr)
        throw ConfigError("clip_qkv is not supported: projections are not clipped");
    for (const char* const option : {"qk_ln", "prefix_lm", "attn_uses_sequence_id"}) {
        if (read_flag(attention, option, false))
            throw ConfigError(std::string(option) + " true is not supported");
    }
    if (!read_flag(attention, "alibi", true)) throw ConfigError("alibi false is not supported");
    if (!read_flag(fields, "no_bias", true)) throw ConfigError("no_bias false is not supported");
    layer.settings.qk_scale = read_positive(attention, "softmax_scale", default_scale(layer.config));
    layer.config.alibi = true;
    layer.settings.alibi_slopes =
        alibi_slopes(layer.config.num_heads, read_positive(attention, "alibi_bias_max", 8.0));
    layer.names = {.prefixes = {"transformer."},
                   .layer = numbered("blocks.", request.number, ".attn."),
                   .packing = Packing::kStacked,
                   .q = "Wqkv",
                   .out = "out_proj"};
}

}  // namespace

const std::vector<Family>& decoder_families() {
    static const std::vector<Family> all = {
        {{"gpt2"}, {{"decoder.self", "n_layer", read_gpt2}}},
        {{"gpt_bigcode"}, {{"decoder.self", "n_layer", read_gpt_bigcode}}},
        {{"opt"}, {{"decoder.self", "num_hidden_layers", read_opt}}},
        {{"gpt_neo"}, {{"decoder.self", "num_layers", read_gpt_neo}}},
        {{"bloom"}, {{"decoder.self", "n_layer", read_bloom}}},
        {{"mpt"}, {{"decoder.self", "n_layers", read_mpt}}},
    };
    return all;
}

}  // namespace attnc
