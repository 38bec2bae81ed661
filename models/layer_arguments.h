// What attnc_layer_create takes, from a loaded layer.
#pragma once

#include "models/layer_weights.h"
#include "runtime/attnc.h"

namespace attnc {

// Views of `loaded`, which must live until the layer is created. Creation keeps no pointer.
attnc_weights layer_weights(const LoadedLayer& loaded);
attnc_layer_options layer_options(const LoadedLayer& loaded);

}  // namespace attnc
