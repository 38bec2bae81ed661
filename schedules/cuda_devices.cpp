#include "schedules/cuda_devices.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "stages/config.h"

namespace attnc {

namespace {

constexpr std::string_view kCuda = "cuda", kWithArchitecture = "cuda-sm_";
constexpr int64_t kKib = 1024, kMib = 1024 * kKib;

// Published figures: multiprocessors, f32 lanes of each, clock, bandwidths. Those of L2 are measured ones where there are any
// (V100 and T4: Jia et al. 2018 and 2019; A100, H100); the others are taken to be like the H100's.
struct Device {
    int capability;
    std::string_view name;
    int64_t multiprocessors, lanes;
    double gigahertz, memory_gigabytes, l2_bytes;
    int64_t l2_size;
};
constexpr std::array<Device, 13> kDevices = {{
    {70, "NVIDIA V100", 80, 64, 1.53, 900, 18, 6 * kMib},
    {72, "NVIDIA Jetson AGX Xavier", 8, 64, 1.38, 137, 21, kMib / 2},
    {75, "NVIDIA T4", 40, 64, 1.59, 320, 20, 4 * kMib},
    {80, "NVIDIA A100", 108, 64, 1.41, 1935, 33, 40 * kMib},
    {86, "NVIDIA A10", 72, 128, 1.70, 600, 21, 6 * kMib},
    {87, "NVIDIA Jetson AGX Orin", 16, 128, 1.30, 205, 21, 4 * kMib},
    {88, "NVIDIA Jetson AGX Orin", 16, 128, 1.30, 205, 21, 4 * kMib},
    {89, "NVIDIA L40S", 142, 128, 2.52, 864, 21, 96 * kMib},
    {90, "NVIDIA H100", 132, 128, 1.98, 3350, 21, 50 * kMib},
    {100, "NVIDIA B200", 148, 128, 1.97, 8000, 21, 126 * kMib},
    {103, "NVIDIA B300", 148, 128, 1.97, 8000, 21, 126 * kMib},
    {120, "NVIDIA RTX 5090", 170, 128, 2.41, 1792, 21, 96 * kMib},
    {121, "NVIDIA GB10", 48, 128, 2.50, 273, 21, 24 * kMib},
}};

const Device& device_of(int capability) {
    const auto* const found = std::find_if(kDevices.begin(), kDevices.end(),
                                           [&](const Device& d) { return d.capability == capability; });
    return found == kDevices.end() ? kDevices.front() : *found;
}

}  // namespace

const std::vector<int>& cuda_architectures() {
    static const std::vector<int> architectures = [] {
        std::vector<int> known;
        known.reserve(std::size(kDevices));
        for (const Device& device : kDevices) known.push_back(device.capability);
        return known;
    }();
    return architectures;
}

std::string cuda_target(int architecture) {
    if (architecture == kNoArchitecture) return std::string(kCuda);
    return std::string(kWithArchitecture) + std::to_string(architecture);
}

std::optional<int> cuda_target_architecture(std::string_view target) {
    if (target == kCuda) return kNoArchitecture;
    for (const int architecture : cuda_architectures()) {
        if (target == cuda_target(architecture)) return architecture;
    }
    return std::nullopt;
}

CudaDevice cuda_device(int capability) {
    const Device& known = device_of(capability);
    CudaDevice device = {.block_shared_bytes = 0,
                         .shared_bytes = 0,
                         .registers = 65536,
                         .threads = 0,
                         .blocks = 0,
                         .name = capability == kNoArchitecture ? "any NVIDIA device" : known.name,
                         .multiprocessors = known.multiprocessors,
                         .lanes = known.lanes,
                         .l2_bytes = known.l2_bytes,
                         .memory_bytes = known.memory_gigabytes / known.gigahertz,
                         .l2_size = known.l2_size};
    const auto limits = [&](int64_t of_block, int64_t of_all, int64_t threads, int64_t blocks) {
        device.block_shared_bytes = of_block * kKib;
        device.shared_bytes = of_all * kKib;
        device.threads = threads;
        device.blocks = blocks;
    };
    if (capability == 75) {
        limits(64, 64, 1024, 16);
    } else if (capability == 80 || capability == 87) {
        limits(163, 164, 2048, 32);
    } else if (capability >= 90 && capability < 120) {
        limits(227, 228, 2048, 32);
    } else {
        limits(99, 100, 1536, 24);
    }
    return device;
}

int cuda_capability(std::string_view target) {
    constexpr std::string_view kName = "cuda_capability_";
    if (target.find("-cuda") == std::string_view::npos) {
        throw ConfigError("target '" + std::string(target) + "' is not one of CUDA");
    }
    const size_t at = target.find(kName);
    if (at == std::string_view::npos) return 70;
    int capability = 0;
    std::from_chars(target.data() + at + kName.size(), target.data() + target.size(), capability);
    return capability;
}

}  // namespace attnc
