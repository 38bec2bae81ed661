// The code of a library's kernels on a device: a module for each kernel, and its functions by name.
#pragma once

#include <cstdint>

#include "runtime/cuda/driver.h"
#include "runtime/kernel_abi.h"

namespace attnc::cuda {

inline constexpr int kMostFunctions = 8;  // of a kernel: one launch each

struct DeviceFunction {
    const char* name;  // in the PTX, not terminated
    int64_t name_length;
    Function function;
};

struct KernelModule {
    Module module;  // null: not loaded
    int count;
    DeviceFunction functions[kMostFunctions];
};

// What of a device decides about its code.
struct DeviceLimits {
    int64_t architecture;  // 80: compute capability 8.0
    int64_t shared_bytes;  // the most of a block of threads
};
attnc_status read_limits(attnc_error* error, const Driver& driver, Device device, DeviceLimits* limits);

// Loads the image for the device, the PTX where there is none, and looks its functions up. They may use all of the shared
// memory that a block can have. The context is current. After a failure `module` may be loaded all the same.
attnc_status load_module(attnc_error* error, const Driver& driver, const DeviceLimits& limits,
                         const attnc_device_kernel& kernel, const char* name, KernelModule* module);

// Null: the module has no such function.
const DeviceFunction* find_function(const KernelModule& module, const char* name);

}  // namespace attnc::cuda
