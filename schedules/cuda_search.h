// The schedule that is best for some sizes on an architecture by the model, among the valid points near a start: for those
// who have no device to measure on. No Halide.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "schedules/cuda_launches.h"

namespace attnc {

// Kernels that have parameters of their own (ATTNC_KERNEL_*), of those that a layer's library has.
std::vector<int> scheduled_kernels(const Config& config);

struct CudaSearch {
    Config config;             // complete
    std::vector<Sizes> sizes;  // at least one
    int architecture = kNoArchitecture;
    std::vector<int> kernels;  // that may change; with all of them, what they share of the layout may too
    // Of a kernel's point that turned out to be of no use. The start's are of use.
    std::function<bool(const CudaSchedule& schedule, int kernel)> is_refused;
};

// Cycles for which the model has a schedule replaced, of the start's: what it promises is little more than a guess.
inline constexpr double kClearlyBetter = 0.9;
// And at none of the sizes may a call, or the part of it that is chosen, take more than this.
inline constexpr double kNowhereWorse = 1.05;

// Each part of the start stays unless another point promises clearly less time, and at no size more: project_heads and project_out with their
// panels, attention with the layout that its kernels share. Attention is judged by the kernels that calls without masks run. A layer with a cache whose sizes are
// steps of few queries is judged by a prompt of 512 too.
CudaSchedule best_cuda_schedule(const CudaSearch& search, const CudaSchedule& start);

// Geometric mean over the sizes of a call's cycles, or of a kernel's, by one schedule and by another.
double call_ratio(const CudaSearch& search, const CudaSchedule& schedule, const CudaSchedule& than);
double kernel_ratio(const CudaSearch& search, int kernel, const CudaSchedule& schedule,
                    const CudaSchedule& than);

}  // namespace attnc
