// A layer's weights and settings as one plain safetensors file, which any program can load.
//
// Tensors: those of LoadedLayer, F32, and rotary_frequencies, F64 [rotary_dim / 2], where the layer has them.
// Attributes, as text, those that the layer has: format ("attnc-layer-1"), model_type, layer ("decoder.self.3"), problem
// (the problem string of the library that it needs), qk_scale, softcap, window_left, window_right, qk_norm_epsilon,
// rotary_dim, rotary_base, rotary_scaling ("linear", "llama3"), rotary_factor, rotary_low_freq_factor,
// rotary_high_freq_factor, rotary_original_positions, rotary_magnitude. Numbers read back as the same doubles.
#pragma once

#include <map>
#include <string>

#include "models/layer_weights.h"

namespace attnc {

std::map<std::string, std::string> layer_attributes(const ModelLayer& layer);

// Whole or not at all. Throws SafetensorsError.
void write_layer_file(const std::string& path, const LoadedLayer& loaded);

}  // namespace attnc
