// Rotary position embeddings as the configurations of models describe them: rope_theta and rope_scaling, or
// rope_parameters with both.
#pragma once

#include <string>

#include "models/json_fields.h"
#include "models/model_layer.h"

namespace attnc {

// What a family takes for fields that its configurations leave out.
struct RotaryDefaults {
    double base = 10000;
    double fraction = 1;        // of a head's features that are rotated
    int64_t max_positions = 0;  // tokens that the layer is meant for; 0: those of the model's first training
    bool yarn_is_longrope = false;  // true: the family's early files say yarn where they mean longrope
    std::string layer_type;  // "sliding_attention": where rope_parameters has an entry for each type of layer
};

// Frequencies whose scaling is known: default, linear, llama3, yarn, longrope. Throws ConfigError for another one.
RotarySettings read_rotary(const Json& fields, int64_t head_dim, const RotaryDefaults& defaults);

}  // namespace attnc
