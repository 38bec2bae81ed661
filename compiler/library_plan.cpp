#include "compiler/library_plan.h"

#include <fmt/format.h>

#include "compiler/hash.h"
#include "compiler/targets.h"
#include "runtime/kernel_abi.h"
#include "schedules/cuda_model.h"
#include "stages/device_kernels.h"

namespace attnc {

namespace {

FoundSchedule find_schedule(const Config& config, const std::string& target, const BuildTuning& tuning,
                            const std::string& overrides) {
    if (overrides.empty() && tuning.looked_up) {
        return look_up({config, target, tuning.sizes, tuning.machine}, tuning.sources);
    }
    FoundSchedule found;
    found.schedule = parse_schedule(overrides, default_schedule(config, target));
    return found;
}

// The twin for tests has no records.
FoundCudaSchedule find_device_schedule(const Config& config, const DeviceTarget& target,
                                       const BuildTuning& tuning, const std::string& overrides) {
    if (overrides.empty() && tuning.looked_up && target.is_cuda())
        return look_up_device({config, target.architectures, tuning.sizes}, tuning.sources);
    return {{}, parse_cuda_schedule(overrides, default_cuda_schedule(config))};
}

std::string describe_origin(const std::string& option, const std::string& overrides) {
    return overrides.empty() ? "built-in default"
                             : fmt::format("built-in default, then {} {}", option, overrides);
}

std::string describe_origin(const FoundRecord& found, const std::string& option,
                            const std::string& overrides) {
    if (!found.record) return describe_origin(option, overrides);
    return fmt::format("record of {}: {}", found.file, describe_record(*found.record));
}

}  // namespace

KernelJob kernel_job(const Config& config, const std::string& target, const CpuSchedule& schedule,
                     int kernel) {
    return {.kernel = kernel_name(kernel),
            .config = kernel_config(config, kernel),
            .schedule = to_string(schedule, kernel),
            .target = target,
            .symbol = kernel_symbol(kernel, target)};
}

int scheduled_as(int kernel) {
    switch (kernel) {
        case ATTNC_DEVICE_KERNEL_PROJECT_HEADS:
            return ATTNC_KERNEL_PROJECT_HEADS;
        case ATTNC_DEVICE_KERNEL_PROJECT_OUT:
            return ATTNC_KERNEL_PROJECT_OUT;
        case ATTNC_DEVICE_KERNEL_ATTEND:
            return ATTNC_KERNEL_ATTEND;
        case ATTNC_DEVICE_KERNEL_ATTEND_MASKED:
        case ATTNC_DEVICE_KERNEL_ATTEND_GUARDED:
            return ATTNC_KERNEL_ATTEND_MASKED;
        case ATTNC_DEVICE_KERNEL_ATTEND_DECODE:
            return ATTNC_KERNEL_ATTEND_DECODE;
        case ATTNC_DEVICE_KERNEL_ATTEND_PROBS:
        case ATTNC_DEVICE_KERNEL_ATTEND_SCORES:
            return ATTNC_KERNEL_ATTEND_PROBS;
        default:
            return -1;
    }
}

KernelJob device_job(const Config& config, const std::string& halide_target, const CudaSchedule& schedule,
                     int kernel) {
    KernelJob job = {.kernel = device_kernel_name(kernel),
                     .config = device_kernel_config(config, kernel),
                     .schedule = "",
                     .target = halide_target,
                     .symbol = device_kernel_symbol(kernel)};
    const int scheduled = scheduled_as(kernel);
    if (scheduled < 0) return job;
    job.schedule = to_string(of_kernel(schedule, config, scheduled));
    job.registers = cuda_resources(schedule, config, scheduled).registers;
    return job;
}

PlannedTarget plan_target(const Config& config, const std::string& target, const BuildTuning& tuning,
                          const std::string& overrides) {
    PlannedTarget planned;
    planned.name = target;
    planned.features = cpu_features(target);
    planned.found = find_schedule(config, target, tuning, overrides);
    planned.schedule = planned.found.schedule;
    planned.schedule_origin = describe_origin(planned.found, "--schedule", overrides);
    check_schedule(planned.schedule, config, target);
    for (int kernel : kernels_of(config)) {
        if (!has_kernel(planned.schedule, kernel)) continue;
        PlannedKernel entry;
        entry.kernel = kernel;
        entry.job = kernel_job(config, target, planned.schedule, kernel);
        planned.kernels.push_back(std::move(entry));
    }
    return planned;
}

PlannedDevice plan_device(const Config& config, const DeviceTarget& target, const BuildTuning& tuning,
                          const std::string& overrides) {
    PlannedDevice planned;
    planned.target = target;
    planned.found = find_device_schedule(config, target, tuning, overrides);
    planned.schedule = planned.found.schedule;
    planned.schedule_origin = describe_origin(planned.found, "--cuda-schedule", overrides);
    // The twin for tests has no device that limits it.
    if (target.is_cuda()) check_cuda_schedule(planned.schedule, config, target.halide);
    for (const int kernel : device_kernels_of(config)) {
        PlannedKernel entry;
        entry.kernel = kernel;
        entry.job = device_job(config, target.halide, planned.schedule, kernel);
        planned.kernels.push_back(std::move(entry));
    }
    return planned;
}

std::vector<PlannedKernel*> kernels_of(LibraryPlan& plan) {
    std::vector<PlannedKernel*> kernels;
    for (PlannedTarget& target : plan.targets) {
        for (PlannedKernel& kernel : target.kernels) kernels.push_back(&kernel);
    }
    if (plan.device) {
        for (PlannedKernel& kernel : plan.device->kernels) kernels.push_back(&kernel);
    }
    return kernels;
}

LibraryPlan plan_library(const BuildRequest& request) {
    LibraryPlan plan;
    plan.config = complete(request.config);
    plan.problem = to_string(plan.config);
    plan.name = request.name.empty() ? default_library_name(plan.config) : request.name;
    check_library_name(plan.name);
    plan.tuned_for = request.tuning.sizes;

    // What schedules are, not where they are from: equal code has an equal hash.
    std::string identity = fmt::format("abi {}\n{}\n{}\n", ATTNC_ABI_VERSION, plan.name, plan.problem);
    if (request.checked) identity += "checked\n";
    const ChosenTargets targets = choose_targets(request.targets);
    if (!targets.device && !request.cuda_schedule.empty())
        throw ConfigError("--cuda-schedule is given, but no target cuda");
    if (targets.cpus.empty() && !request.schedule.empty())
        throw ConfigError("--schedule is given, but no target that is a CPU; a device has --cuda-schedule");
    for (const std::string& target : targets.cpus) {
        plan.targets.push_back(plan_target(plan.config, target, request.tuning, request.schedule));
        for (PlannedKernel& kernel : plan.targets.back().kernels) kernel.job.checked = request.checked;
        identity += fmt::format("{} {}\n", target, to_string(plan.targets.back().schedule));
    }
    if (targets.device) {
        plan.device = plan_device(plan.config, *targets.device, request.tuning, request.cuda_schedule);
        identity += fmt::format("{} {}\n", targets.device->halide, to_string(plan.device->schedule));
        for (const int architecture : targets.device->architectures)
            identity += fmt::format("sm_{}\n", architecture);
    }
    plan.hash = hash64(identity);
    plan.symbol = fmt::format("attnc_lib_{}_{:016x}", plan.name, plan.hash);
    plan.versions = versions_of(request.installation.command);
    return plan;
}

}  // namespace attnc
