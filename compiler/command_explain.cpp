// attnc explain: which schedule a problem gets, and why.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
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
#include "schedules/cuda_search.h"

namespace attnc {

namespace {

struct Options {
    std::string problem;
    std::vector<std::string> targets;
    TuningOptions tuning;
    std::string kernel_cache;
};

void print_steps(const FoundRecord& found) {
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
template <class Planned>
CheckedRecord checked_record(Planned& planned, const Config& config, const Options& options) {
    const TemporaryFolder folder(system_temporary_folder());
    Progress progress("compiling kernels");
    const WorkerOptions workers = {.attnc = own_installation().command,
                                   .cache = options.kernel_cache,
                                   .folder = folder.path(),
                                   .emit = {},
                                   .progress = [&](int done, int all) { progress.show(done, all); }};
    return compile_and_compare(planned, config, versions_of(workers.attnc), workers);
}

// Where the schedule is from, and whether its kernels are still those of the record.
template <class Planned>
void print_origin(Planned& planned, const Config& config, const Options& options) {
    print_steps(planned.found);
    if (!planned.found.record) return;
    const CheckedRecord checked = checked_record(planned, config, options);
    fmt::print("  record {}{}{}\n", state_name(checked.state), checked.reason.empty() ? "" : ": ",
               checked.reason);
}

// What a block of threads takes, and what the model expects of many blocks: what the choice is by.
void print_device_kernels(const Config& config, const CudaSchedule& schedule,
                          const std::vector<int>& architectures) {
    fmt::print("  {:<20}{:>8}{:>10}{:>8}", "kernel", "threads", "registers", "shared");
    for (const int architecture : architectures)
        fmt::print("{:>16}", fmt::format("peak of sm_{}", architecture));
    fmt::print("\n");
    for (const int kernel : scheduled_kernels(config)) {
        const CudaResources taken = cuda_resources(schedule, config, kernel);
        fmt::print("  {:<20}{:>8}{:>10}{:>8}", kernel_name(kernel), taken.threads, taken.registers,
                   taken.shared_bytes);
        for (const int architecture : architectures) {
            const CudaModel model = cuda_model(schedule, config, kernel, cuda_device(architecture));
            fmt::print("{:>15.0f}%", 100 * model.expected_fraction);
        }
        fmt::print("\n");
    }
}

// The model's expectation of a call without masks.
void print_launches(const Config& config, const CudaSchedule& schedule, const Sizes& sizes,
                    int architecture) {
    const CudaDevice device = cuda_device(architecture);
    fmt::print("  at {} on sm_{} ({}), by the model:\n", to_string(sizes), architecture, device.name);
    fmt::print("    {:<18}{:>8}{:>8}{:>12}{:>8}  {}\n", "launch", "blocks", "waves", "cycles", "peak",
               "limited by");
    std::vector<int> kernels = {attention_kernel(schedule, config, sizes)};
    if (config.in_proj) kernels.insert(kernels.begin(), ATTNC_KERNEL_PROJECT_HEADS);
    if (config.out_proj) kernels.push_back(ATTNC_KERNEL_PROJECT_OUT);
    for (const int kernel : kernels) {
        for (const CudaLaunch& launch : launches_of(schedule, config, kernel, sizes)) {
            const CudaTime time = launch_time(launch, schedule, config, device);
            fmt::print("    {:<18}{:>8}{:>8}{:>12.0f}{:>7.1f}%  {}\n", kernel_name(kernel), launch.blocks,
                       time.waves, time.cycles, 100 * time.fraction, time.limit);
        }
    }
}

void explain_device(const Config& config, const std::vector<Sizes>& sizes, const DeviceTarget& target,
                    const BuildTuning& tuning, const Options& options) {
    PlannedDevice planned = plan_device(config, target, tuning, "");
    fmt::print("\n{}: {}\n", target.name, planned.schedule_origin);
    print_origin(planned, config, options);
    std::vector<int> architectures = target.architectures;
    if (architectures.empty()) architectures = {80, 90};
    print_device_kernels(config, planned.schedule, architectures);
    for (const Sizes& entry : sizes) {
        for (const int architecture : architectures)
            print_launches(config, planned.schedule, entry, architecture);
    }
    for (const auto& [name, value] : fields_of(planned.schedule)) fmt::print("  {}:{}\n", name, *value);
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
        print_origin(planned, config, options);
        print_forms(config, planned.schedule, sizes);
        print_schedule(planned.schedule);
    }
    if (targets.device) explain_device(config, sizes, *targets.device, tuning, options);
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
