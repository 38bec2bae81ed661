// What a library will hold, decided before anything is compiled: its targets, their schedules and kernels, and the hash
// that ties its files together. The compiled kernels are filled in later.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/build.h"
#include "compiler/kernel_job.h"
#include "compiler/kernel_workers.h"
#include "compiler/targets.h"
#include "schedules/cpu_params.h"
#include "schedules/cuda_params.h"
#include "stages/config.h"

namespace attnc {

struct PlannedKernel {
    int kernel = 0;  // ATTNC_KERNEL_*, on a device ATTNC_DEVICE_KERNEL_*
    KernelJob job;
    CompiledKernel compiled;
};

struct PlannedTarget {
    std::string name;
    int64_t features = 0;  // ATTNC_CPU_*
    CpuSchedule schedule;
    FoundSchedule found;          // where it is from; without steps if nothing was looked up
    std::string schedule_origin;  // the same in words: "built-in default"
    std::vector<PlannedKernel> kernels;
};

struct PlannedDevice {
    DeviceTarget target;
    CudaSchedule schedule;
    FoundCudaSchedule found;  // as above
    std::string schedule_origin;
    std::vector<PlannedKernel> kernels;
};

struct LibraryPlan {
    std::string name;
    std::string problem;                 // canonical
    Config config;                       // complete
    uint64_t hash = 0;                   // of all that decides the library's code and memory
    std::string symbol;                  // "attnc_lib_<name>_<hash>"
    std::vector<Sizes> tuned_for;        // sizes that schedules were chosen for; empty: any
    std::vector<PlannedTarget> targets;  // best first
    std::optional<PlannedDevice> device;
    CompilerVersions versions;
    std::string ptxas;  // its version, if cubins are asked for
};

// Throws ConfigError for whatever in the request can't be.
LibraryPlan plan_library(const BuildRequest& request);

// A target with the schedule that `tuning` finds or, if `overrides` isn't empty, the default with them laid over it. Checked.
PlannedTarget plan_target(const Config& config, const std::string& target, const BuildTuning& tuning,
                          const std::string& overrides);

// The same for a device.
PlannedDevice plan_device(const Config& config, const DeviceTarget& target, const BuildTuning& tuning,
                          const std::string& overrides);

// All kernels of the library, those of CPUs first.
std::vector<PlannedKernel*> kernels_of(LibraryPlan& plan);

// How one kernel of a layer is compiled under a schedule.
KernelJob kernel_job(const Config& config, const std::string& target, const CpuSchedule& schedule,
                     int kernel);
// The same of a device (ATTNC_DEVICE_KERNEL_*), for DeviceTarget::halide.
KernelJob device_job(const Config& config, const std::string& halide_target, const CudaSchedule& schedule,
                     int kernel);
// The CPU's kernel (ATTNC_KERNEL_*) whose parameters a device's kernel has; -1: it has none.
int scheduled_as(int device_kernel);

}  // namespace attnc
