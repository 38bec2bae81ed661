// The functions of CUDA's driver that the runtime calls, from libcuda.so.1 where there is one. Its own declarations: no
// toolkit is needed to build, and no driver to link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/attnc.h"

namespace attnc::cuda {

using Result = int;
using Device = int;
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Address = uint64_t;

inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNoDevice = 100;

inline constexpr int kComputeCapabilityMajor = 75;  // of cuDeviceGetAttribute
inline constexpr int kComputeCapabilityMinor = 76;
inline constexpr int kSharedBytesOptIn = 97;      // the most of a block of threads that asks for it
inline constexpr int kMaxDynamicSharedBytes = 8;  // of cuFuncSetAttribute

// CUDA_MEMCPY2D: rows of so many bytes, a pitch from each other. cuMemcpy2D and its asynchronous form may refuse copies within
// the device whose pitches aren't cuMemAllocPitch's; cuMemcpy2DUnaligned takes any.
struct Copy2D {
    size_t from_x, from_y;
    int from_type;  // kHostMemory, kDeviceMemory
    const void* from_host;
    Address from_device;
    void* from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_type;
    void* to_host;
    Address to_device;
    void* to_array;
    size_t to_pitch;
    size_t width, height;
};
inline constexpr int kHostMemory = 1, kDeviceMemory = 2;

// X(name, parameters): the function cu<name>.
#define ATTNC_CUDA_FUNCTIONS(X)                                                                              \
    X(Init, (unsigned flags))                                                                                \
    X(DeviceGetCount, (int* count))                                                                          \
    X(DeviceGet, (Device * device, int ordinal))                                                             \
    X(DeviceGetAttribute, (int* value, int attribute, Device device))                                        \
    X(DevicePrimaryCtxRetain, (Context * context, Device device))                                            \
    X(DevicePrimaryCtxRelease_v2, (Device device))                                                           \
    X(CtxGetCurrent, (Context * context))                                                                    \
    X(CtxPushCurrent_v2, (Context context))                                                                  \
    X(CtxPopCurrent_v2, (Context * context))                                                                 \
    X(CtxGetDevice, (Device * device))                                                                       \
    X(CtxSynchronize, ())                                                                                    \
    X(MemAlloc_v2, (Address * address, size_t bytes))                                                        \
    X(MemFree_v2, (Address address))                                                                         \
    X(MemcpyHtoDAsync_v2, (Address to, const void* from, size_t bytes, Stream stream))                       \
    X(MemcpyDtoHAsync_v2, (void* to, Address from, size_t bytes, Stream stream))                             \
    X(Memcpy2DUnaligned_v2, (const Copy2D* copy))                                                            \
    X(MemsetD8Async, (Address to, unsigned char value, size_t bytes, Stream stream))                         \
    X(StreamSynchronize, (Stream stream))                                                                    \
    X(ModuleLoadDataEx,                                                                                      \
      (Module * module, const void* image, unsigned option_count, int* options, void** option_values))       \
    X(ModuleUnload, (Module module))                                                                         \
    X(ModuleGetFunction, (Function * function, Module module, const char* name))                             \
    X(FuncSetAttribute, (Function function, int attribute, int value))                                       \
    X(LaunchKernel, (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
                     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream,               \
                     void** parameters, void** extra))                                                       \
    X(GetErrorName, (Result result, const char** name))

struct Driver {
#define ATTNC_X(name, parameters) Result(*name) parameters;
    ATTNC_CUDA_FUNCTIONS(ATTNC_X)
#undef ATTNC_X
};

// ATTNC_NO_DEVICE where there is no driver, or one that lacks a function. Loaded once in a process, by the system's loader.
attnc_status load_driver(attnc_error* error, Driver* driver);

// ATTNC_OK, or the status of a failure with the sentence "cuMemAlloc_v2 failed: CUDA_ERROR_UNKNOWN"; `what` of the call, null:
// nothing to add.
attnc_status check_result(attnc_error* error, const Driver& driver, Result result, const char* function,
                          const char* what = nullptr);

// Memory of the current context. ATTNC_OUT_OF_MEMORY says "no memory on the device for 64 bytes", with `what` before the number.
attnc_status allocate_memory(attnc_error* error, const Driver& driver, const char* what, size_t bytes,
                             Address* address);

}  // namespace attnc::cuda

// Calls a function of the driver and leaves with a status that isn't ATTNC_OK.
#define ATTNC_CUDA_TRY(error, driver, function, arguments) \
    ATTNC_TRY(attnc::cuda::check_result(error, driver, (driver).function arguments, "cu" #function))
