// Attention layers from a model's own configuration file: the config.json that stands beside a model's
// weights.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "stages/config.h"

namespace attnc {

// The configuration of one kind of attention layer of the model that `file` describes. `layer` is
// "encoder.self", "decoder.self", "decoder.cross", ...; empty: the model's only kind. Completed and
// validated. Throws ConfigError, "FILE: what is wrong", for a file that can't be read or isn't such a
// configuration, for a model type or layer that is unknown, and for a model whose attention needs what a
// library can't do: it is never left out silently.
Config config_from_hf(const std::filesystem::path& file, std::string_view layer);

// Model types that config_from_hf knows, for help texts: "albert, bart, ...".
std::string known_hf_model_types();

}  // namespace attnc
