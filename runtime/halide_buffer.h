// The buffer descriptor that generated kernels take, laid out as Halide's halide_buffer_t. The runtime
// includes no Halide header; the build side checks the layouts against each other.
#pragma once

#include <cstdint>

namespace attnc {

struct HalideType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};

inline constexpr HalideType kFloat32{2, 32, 1};
inline constexpr HalideType kUint8{1, 8, 1};
inline constexpr HalideType kInt32{0, 32, 1};
inline constexpr HalideType kUint64{1, 64, 1};

struct HalideDimension {
    int32_t min;
    int32_t extent;
    int32_t stride;  // in elements
    uint32_t flags;
};

struct HalideBuffer {
    uint64_t device;
    const void* device_interface;
    uint8_t* host;
    uint64_t flags;
    HalideType type;
    int32_t dimensions;
    HalideDimension* dim;
    void* padding;
};

static_assert(sizeof(HalideType) == 4 && sizeof(HalideDimension) == 16 && sizeof(HalideBuffer) == 56);

}  // namespace attnc
