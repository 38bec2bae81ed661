#include "runtime/cuda/launcher.h"

#include <string.h>

#include "runtime/arena.h"
#include "runtime/device_library.h"
#include "runtime/halide_buffer.h"
#include "runtime/task_error.h"

using namespace attnc;
using namespace attnc::cuda;

namespace {

// Codes of Halide's runtime; kernels return them, and the runtime only looks at zero or not.
constexpr int kDeviceRunFailed = -20;
constexpr int kNoDeviceMemory = -17;

constexpr int kMostParameters = 128;  // of a function; generated ones have about thirty

// Kernels pass it on without looking inside.
constexpr int kInterface = 0;

Launch* launch_of(void* user_context) {
    auto* task = static_cast<attnc_task*>(user_context);
    // The runtime's own, which no other thread has.
    return static_cast<Launch*>(const_cast<void*>(task->launch));
}

// Success where the buffer has memory on the device: all that a kernel may ask for is there before it runs.
int want_memory(void* user_context, const HalideBuffer* buffer, const char* instead_of) {
    if (buffer != nullptr && buffer->device != 0) return 0;
    return keep_error(user_context, kNoDeviceMemory,
                      {"a buffer has no memory on the device, and ", instead_of, " is not done in a call"});
}

}  // namespace

namespace attnc::cuda {

DeviceMemory on_device(const void* address) { return {address, &kInterface}; }

attnc_status run_kernel(attnc_error* error, const DeviceLayer& layer, Stream stream, int kernel,
                        DeviceCall& call) {
    Launch launch = {&layer.driver, &layer.modules[kernel], name_of_device_kernel(kernel), stream, error,
                     ATTNC_OK};
    attnc_task task;
    arena_init(task, nullptr, 0);
    task.launch = &launch;
    if (call.run(layer.entry->kernels[kernel], task)) return ATTNC_OK;
    if (launch.status != ATTNC_OK) return launch.status;
    return fail(error, ATTNC_KERNEL_FAILED,
                {"kernel ", launch.kernel, " failed with ", task.error_code,
                 task.error_text[0] != 0 ? ": " : "", task.error_text});
}

}  // namespace attnc::cuda

// What generated code for a device leaves undefined, renamed halide_* -> attnc_abi1_* as for a CPU's.
extern "C" {

const void* attnc_abi1_cuda_device_interface() { return &kInterface; }

// Modules are loaded when a layer is made.
int attnc_abi1_cuda_initialize_kernels(void*, void**, const char*, int) { return 0; }
void attnc_abi1_cuda_finalize_kernels(void*, void*) {}

int attnc_abi1_cuda_run(void* user_context, void*, const char* name, int grid_x, int grid_y, int grid_z,
                        int block_x, int block_y, int block_z, int shared_bytes, const size_t* sizes,
                        void** arguments, const int8_t* is_buffer) {
    Launch& launch = *launch_of(user_context);
    const DeviceFunction* function = find_function(*launch.module, name);
    if (function == nullptr)
        return keep_error(user_context, kDeviceRunFailed, {"its code has no function ", name});
    void* parameters[kMostParameters];
    int64_t count = 0;
    for (; sizes[count] != 0; ++count) {
        if (count == kMostParameters) {
            return keep_error(user_context, kDeviceRunFailed,
                              {name, " has more than ", kMostParameters, " parameters"});
        }
        // Of a buffer its address on the device, which is the struct's first member.
        parameters[count] =
            is_buffer[count] != 0 ? &static_cast<HalideBuffer*>(arguments[count])->device : arguments[count];
    }
    const Result result = launch.driver->LaunchKernel(
        function->function, static_cast<unsigned>(grid_x), static_cast<unsigned>(grid_y),
        static_cast<unsigned>(grid_z), static_cast<unsigned>(block_x), static_cast<unsigned>(block_y),
        static_cast<unsigned>(block_z), static_cast<unsigned>(shared_bytes), launch.stream, parameters,
        nullptr);
    if (result == kSuccess) return 0;
    launch.status = check_result(launch.error, *launch.driver, result, "cuLaunchKernel", launch.kernel);
    return keep_error(user_context, kDeviceRunFailed, {"the driver refused to launch ", name});
}

int attnc_abi1_copy_to_device(void* user_context, HalideBuffer* buffer, const void*) {
    return want_memory(user_context, buffer, "a copy to it");
}

int attnc_abi1_device_malloc(void* user_context, HalideBuffer* buffer, const void*) {
    return want_memory(user_context, buffer, "an allocation");
}

int attnc_abi1_device_free(void* user_context, HalideBuffer* buffer) {
    return want_memory(user_context, buffer, "freeing it");
}

void attnc_abi1_device_free_as_destructor(void* user_context, void* buffer) {
    attnc_abi1_device_free(user_context, static_cast<HalideBuffer*>(buffer));
}

}  // extern "C"
