#include "models/layer_arguments.h"

#include <algorithm>

namespace attnc {

namespace {

constexpr struct {
    const char* name;
    attnc_tensor attnc_weights::*field;
} kFields[] = {
    {"wq", &attnc_weights::wq},         {"wk", &attnc_weights::wk},
    {"wv", &attnc_weights::wv},         {"wo", &attnc_weights::wo},
    {"bq", &attnc_weights::bq},         {"bk", &attnc_weights::bk},
    {"bv", &attnc_weights::bv},         {"bo", &attnc_weights::bo},
    {"sink", &attnc_weights::sink},     {"alibi_slopes", &attnc_weights::alibi_slopes},
    {"q_norm", &attnc_weights::q_norm}, {"k_norm", &attnc_weights::k_norm},
};

// By hand: attnc_tensor_1d would need the runtime to be linked.
attnc_tensor view(attnc_dtype dtype, const void* data, const std::vector<int64_t>& shape) {
    attnc_tensor tensor{};
    tensor.data = const_cast<void*>(data);  // inputs are never written
    tensor.dtype = dtype;
    tensor.rank = static_cast<int32_t>(shape.size());
    int64_t stride = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
        tensor.extent[axis] = shape[axis];
        tensor.stride[axis] = stride;
        stride *= shape[axis];
    }
    return tensor;
}

}  // namespace

attnc_weights layer_weights(const LoadedLayer& loaded) {
    attnc_weights weights = ATTNC_WEIGHTS_INIT;
    for (const auto& [name, field] : kFields) {
        const LayerTensor* const tensor = loaded.find(name);
        if (tensor != nullptr) weights.*field = view(ATTNC_F32, tensor->values.data(), tensor->shape);
    }
    const std::vector<double>& frequencies = loaded.layer.settings.rotary.frequencies;
    if (!frequencies.empty()) {
        weights.rotary_frequencies =
            view(ATTNC_F64, frequencies.data(), {static_cast<int64_t>(frequencies.size())});
    }
    return weights;
}

attnc_layer_options layer_options(const LoadedLayer& loaded) {
    const LayerSettings& settings = loaded.layer.settings;
    attnc_layer_options options = ATTNC_LAYER_OPTIONS_INIT;
    options.qk_scale = static_cast<float>(settings.qk_scale);
    options.softcap = static_cast<float>(settings.softcap);
    options.qk_norm_epsilon = static_cast<float>(settings.qk_norm_epsilon);
    options.window = static_cast<attnc_window>((settings.window_left ? ATTNC_WINDOW_LEFT : 0) |
                                               (settings.window_right ? ATTNC_WINDOW_RIGHT : 0));
    options.window_left = settings.window_left.value_or(0);
    options.window_right = settings.window_right.value_or(0);

    const RotarySettings& rotary = settings.rotary;
    if (rotary.dim == 0) return options;
    options.rotary.dim = rotary.dim;
    options.rotary.magnitude = rotary.magnitude;
    if (!rotary.frequencies.empty()) return options;
    options.rotary.base = rotary.base;
    options.rotary.factor = rotary.factor;
    options.rotary.low_freq_factor = rotary.low_freq_factor;
    options.rotary.high_freq_factor = rotary.high_freq_factor;
    options.rotary.original_positions = rotary.original_positions;
    switch (rotary.scaling) {
        case RotarySettings::Scaling::kNone:
            break;
        case RotarySettings::Scaling::kLinear:
            options.rotary.scaling = ATTNC_ROTARY_SCALING_LINEAR;
            break;
        case RotarySettings::Scaling::kLlama3:
            options.rotary.scaling = ATTNC_ROTARY_SCALING_LLAMA3;
            break;
    }
    return options;
}

}  // namespace attnc
