#include "models/families.h"

namespace attnc {

std::string numbered(const char* before, int64_t number, const char* after) {
    return before + std::to_string(number) + after;
}

void read_sizes(const Json& fields, const char* width, const char* heads, ModelLayer& layer) {
    layer.config.d_model = read_size(fields, width);
    layer.config.num_heads = read_size(fields, heads);
}

void make_decoder(ModelLayer& layer) {
    layer.config.causal = true;
    layer.config.cache = true;
}

void set_biases(ModelLayer& layer, bool qkv, bool out) {
    layer.names.bias_q = layer.names.bias_k = layer.names.bias_v = qkv;
    layer.names.bias_out = out;
}

void set_window(ModelLayer& layer, int64_t keys) { layer.settings.window_left = keys - 1; }

std::string read_layer_type(const Json& fields, int64_t number, const std::string& absent) {
    const std::vector<std::string> types = read_texts(fields, "layer_types");
    for (const std::string& type : types) {
        if (type != "full_attention" && type != "sliding_attention") {
            throw ConfigError("layer_types has " + in_quotes(type) +
                              ", which is not supported, full_attention and sliding_attention are");
        }
    }
    if (types.empty()) return absent;
    if (number >= static_cast<int64_t>(types.size())) {
        throw ConfigError("layer_types has " + std::to_string(types.size()) + " entries, none for layer " +
                          std::to_string(number));
    }
    return types[static_cast<size_t>(number)];
}

}  // namespace attnc
