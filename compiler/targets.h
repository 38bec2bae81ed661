// Targets: instruction sets by Halide's names with the CPU features that each needs, and the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/cuda_devices.h"

namespace attnc {

// ATTNC_CPU_* bits that the target's code may use, with those that a feature implies. Throws ConfigError for a target
// that attnc has no code for: "target 'x86-64-linux-avx512_zen4' is not supported (avx512_zen4 is not one of ...)".
int64_t cpu_features(std::string_view target);

// The names of the features in `bits`: {"avx", "avx2"}.
std::vector<std::string> feature_names(int64_t bits);

// Checks the targets and puts the best first; empty: the usual CPU set. Throws ConfigError for one that is unknown or
// given twice.
std::vector<std::string> order_targets(std::vector<std::string> targets);

// The device of a library.
struct DeviceTarget {
    std::string name;                // "cuda": of layers and in the manifest
    std::string halide;              // Halide's target of its kernels
    std::vector<int> architectures;  // of cubins, in ascending order: 80 is sm_80. PTX is there always
    bool is_cuda() const { return halide.find("-cuda") != std::string::npos; }
};
inline constexpr const char* kCudaTarget = "cuda";

// What a library is for: any of both, but one at least.
struct ChosenTargets {
    std::vector<std::string> cpus;  // best first
    std::optional<DeviceTarget> device;
};

// From the names of --target: instruction sets, "cpu" for the usual set, "cuda", and "cuda-sm_80" for CUDA with a cubin.
// Tests also have "opencl", the device's twin that runs without one. None: the usual CPU set. Throws ConfigError as
// order_targets does.
ChosenTargets choose_targets(const std::vector<std::string>& names);

// Every name that layers can have: those of CPUs, then the device's.
std::vector<std::string> layer_targets(const ChosenTargets& targets);

}  // namespace attnc
