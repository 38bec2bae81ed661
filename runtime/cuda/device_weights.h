// A layer's weights as kernels of a device take them.
#pragma once

#include "runtime/carve.h"
#include "runtime/cuda/device_layer.h"

namespace attnc::cuda {

// Offsets of the parts in the layer's memory on the device, and in its copy on the host.
struct DeviceParts {
    struct Weights {
        int64_t panels, bias;
    } q, k, v, out;
    int64_t appended_k, appended_v, sinks, alibi_slopes, q_norm, k_norm, turns, table;
    int64_t bytes;
};

// Sizes and places of everything; fills in the layer's projections.
attnc_status take_device_parts(attnc_error* error, DeviceLayer& layer, const LayerSources& sources,
                               DeviceParts* parts);

// Writes all parts to `host`, and where they will be into the layer, whose memory is there.
void pack_device_parts(DeviceLayer& layer, const LayerSources& sources, const DeviceParts& parts,
                       unsigned char* host);

}  // namespace attnc::cuda
