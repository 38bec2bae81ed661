// attnc list: what there is to choose from.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <memory>

#include "compiler/command.h"
#include "compiler/library_plan.h"
#include "compiler/targets.h"
#include "runtime/kernel_abi.h"
#include "schedules/cpu_params.h"
#include "schedules/cuda_params.h"
#include "stages/device_kernels.h"

namespace attnc {

namespace {

void list_targets() {
    for (const char* target : kCpuTargets) {
        const std::vector<std::string> names = feature_names(cpu_features(target));
        fmt::print("{:<28}{}\n", target,
                   names.empty() ? "any x86-64 CPU" : fmt::format("{}", fmt::join(names, " ")));
    }
    fmt::print("{:<28}{}\n", "cpu", "all of these; what a library has if no target is named");
    fmt::print("{:<28}{}\n", kCudaTarget, "NVIDIA devices of compute capability 7.0 and more, by PTX");
    fmt::print("{:<28}{}\n", "cuda-sm_N",
               fmt::format("cuda, and a cubin by ptxas; N: {}", fmt::join(cuda_architectures(), " ")));
}

void list_schedules() {
    constexpr const char* kExample = "d512_h8_f32";
    for (const char* target : kCpuTargets) {
        fmt::print("{}  built-in default, here for {}\n  {}\n", target, kExample,
                   to_string(default_schedule(parse_config(kExample), target)));
    }
    fmt::print("{}  built-in default, here for {}\n  {}\n", kCudaTarget, kExample,
               to_string(default_cuda_schedule(parse_config(kExample))));
}

void list_kernels() {
    for (int kernel = 0; kernel < ATTNC_KERNEL_COUNT; ++kernel) fmt::print("{}\n", kernel_name(kernel));
    for (int kernel = 0; kernel < ATTNC_DEVICE_KERNEL_COUNT; ++kernel)
        fmt::print("{} {}\n", kCudaTarget, device_kernel_name(kernel));
}

}  // namespace

void add_list_command(CLI::App& app) {
    struct Options {
        bool targets = false;
        bool schedules = false;
        bool kernels = false;
    };
    CLI::App* command = app.add_subcommand("list", "List instruction sets, schedules and kernels");
    auto options = std::make_shared<Options>();
    command->add_flag("--targets", options->targets, "The usual instruction sets, best first");
    command->add_flag("--schedules", options->schedules, "Each one's default parameters");
    command->add_flag("--kernels", options->kernels, "Names of all kernels");
    command->require_option(0, 1);
    command->footer("Example:\n  attnc list --targets");
    command->callback([options] {
        if (options->kernels) {
            list_kernels();
        } else if (options->schedules) {
            list_schedules();
        } else {
            list_targets();
        }
    });
}

}  // namespace attnc
