// Launches kernels for generated code, which checks its buffers and computes the geometry.
#pragma once

#include "runtime/call.h"
#include "runtime/cuda/device_layer.h"

namespace attnc::cuda {

// What generated code finds behind attnc_task.launch.
struct Launch {
    const Driver* driver;
    const KernelModule* module;  // of the kernel that runs
    const char* kernel;          // its name
    Stream stream;
    attnc_error* error;   // the caller's; may be null
    attnc_status status;  // of the first launch that failed
};

// Memory of a device as an argument of kernels.
DeviceMemory on_device(const void* address);

using DeviceCall = CallArguments<ATTNC_DEVICE_ARGUMENT_COUNT>;

// Runs a kernel on a stream. The layer's context is current.
attnc_status run_kernel(attnc_error* error, const DeviceLayer& layer, Stream stream, int kernel,
                        DeviceCall& call);

}  // namespace attnc::cuda
