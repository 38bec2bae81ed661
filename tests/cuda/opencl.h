// The OpenCL device that the twins of GPU kernels run on.
#pragma once

#include <HalideBuffer.h>

#include <string>
#include <vector>

namespace attnc::test {

// Why no twin can run here; empty: one can.
const std::string& missing_opencl();

#define ATTNC_SKIP_WITHOUT_OPENCL()                                                                \
    do {                                                                                           \
        if (!attnc::test::missing_opencl().empty()) GTEST_SKIP() << attnc::test::missing_opencl(); \
    } while (false)

// A dense buffer of these extents, innermost first, all elements `value`.
template <typename T, int N>
Halide::Runtime::Buffer<T, N> filled(const std::vector<int>& extents, T value) {
    Halide::Runtime::Buffer<T, N> buffer(extents);
    buffer.fill(value);
    return buffer;
}

// The same with pseudo-random numbers of [-amplitude, amplitude).
Halide::Runtime::Buffer<float> random_floats(const std::vector<int>& extents, uint64_t seed, float amplitude);

// Whether both have the same bits.
bool same_bits(const Halide::Runtime::Buffer<float>& a, const Halide::Runtime::Buffer<float>& b);

}  // namespace attnc::test
