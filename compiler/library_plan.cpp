#include "compiler/library_plan.h"

#include <fmt/format.h>

#include "compiler/hash.h"
#include "compiler/targets.h"
#include "runtime/kernel_abi.h"

namespace attnc {

PlannedTarget plan_target(const Config& config, const std::string& target, const std::string& overrides) {
    PlannedTarget planned;
    planned.name = target;
    planned.features = cpu_features(target);
    planned.schedule = default_schedule(config, target);
    planned.schedule_origin = "built-in default";
    if (!overrides.empty()) {
        planned.schedule = parse_schedule(overrides, planned.schedule);
        planned.schedule_origin = fmt::format("built-in default, then --schedule {}", overrides);
    }
    check_schedule(planned.schedule, config, target);
    for (int kernel : kernels_of(config)) {
        if (!has_kernel(planned.schedule, kernel)) continue;
        PlannedKernel entry;
        entry.kernel = kernel;
        entry.job = {.kernel = kernel_name(kernel),
                     .config = kernel_config(config, kernel),
                     .schedule = to_string(planned.schedule, kernel),
                     .target = target,
                     .symbol = kernel_symbol(kernel, target)};
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

    std::string identity = fmt::format("abi {}\n{}\n{}\n", ATTNC_ABI_VERSION, plan.name, plan.problem);
    for (const std::string& target : order_targets(request.targets)) {
        plan.targets.push_back(plan_target(plan.config, target, request.schedule));
        identity += fmt::format("{} {}\n", target, to_string(plan.targets.back().schedule));
    }
    plan.hash = hash64(identity);
    plan.symbol = fmt::format("attnc_lib_{}_{:016x}", plan.name, plan.hash);
    plan.versions = versions_of(request.installation.command);
    return plan;
}

}  // namespace attnc
