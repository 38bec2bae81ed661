// attnc explain: which schedule a problem gets, and why.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/command.h"
#include "compiler/files.h"
#include "compiler/kernel_forms.h"
#include "compiler/library_plan.h"
#include "compiler/progress.h"
#include "compiler/record_check.h"
#include "compiler/targets.h"
#include "compiler/tuning_options.h"
#include "runtime/kernel_abi.h"
#include "schedules/cuda_model.h"

namespace attnc {

namespace {

struct Options {
    std::string problem;
    std::vector<std::string> targets;
    TuningOptions tuning;
    std::string kernel_cache;
};

void print_steps(const FoundSchedule& found) {
    for (const LookupStep& step : found.steps) {
        fmt::print("  {} {}: {}\n", step.taken ? "->" : "  ", step.asked, step.outcome);
    }
}

void print_forms(const Config& config, const CpuSchedule& schedule, const std::vector<Sizes>& sizes) {
    for (const KernelForm& form : kernel_forms(config, schedule)) {
        fmt::print("  {:<20}{}\n", form.kernel, form.takes);
    }
    for (const Sizes& entry : sizes) {
        std::string kernels;
        for (const std::string& kernel : attention_at(config, schedule, entry)) kernels += " " + kernel;
        fmt::print("  at {}:{}\n", to_string(entry), kernels);
    }
}

void print_schedule(const CpuSchedule& schedule) {
    for (const ScheduleField& field : fields_of(schedule)) fmt::print("  {}:{}\n", field.name, field.value);
}

// Whether its kernels are those that were measured: compiled for this answer alone.
CheckedRecord checked_record(PlannedTarget& planned, const Config& config, const Options& options) {
    const TemporaryFolder folder(system_temporary_folder());
    Progress progress("compiling kernels");
    const WorkerOptions workers = {.attnc = own_installation().command,
                                   .cache = options.kernel_cache,
                                   .folder = folder.path(),
                                   .emit = {},
                                   .progress = [&](int done, int all) { progress.show(done, all); }};
    return compile_and_compare(planned, config, versions_of(workers.attnc), workers);
}

// What a block of threads takes, and how fast the model takes it to be on sm_80: what the choice is by.
void explain_device(const Config& config, const DeviceTarget& target) {
    const PlannedDevice planned = plan_device(config, target, "");
    fmt::print("\n{}: {}, by the model of what a kernel takes and does; there are no records for devices\n",
               target.name, planned.schedule_origin);
    std::vector<int> architectures = target.architectures;
    if (architectures.empty()) architectures = {80, 90};
    fmt::print("  {:<20}{:>8}{:>10}{:>8}", "kernel", "threads", "registers", "shared");
    for (const int architecture : architectures)
        fmt::print("{:>16}", fmt::format("peak of sm_{}", architecture));
    fmt::print("\n");
    for (const int kernel :
         {ATTNC_KERNEL_PROJECT_HEADS, ATTNC_KERNEL_PROJECT_OUT, ATTNC_KERNEL_ATTEND,
          ATTNC_KERNEL_ATTEND_MASKED, ATTNC_KERNEL_ATTEND_DECODE, ATTNC_KERNEL_ATTEND_PROBS}) {
        const CudaResources taken = cuda_resources(planned.schedule, config, kernel);
        fmt::print("  {:<20}{:>8}{:>10}{:>8}", kernel_name(kernel), taken.threads, taken.registers,
                   taken.shared_bytes);
        for (const int architecture : architectures) {
            const CudaModel model = cuda_model(planned.schedule, config, kernel, cuda_device(architecture));
            fmt::print("{:>15.0f}%", 100 * model.expected_fraction);
        }
        fmt::print("\n");
    }
    std::istringstream fields(to_string(planned.schedule));
    for (std::string field; std::getline(fields, field, ',');) fmt::print("  {}\n", field);
}

void explain(const Options& options) {
    const bool has_sizes = options.problem.find(':') != std::string::npos;
    const Config config = has_sizes ? parse_problem(options.problem).config : parse_config(options.problem);
    const std::vector<Sizes> sizes =
        has_sizes ? std::vector{parse_problem(options.problem).sizes} : sizes_or_grid("", config);
    const BuildTuning tuning = chosen_tuning(options.tuning, sizes);
    fmt::print("{}{}{}\n", to_string(config), sizes.empty() ? "" : " for ", describe_sizes(sizes));
    const ChosenTargets targets = choose_targets(options.targets);
    for (const std::string& target : targets.cpus) {
        PlannedTarget planned = plan_target(config, target, tuning, "");
        fmt::print("\n{}: {}\n", target, planned.schedule_origin);
        print_steps(planned.found);
        if (planned.found.record) {
            const CheckedRecord checked = checked_record(planned, config, options);
            fmt::print("  record {}{}{}\n", state_name(checked.state), checked.reason.empty() ? "" : ": ",
                       checked.reason);
        }
        print_forms(config, planned.schedule, sizes);
        print_schedule(planned.schedule);
    }
    if (targets.device) explain_device(config, *targets.device);
}

}  // namespace

void add_explain_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("explain", "Say which schedule a problem gets, and why");
    auto options = std::make_shared<Options>();
    command
        ->add_option("problem", options->problem, "Problem string: d512_h8_f32 or d512_h8_f32:b32_q50_kv50")
        ->required();
    command
        ->add_option("--target", options->targets,
                     "Instruction sets and cuda, separated by commas; default: cpu")
        ->delimiter(',')
        ->allow_extra_args(false);
    add_tuning_options(*command, options->tuning);
    command
        ->add_option(
            "--kernel-cache", options->kernel_cache,
            "Folder that keeps compiled kernels: those of a record are compared with what was measured")
        ->envname("ATTNC_KERNEL_CACHE");
    command->footer("Example:\n  attnc explain d512_h8_f32 --target x86-64-linux-avx512_skylake");
    command->callback([options] { explain(*options); });
}

}  // namespace attnc
