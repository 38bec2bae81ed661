#include "compiler/library_plan.h"

#include <fmt/format.h>

#include "compiler/hash.h"
#include "compiler/targets.h"
#include "runtime/kernel_abi.h"

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

std::string describe_origin(const FoundSchedule& found, const std::string& overrides) {
    if (!overrides.empty()) return fmt::format("built-in default, then --schedule {}", overrides);
    if (!found.record) return "built-in default";
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

PlannedTarget plan_target(const Config& config, const std::string& target, const BuildTuning& tuning,
                          const std::string& overrides) {
    PlannedTarget planned;
    planned.name = target;
    planned.features = cpu_features(target);
    planned.found = find_schedule(config, target, tuning, overrides);
    planned.schedule = planned.found.schedule;
    planned.schedule_origin = describe_origin(planned.found, overrides);
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

LibraryPlan plan_library(const BuildRequest& request) {
    LibraryPlan plan;
    plan.config = complete(request.config);
    plan.problem = to_string(plan.config);
    plan.name = request.name.empty() ? default_library_name(plan.config) : request.name;
    check_library_name(plan.name);
    plan.tuned_for = request.tuning.sizes;

    // What schedules are, not where they are from: equal code has an equal hash.
    std::string identity = fmt::format("abi {}\n{}\n{}\n", ATTNC_ABI_VERSION, plan.name, plan.problem);
    for (const std::string& target : order_targets(request.targets)) {
        plan.targets.push_back(plan_target(plan.config, target, request.tuning, request.schedule));
        identity += fmt::format("{} {}\n", target, to_string(plan.targets.back().schedule));
    }
    plan.hash = hash64(identity);
    plan.symbol = fmt::format("attnc_lib_{}_{:016x}", plan.name, plan.hash);
    plan.versions = versions_of(request.installation.command);
    return plan;
}

}  // namespace attnc
