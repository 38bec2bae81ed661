#include "models/layer_file.h"

#include <charconv>
#include <cmath>

namespace attnc {

namespace {

// The shortest text that reads back as the same number; whole numbers without an exponent.
std::string text_of(double value) {
    if (value == std::floor(value) && std::abs(value) < 1e15)
        return std::to_string(static_cast<int64_t>(value));
    char text[40];
    const auto [end, error] = std::to_chars(text, text + sizeof text, value);
    return {text, error == std::errc{} ? end : text};
}

}  // namespace

std::map<std::string, std::string> layer_attributes(const ModelLayer& layer) {
    std::map<std::string, std::string> attributes{{"format", "attnc-layer-1"},
                                                  {"model_type", layer.model_type},
                                                  {"layer", layer.name()},
                                                  {"problem", to_string(layer.config)}};
    const auto add = [&](const char* name, double value) {
        if (value != 0) attributes[name] = text_of(value);
    };
    const LayerSettings& settings = layer.settings;
    add("qk_scale", settings.qk_scale);
    add("softcap", settings.softcap);
    if (settings.window_left) attributes["window_left"] = std::to_string(*settings.window_left);
    if (settings.window_right) attributes["window_right"] = std::to_string(*settings.window_right);
    add("qk_norm_epsilon", settings.qk_norm_epsilon);

    const RotarySettings& rotary = settings.rotary;
    if (rotary.dim == 0) return attributes;
    add("rotary_dim", static_cast<double>(rotary.dim));
    if (rotary.magnitude != 1) add("rotary_magnitude", rotary.magnitude);
    if (!rotary.frequencies.empty()) return attributes;  // a tensor
    add("rotary_base", rotary.base);
    if (rotary.scaling == RotarySettings::Scaling::kNone) return attributes;
    const bool llama3 = rotary.scaling == RotarySettings::Scaling::kLlama3;
    attributes["rotary_scaling"] = llama3 ? "llama3" : "linear";
    add("rotary_factor", rotary.factor);
    add("rotary_low_freq_factor", rotary.low_freq_factor);
    add("rotary_high_freq_factor", rotary.high_freq_factor);
    add("rotary_original_positions", static_cast<double>(rotary.original_positions));
    return attributes;
}

void write_layer_file(const std::string& path, const LoadedLayer& loaded) {
    std::vector<TensorToStore> tensors;
    tensors.reserve(loaded.tensors.size() + 1);
    for (const LayerTensor& tensor : loaded.tensors)
        tensors.push_back({tensor.name, StoredType::kF32, tensor.shape, tensor.values.data()});
    const std::vector<double>& frequencies = loaded.layer.settings.rotary.frequencies;
    if (!frequencies.empty()) {
        tensors.push_back({"rotary_frequencies",
                           StoredType::kF64,
                           {static_cast<int64_t>(frequencies.size())},
                           frequencies.data()});
    }
    write_safetensors(path, layer_attributes(loaded.layer), tensors);
}

}  // namespace attnc
