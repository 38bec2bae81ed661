// The families of models that are known: which kinds of attention layers each has, and a function that reads one from
// the fields of its configuration. A new family is an entry in one of these tables.
#pragma once

#include <vector>

#include "models/json_fields.h"
#include "models/model_layer.h"

namespace attnc {

// Which layer, and for what.
struct LayerRequest {
    int64_t number = 0;         // among the layers of its kind
    int64_t max_positions = 0;  // tokens that it is meant for; 0: as many as in the model's first training
};

struct LayerKind {
    const char* name;   // "decoder.self"
    const char* count;  // field with the number of such layers
    // Fills config, settings and names of `layer`. Throws ConfigError for what can't be.
    void (*read)(const Json& fields, const LayerRequest& request, ModelLayer& layer);
    const char* section = "";  // object inside the file that has the fields; empty: the file itself
};

struct Family {
    std::vector<const char*> types;  // model_type
    std::vector<LayerKind> kinds;
};

const std::vector<Family>& encoder_families();  // and models of an encoder and a decoder
const std::vector<Family>& decoder_families();  // with absolute positions or ALiBi
const std::vector<Family>& rotary_families();

// What several families have alike.

// "encoder.layer.3.attention."
std::string numbered(const char* before, int64_t number, const char* after);

// d_model and num_heads from these fields.
void read_sizes(const Json& fields, const char* width, const char* heads, ModelLayer& layer);

// A decoder's own attention: causal, with a cache of keys and values.
void make_decoder(ModelLayer& layer);

void set_biases(ModelLayer& layer, bool qkv, bool out);

// The layer sees no more than `keys` keys: its query's own and those before it.
void set_window(ModelLayer& layer, int64_t keys);

// The type of layer `number`: its entry in layer_types, where the file has that list, else `absent`. Throws ConfigError
// for a list that has other entries than full_attention and sliding_attention, or none for the layer.
std::string read_layer_type(const Json& fields, int64_t number, const std::string& absent);

}  // namespace attnc
