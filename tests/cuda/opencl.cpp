#include "tests/cuda/opencl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "support/random.h"

namespace attnc::test {

namespace {

// PoCL's devices are CPUs, and Halide's runtime would take a GPU first.
std::string find_opencl() {
    ::setenv("HL_OCL_DEVICE_TYPE", "cpu", 1);
    void* const library = ::dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) return "libOpenCL.so.1 is missing: apt-get install pocl-opencl-icd";
    using GetPlatforms = int (*)(unsigned, void**, unsigned*);
    const auto get_platforms = reinterpret_cast<GetPlatforms>(::dlsym(library, "clGetPlatformIDs"));
    unsigned count = 0;
    if (get_platforms == nullptr || get_platforms(0, nullptr, &count) != 0 || count == 0) {
        return "OpenCL has no platform: apt-get install pocl-opencl-icd";
    }
    return "";
}

}  // namespace

const std::string& missing_opencl() {
    static const std::string reason = find_opencl();
    return reason;
}

Halide::Runtime::Buffer<float> random_floats(const std::vector<int>& extents, uint64_t seed,
                                             float amplitude) {
    Halide::Runtime::Buffer<float> buffer(extents);
    for (size_t n = 0; n < buffer.number_of_elements(); ++n) {
        buffer.data()[n] = generated_value(seed, n, amplitude);
    }
    return buffer;
}

bool same_bits(const Halide::Runtime::Buffer<float>& a, const Halide::Runtime::Buffer<float>& b) {
    return a.size_in_bytes() == b.size_in_bytes() && std::memcmp(a.data(), b.data(), a.size_in_bytes()) == 0;
}

}  // namespace attnc::test
