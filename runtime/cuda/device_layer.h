// A layer on a device: its packed weights there, all in one allocation, and its loaded code.
#pragma once

#include <cstdint>

#include "runtime/carve.h"
#include "runtime/cuda/modules.h"
#include "runtime/device_runtime.h"
#include "runtime/layer_sources.h"

namespace attnc::cuda {

inline constexpr int64_t kMaxSpan = INT32_MAX;  // bytes of a buffer that a kernel may be given
inline constexpr int64_t kFloat = sizeof(float);
inline constexpr int64_t kMaxGrid = 65535;  // blocks along y and z

// A projection's weights as panels (n, k, p): column c of all heads is column c % panel of panel c / panel.
struct DeviceProjection {
    const float* weights;
    const float* bias;
    int64_t panel, inner;  // columns of a panel; k, filled up with zeros
    int64_t features;      // of a token: k without that
    int64_t panels;        // that have columns
    int64_t width, heads;  // columns of a head; 0, 0: of wo
    // Panels up to where the next projection of the same launch begins, and the planes of rows that they make.
    int64_t slot_panels, slot_planes;
};

// Everything but where things lie is decided before there is memory.
struct DeviceLayer : attnc_layer {
    const attnc_device_entry* entry;
    Driver driver;
    Context context;
    Device device_number;
    bool retained;   // the context is the primary one, kept by this layer
    Address memory;  // all weights and tables
    KernelModule modules[ATTNC_DEVICE_KERNEL_COUNT];

    DeviceProjection project_q, project_k, project_v, project_out;
    // The panels of q, k and v, or of k and v, lie one after another and give planes of one width.
    bool joins_qkv, joins_kv;
    const float* sink_logits;  // [num_heads] of a library with sinks; -inf where the layer has none
    int64_t group() const { return config.num_heads / config.num_kv_heads; }
    // What a kernel takes for a buffer that it won't read.
    const void* anything() const { return reinterpret_cast<const void*>(memory); }
};

inline const DeviceLayer& device_layer(const attnc_layer& layer) {
    return static_cast<const DeviceLayer&>(layer);
}

attnc_status create_layer(attnc_error* error, const attnc_device_entry& entry, const LayerSources& sources,
                          attnc_layer** layer);
void destroy_layer(attnc_layer* layer);

}  // namespace attnc::cuda
