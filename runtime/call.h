// One call of a generated kernel: buffers, arguments by their ids, and what to make of a refusal.
#pragma once

#include <cstdint>

#include "runtime/halide_buffer.h"
#include "runtime/kernel_abi.h"

namespace attnc {

struct Dimension {
    int64_t extent;
    int64_t stride;  // in elements; of no meaning where the extent is 1
};

// Memory of a device.
struct DeviceMemory {
    const void* address;
    const void* interface;  // what generated code calls the device by
};

// A buffer of `rank` dimensions, innermost first, for the time of a call.
template <int rank>
class Buffer {
public:
    Buffer(const void* host, HalideType type, const Dimension (&dimensions)[rank]) : buffer_{} {
        buffer_.host = static_cast<uint8_t*>(const_cast<void*>(host));
        describe(type, dimensions);
    }
    Buffer(const DeviceMemory& memory, HalideType type, const Dimension (&dimensions)[rank]) : buffer_{} {
        buffer_.device = reinterpret_cast<uint64_t>(memory.address);
        buffer_.device_interface = memory.interface;
        describe(type, dimensions);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    void* argument() { return &buffer_; }

private:
    void describe(HalideType type, const Dimension (&dimensions)[rank]) {
        buffer_.type = type;
        buffer_.dimensions = rank;
        buffer_.dim = dim_;
        for (int i = 0; i < rank; ++i) dim_[i] = make(dimensions[i]);
    }
    // A single row may come with a stride that doesn't fit 32 bits; 16 stands for it.
    static HalideDimension make(Dimension d) {
        const bool fits = d.stride >= 0 && d.stride <= INT32_MAX / 4;
        return {0, static_cast<int32_t>(d.extent), static_cast<int32_t>(fits ? d.stride : 16), 0};
    }
    HalideBuffer buffer_;
    HalideDimension dim_[rank];
};

// Arguments of one call by their ids, of which there are `count`. What they point to must live as long.
template <int count>
class CallArguments {
public:
    template <int rank>
    void set(int argument, Buffer<rank>& buffer) {
        slots_[argument] = buffer.argument();
    }
    void set(int argument, const float& scalar) { slots_[argument] = const_cast<float*>(&scalar); }
    void set(int argument, const double& scalar) { slots_[argument] = const_cast<double*>(&scalar); }
    void set(int argument, const uint64_t& scalar) { slots_[argument] = const_cast<uint64_t*>(&scalar); }
    void set(int argument, const int32_t& scalar) { slots_[argument] = const_cast<int32_t*>(&scalar); }

    // False when the kernel refused; the task then has a code and a sentence.
    template <typename Kernel>
    bool run(const Kernel& kernel, attnc_task& task) {
        static_assert(ATTNC_ARGUMENT_USER_CONTEXT == 0 && ATTNC_DEVICE_ARGUMENT_USER_CONTEXT == 0);
        void* context = &task;
        slots_[0] = &context;
        void* argv[count];
        for (int64_t i = 0; i < kernel.argument_count; ++i) argv[i] = slots_[kernel.arguments[i]];
        const int32_t code = kernel.run(argv);
        slots_[0] = nullptr;
        if (code != 0 && task.error_code == 0) task.error_code = code;
        return code == 0 && task.error_code == 0;
    }

private:
    void* slots_[count] = {};
};

using KernelCall = CallArguments<ATTNC_ARGUMENT_COUNT>;

}  // namespace attnc
