// attnc_layer_rotate on a device.
#pragma once

#include "runtime/attnc.h"

namespace attnc::cuda {

attnc_status rotate_workspace(const attnc_layer& layer, const attnc_run* run, size_t* bytes,
                              attnc_error* error);
attnc_status rotate(const attnc_layer& layer, const attnc_rotation* rotation, const attnc_run& run,
                    attnc_error* error);

}  // namespace attnc::cuda
