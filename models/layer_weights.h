// The weights of a layer of a published model, in the form that attnc takes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "models/checkpoint.h"
#include "models/model_layer.h"

namespace attnc {

struct LayerTensor {
    std::string name;  // of attnc_weights' field
    std::vector<int64_t> shape;
    std::vector<float> values;
};

// Those that the layer has of wq, wk, wv, wo, bq, bk, bv, bo, sink, q_norm, k_norm, alibi_slopes, in this order and in
// the shapes of attnc_weights. Frequencies of a rotary embedding are in layer.settings.
struct LoadedLayer {
    ModelLayer layer;
    std::vector<LayerTensor> tensors;

    const LayerTensor* find(std::string_view name) const;  // null: the layer has none
};

// Reads the layer's tensors by the names of its model: fused projections are taken apart, transposed weights turned,
// norms that multiply by 1 + w become plain ones. Throws SafetensorsError, "FILE: what is wrong", for a tensor that is
// missing, has another shape or type, or is a bias that the model's configuration doesn't have.
LoadedLayer load_layer(const ModelLayer& layer, const Checkpoint& checkpoint);

// All in one: the model's config.json, "decoder.self.3", and its checkpoint (see Checkpoint).
LoadedLayer load_model_layer(const std::filesystem::path& config, std::string_view layer,
                             const std::filesystem::path& checkpoint, int64_t max_positions = 0);

}  // namespace attnc
