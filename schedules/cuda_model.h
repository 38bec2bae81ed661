// What a CUDA kernel takes of a device, by formula from its parameters, and how fast it can be by that: the rules of what
// is valid, the defaults and docs/performance.md all use the same numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schedules/cuda_params.h"

namespace attnc {

// Of a block of threads.
struct CudaResources {
    int64_t threads;
    int64_t registers;     // of a thread, at most: what ptxas may be held to
    int64_t shared_bytes;  // exactly
};

// kernel: ATTNC_KERNEL_*, one that has parameters.
CudaResources cuda_resources(const CudaSchedule& schedule, const Config& config, int kernel);

// Limits of a block on an architecture, and what a multiprocessor has for all blocks on it.
struct CudaDevice {
    int64_t block_shared_bytes;  // of one block, opted in
    int64_t shared_bytes, registers, threads, blocks;
};
// By compute capability: 80 is sm_80. For code that is not made for one (70), what all from 80 on have: sm_75 has 64 KiB
// of shared memory, which heads of common sizes don't need.
CudaDevice cuda_device(int capability);
// The capability that a Halide target names, 70 if none. Throws ConfigError for a target that isn't one of CUDA.
int cuda_capability(std::string_view target);

// Counts of one thread for one step of the inner loop: of a projection `depth` inner features, of attention a block of keys.
struct CudaModel {
    double multiply_adds, instructions;
    int64_t warps;  // on a multiprocessor at a time
    double
        expected_fraction;  // of the device's f32 peak: share of multiply-adds, less what few warps leave unhidden
};
CudaModel cuda_model(const CudaSchedule& schedule, const Config& config, int kernel,
                     const CudaDevice& device);

}  // namespace attnc
