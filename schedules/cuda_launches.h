// What a call of some sizes launches on a device, and how long it takes by the model: blocks over multiprocessors, of which
// few blocks leave most idle. docs/performance.md has the formulas. No Halide.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedules/cuda_model.h"

namespace attnc {

// One launch, counted by sizes and schedule alone.
struct CudaLaunch {
    int kernel = 0;            // ATTNC_KERNEL_*, one that has parameters
    int64_t blocks = 0;        // of threads
    double steps = 0;          // cuda_model's, of a block: the mean
    double most_steps = 0;     // and of the longest one
    double multiply_adds = 0;  // that the call needs: without rows, columns and keys in vain
    double block_bytes = 0;    // that a block reads of L2
    double memory_bytes = 0;   // that are read or written at least once
    double joins = 0;  // results of splits that another launch joins for each of its elements; 0: none does
};

// Of a kernel at these sizes, whether or not a call of them runs it; of projections several.
std::vector<CudaLaunch> launches_of(const CudaSchedule& schedule, const Config& config, int kernel,
                                    const Sizes& sizes);

// Whether attend_decode makes the attention of such a call.
bool decodes(const CudaSchedule& schedule, const Config& config, const Sizes& sizes);
// The kernel that makes the attention of such a call without masks.
int attention_kernel(const CudaSchedule& schedule, const Config& config, const Sizes& sizes);

// How a launch fills a device.
struct CudaTime {
    double cycles = 0;
    int64_t waves = 0;    // generations of blocks, one after another, on the multiprocessor that has most
    double fraction = 0;  // of the device's f32 peak that the call's own multiply-adds reach
    std::string_view
        limit;  // what takes the time: one of "idle multiprocessors", "few warps", "instructions", "L2", "memory", "start"
};
CudaTime launch_time(const CudaLaunch& launch, const CudaSchedule& schedule, const Config& config,
                     const CudaDevice& device);

// Of all launches of a kernel.
double kernel_cycles(const CudaSchedule& schedule, const Config& config, int kernel, const Sizes& sizes,
                     const CudaDevice& device);
// Of projections and attention of a call without masks.
double call_cycles(const CudaSchedule& schedule, const Config& config, const Sizes& sizes,
                   const CudaDevice& device);

}  // namespace attnc
