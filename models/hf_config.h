// Attention layers from a model's own configuration file: the config.json that stands beside a model's weights.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "models/model_layer.h"

namespace attnc {

// The configuration of one kind of attention layer of the model that `file` describes. `layer` is
// "encoder.self", "decoder.self", "decoder.cross", ..., a number may follow ("decoder.self.3"); a number alone, or
// nothing, is a layer of the model's only kind. Completed and validated. Layers of a kind have one configuration, also
// where some of them have a window. Decoders have a cache. Throws ConfigError, "FILE: what is wrong", for a file that
// can't be read or isn't such a configuration, for a model type or layer that is unknown, and for a model whose
// attention needs what a library can't do: it is never left out silently.
Config config_from_hf(const std::filesystem::path& file, std::string_view layer);

// One layer, whose number must be given, with the values that it is created with. `max_positions`: tokens that it is
// meant for, which decides LongRoPE's frequencies; 0: as many as in the model's first training.
ModelLayer model_layer_from_hf(const std::filesystem::path& file, std::string_view layer,
                               int64_t max_positions = 0);

// Model types that config_from_hf knows, for help texts: "albert, bart, ...".
std::string known_hf_model_types();

}  // namespace attnc
