// Masks that make_masks has made of a call's, as views of the workspace whose item 0 is the wave's first.
#pragma once

#include "runtime/cuda/device_wave.h"

namespace attnc::cuda {

inline MaskView made_key_bias(const DeviceWave& w) {
    MaskView made = w.plan.made_key_bias;
    made.data = w.at<float>(w.plan.key_bias);
    return made;
}

inline MaskView made_key_blocks(const DeviceWave& w) {
    MaskView made = w.plan.made_key_blocks;
    made.data = w.at<uint8_t>(w.plan.key_blocks);
    return made;
}

}  // namespace attnc::cuda
