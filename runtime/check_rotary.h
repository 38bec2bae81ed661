// Checks of what a layer does to heads of q and k: RMS normalisation, rotation.
#pragma once

#include <cstdint>

#include "runtime/attnc.h"
#include "runtime/kernel_abi.h"

namespace attnc {

inline constexpr int64_t kMaxPosition = INT32_MAX;  // and the least is -kMaxPosition

// Where a layer's angles come from. Tensors are the caller's, checked.
struct RotarySource {
    int64_t pairs = 0;                // 0: no rotary embedding
    attnc_rotary rotary = {};         // with its defaults filled in
    attnc_tensor frequencies = {};    // given: instead of rotary.base
    attnc_tensor cos = {}, sin = {};  // given: a table instead of frequencies
};

struct HeadSources {
    const float *q_norm = nullptr, *k_norm = nullptr;  // null: not normalised
    double epsilon = 0;
    RotarySource rotary;
};

attnc_status check_head_steps(attnc_error* error, const attnc_config& config, const attnc_weights& weights,
                              const attnc_layer_options& options, HeadSources* sources);

}  // namespace attnc
