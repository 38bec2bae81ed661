// What twin libraries leave undefined: a launcher for OpenCL behind the names that generated code calls. Twins are libraries
// for a device whose kernels are OpenCL; the runtime that drives them is the one for CUDA, on a stand-in for its driver, whose
// device memory is this process's own. Kernels work there through buffers that use a host pointer, which PoCL's device, the
// CPU, takes as they are: nothing is copied, and overlapping buffers are as on a device.
#include <HalideRuntimeOpenCL.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/kernel_abi.h"

extern "C" {
int halide_acquire_cl_context(void* user_context, void** context, void** queue, bool create);
int halide_release_cl_context(void* user_context);
}

namespace {

constexpr uint64_t kReadWrite = 1 << 0, kUseHostPointer = 1 << 3;  // of cl_mem_flags

struct OpenCl {
    void* (*create_buffer)(void* context, uint64_t flags, size_t bytes, void* host, int32_t* error);
    int32_t (*release_buffer)(void* buffer);
    int32_t (*finish)(void* queue);
};

const OpenCl& open_cl() {
    static const OpenCl functions = [] {
        void* const library = ::dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_GLOBAL);
        OpenCl found = {};
        if (library == nullptr) return found;
        found.create_buffer =
            reinterpret_cast<decltype(found.create_buffer)>(::dlsym(library, "clCreateBuffer"));
        found.release_buffer =
            reinterpret_cast<decltype(found.release_buffer)>(::dlsym(library, "clReleaseMemObject"));
        found.finish = reinterpret_cast<decltype(found.finish)>(::dlsym(library, "clFinish"));
        return found;
    }();
    return functions;
}

std::mutex launching;       // one at a time: Halide's runtime has one context
char last_error[256] = "";  // that Halide's runtime reported

void keep_error(void*, const char* message) { std::snprintf(last_error, sizeof last_error, "%s", message); }

int fail(void* user_context, int code, const char* text) {
    auto* task = static_cast<attnc_task*>(user_context);
    if (task != nullptr && task->error_code == 0) {
        task->error_code = code;
        std::snprintf(task->error_text, sizeof task->error_text, "%s", text);
    }
    return code;
}

size_t span_bytes(const halide_buffer_t& buffer) {
    int64_t elements = 1;
    for (int n = 0; n < buffer.dimensions; ++n) {
        const halide_dimension_t& dim = buffer.dim[n];
        if (dim.extent == 0) return 1;
        elements += int64_t{dim.extent - 1} * dim.stride;
    }
    return static_cast<size_t>(elements) * static_cast<size_t>(buffer.type.bytes());
}

// A buffer of a launch as OpenCL has it.
class WrappedBuffer {
public:
    WrappedBuffer(void* context, const halide_buffer_t& buffer) : wrapped_(buffer) {
        wrapped_.device = 0;
        wrapped_.device_interface = nullptr;
        int32_t error = 0;
        memory_ = open_cl().create_buffer(context, kReadWrite | kUseHostPointer, span_bytes(buffer),
                                          reinterpret_cast<void*>(buffer.device), &error);
        good_ = memory_ != nullptr &&
                halide_opencl_wrap_cl_mem(nullptr, &wrapped_, reinterpret_cast<uint64_t>(memory_)) == 0;
    }
    WrappedBuffer(const WrappedBuffer&) = delete;
    WrappedBuffer& operator=(const WrappedBuffer&) = delete;
    WrappedBuffer(WrappedBuffer&&) = delete;
    WrappedBuffer& operator=(WrappedBuffer&&) = delete;
    ~WrappedBuffer() {
        if (good_) halide_opencl_detach_cl_mem(nullptr, &wrapped_);
        if (memory_ != nullptr) open_cl().release_buffer(memory_);
    }

    bool good() const { return good_; }
    halide_buffer_t* buffer() { return &wrapped_; }

private:
    halide_buffer_t wrapped_;
    void* memory_ = nullptr;
    bool good_ = false;
};

constexpr int kInterface = 0;  // passed on without looking inside

}  // namespace

extern "C" {

const void* attnc_abi1_opencl_device_interface() { return &kInterface; }

int attnc_abi1_opencl_initialize_kernels(void* user_context, void** state, const char* source, int size) {
    const std::lock_guard<std::mutex> lock(launching);
    halide_set_error_handler(keep_error);
    const int code = halide_opencl_initialize_kernels(nullptr, state, source, size);
    return code == 0 ? 0 : fail(user_context, code, last_error);
}

void attnc_abi1_opencl_finalize_kernels(void*, void* state) {
    halide_opencl_finalize_kernels(nullptr, state);
}

int attnc_abi1_opencl_run(void* user_context, void* state, const char* name, int grid_x, int grid_y,
                          int grid_z, int block_x, int block_y, int block_z, int shared_bytes, size_t* sizes,
                          void** arguments, int8_t* is_buffer) {
    const std::lock_guard<std::mutex> lock(launching);
    void *context = nullptr, *queue = nullptr;
    if (const int code = halide_acquire_cl_context(nullptr, &context, &queue, true); code != 0)
        return fail(user_context, code, last_error);
    halide_release_cl_context(nullptr);  // who has acquired it holds a lock that halide_opencl_run takes
    size_t count = 0;
    while (sizes[count] != 0) ++count;
    std::vector<std::unique_ptr<WrappedBuffer>> buffers;
    std::vector<void*> given(arguments, arguments + count + 1);
    bool good = true;
    for (size_t n = 0; n < count; ++n) {
        if (is_buffer[n] == 0) continue;
        buffers.push_back(
            std::make_unique<WrappedBuffer>(context, *static_cast<halide_buffer_t*>(arguments[n])));
        good = good && buffers.back()->good();
        given[n] = buffers.back()->buffer();
    }
    int code = halide_error_code_device_wrap_native_failed;
    if (good) {
        code = halide_opencl_run(nullptr, state, name, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                 shared_bytes, sizes, given.data(), is_buffer);
        if (open_cl().finish(queue) != 0) code = halide_error_code_device_sync_failed;
    }
    buffers.clear();
    return code == 0 ? 0 : fail(user_context, code, last_error);
}

}  // extern "C"
