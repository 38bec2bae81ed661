#include "compiler/targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "runtime/kernel_abi.h"
#include "schedules/cpu_params.h"
#include "stages/config.h"

namespace attnc {

namespace {

struct Feature {
    std::string_view name;  // in Halide's target names
    int64_t bit;
    int64_t implied;  // what Halide also uses when it is given
};

constexpr int64_t kSse41 = ATTNC_CPU_SSE41;
constexpr int64_t kAvx = ATTNC_CPU_AVX | kSse41;
constexpr int64_t kAvx2 = ATTNC_CPU_AVX2 | kAvx;
constexpr std::array<Feature, 6> kFeatures = {{
    {"sse41", ATTNC_CPU_SSE41, 0},
    {"avx", ATTNC_CPU_AVX, kSse41},
    {"f16c", ATTNC_CPU_F16C, kAvx},
    {"fma", ATTNC_CPU_FMA, kAvx},
    {"avx2", ATTNC_CPU_AVX2, kAvx},
    {"avx512_skylake", ATTNC_CPU_AVX512_SKYLAKE, kAvx2 | ATTNC_CPU_F16C | ATTNC_CPU_FMA},
}};

constexpr std::string_view kBaseline = "x86-64-linux";

constexpr std::string_view kCpu = "cpu", kCudaArchitecture = "cuda-sm_", kTwin = "opencl";
// PTX for this one runs on all that are newer.
constexpr const char* kCudaHalide = "x86-64-linux-cuda-cuda_capability_70";
constexpr const char* kTwinHalide = "x86-64-linux-opencl-cl_doubles";
bool is_cuda_name(std::string_view name) {
    return name == kCudaTarget || name.starts_with(kCudaArchitecture);
}

// Of "cuda-sm_80".
int architecture_of(std::string_view name) {
    const std::string_view digits = name.substr(kCudaArchitecture.size());
    for (const int architecture : cuda_architectures()) {
        if (digits == std::to_string(architecture)) return architecture;
    }
    throw ConfigError(fmt::format("target '{}' is not supported: sm_{} is not one of sm_{}", name, digits,
                                  fmt::join(cuda_architectures(), ", sm_")));
}

void add_device(ChosenTargets& chosen, const std::string& name) {
    DeviceTarget device = {kCudaTarget, name == kTwin ? kTwinHalide : kCudaHalide, {}};
    if (chosen.device && chosen.device->halide != device.halide)
        throw ConfigError(fmt::format("target '{}' is given beside another device", name));
    if (!chosen.device) chosen.device = device;
    if (name.starts_with(kCudaArchitecture)) chosen.device->architectures.push_back(architecture_of(name));
}

}  // namespace

int64_t cpu_features(std::string_view target) {
    std::string_view rest = target;
    if (!rest.starts_with(kBaseline)) {
        throw ConfigError(
            fmt::format("target '{}' is not supported: it does not start with {}", target, kBaseline));
    }
    rest.remove_prefix(kBaseline.size());
    int64_t bits = 0;
    while (!rest.empty()) {
        size_t end = std::min(rest.find('-', 1), rest.size());
        std::string_view name = rest.substr(0, end);
        rest.remove_prefix(end);
        const Feature* found = name.starts_with('-')
                                   ? std::find_if(kFeatures.begin(), kFeatures.end(),
                                                  [&](const Feature& f) { return f.name == name.substr(1); })
                                   : kFeatures.end();
        if (found == kFeatures.end()) {
            std::vector<std::string_view> known;
            known.reserve(kFeatures.size());
            for (const Feature& feature : kFeatures) known.push_back(feature.name);
            throw ConfigError(fmt::format("target '{}' is not supported: '{}' is not one of {}", target,
                                          name.starts_with('-') ? name.substr(1) : name,
                                          fmt::join(known, ", ")));
        }
        bits |= found->bit | found->implied;
    }
    return bits;
}

std::vector<std::string> feature_names(int64_t bits) {
    std::vector<std::string> names;
    for (const Feature& feature : kFeatures) {
        if (bits & feature.bit) names.emplace_back(feature.name);
    }
    return names;
}

std::vector<std::string> order_targets(std::vector<std::string> targets) {
    if (targets.empty()) targets.assign(std::begin(kCpuTargets), std::end(kCpuTargets));
    for (const std::string& target : targets) {
        cpu_features(target);
        if (std::count(targets.begin(), targets.end(), target) > 1) {
            throw ConfigError(fmt::format("target '{}' is given twice", target));
        }
    }
    std::stable_sort(targets.begin(), targets.end(), [](const std::string& a, const std::string& b) {
        return cpu_features(a) > cpu_features(b);  // a better instruction set has a higher bit
    });
    return targets;
}

ChosenTargets choose_targets(const std::vector<std::string>& names) {
    ChosenTargets chosen;
    for (const std::string& name : names) {
        if (std::count(names.begin(), names.end(), name) > 1)
            throw ConfigError(fmt::format("target '{}' is given twice", name));
        if (name == kCpu) {
            chosen.cpus.insert(chosen.cpus.end(), std::begin(kCpuTargets), std::end(kCpuTargets));
        } else if (is_cuda_name(name) || name == kTwin) {
            add_device(chosen, name);
        } else if (name.starts_with(kBaseline)) {
            chosen.cpus.push_back(name);
        } else {
            throw ConfigError(
                fmt::format("target '{}' is not supported: it does not start with {}, and is neither cpu nor "
                            "cuda nor cuda-sm_80",
                            name, kBaseline));
        }
    }
    if (!chosen.cpus.empty() || !chosen.device) chosen.cpus = order_targets(chosen.cpus);
    if (chosen.device) std::sort(chosen.device->architectures.begin(), chosen.device->architectures.end());
    return chosen;
}

std::vector<std::string> layer_targets(const ChosenTargets& targets) {
    std::vector<std::string> names = targets.cpus;
    if (targets.device) names.push_back(targets.device->name);
    return names;
}

}  // namespace attnc
