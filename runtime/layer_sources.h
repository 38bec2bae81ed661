// What a layer is made from, after its checks.
#pragma once

#include "runtime/check_rotary.h"
#include "runtime/layer.h"
#include "runtime/weights.h"

namespace attnc {

struct LayerSources {
    attnc_layer described;  // its numbers, those that any target has
    LayerWeights weights;   // the caller's
    HeadSources head_steps;
};

}  // namespace attnc
