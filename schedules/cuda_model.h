// What a CUDA kernel takes of a device, by formula from its parameters, and how fast it can be by that: the rules of what
// is valid, the defaults and docs/performance.md all use the same numbers.
#pragma once

#include <cstdint>

#include "schedules/cuda_devices.h"
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

// Counts of one thread for one step of the inner loop: of a projection `depth` inner features, of attention a block of keys.
struct CudaModel {
    double multiply_adds, instructions;
    int64_t warps;  // on a multiprocessor at a time
    double
        expected_fraction;  // of the device's f32 peak: share of multiply-adds, less what few warps leave unhidden
};
CudaModel cuda_model(const CudaSchedule& schedule, const Config& config, int kernel,
                     const CudaDevice& device);

// A multiprocessor has four schedulers, each of which issues an instruction of a warp in a cycle.
inline constexpr double kSchedulers = 4;
// So many warps on a multiprocessor hide half of the cycles in which one waits for loads and barriers. A guess, to be
// replaced by measurements.
inline constexpr double kHalfHiddenWarps = 4;
// Cycles for which a warp's multiply-add takes the lanes of its scheduler: 1 where it has 32 of them, 2 where it has 16.
double multiply_add_cycles(const CudaDevice& device);
// Cycles that one warp's share of a step takes its scheduler. Of two cycles of a multiply-add the second is taken to have room
// for another instruction half of the time.
double issue_cycles(const CudaModel& model, const CudaDevice& device);

}  // namespace attnc
