// attnc build: a configuration to a library.
#include <fmt/format.h>

#include <memory>

#include "compiler/build.h"
#include "compiler/command.h"
#include "compiler/config_options.h"
#include "compiler/progress.h"
#include "compiler/tuning_options.h"

namespace attnc {

namespace {

struct Options {
    ConfigOptions config;
    TuningOptions tuning;
    std::string tuned_for;
    BuildRequest request;
    std::vector<std::string> emit;
    std::string output;
    std::string kernel_cache;
};

void run(Options& options) {
    BuildRequest& request = options.request;
    request.config = chosen_config(options.config);
    request.tuning = chosen_tuning(options.tuning, sizes_or_grid(options.tuned_for, request.config));
    request.output = options.output;
    request.kernel_cache = options.kernel_cache;
    request.installation = own_installation();
    for (const std::string& kind : options.emit) {
        if (kind == "asm") request.emit_assembly = true;
        if (kind == "stmt") request.emit_stmt = true;
        if (kind == "llvm") request.emit_llvm = true;
    }
    Progress progress("compiling kernels");
    request.progress = [&](int done, int all) { progress.show(done, all); };
    build_library(request);
}

}  // namespace

void add_build_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("build", "Compile a layer to a static library with a C header");
    auto options = std::make_shared<Options>();
    add_config_options(*command, options->config);
    command->add_option(
        "--name", options->request.name,
        "Name of the library and its function; default: attnc_ and the problem string, or the first "
        "words of a long one and a hash");
    command
        ->add_option("--target", options->request.targets,
                     "Instruction sets, by Halide's names, and devices, separated by commas: cpu (the usual "
                     "set), cuda, "
                     "cuda-sm_80 (with a cubin by ptxas); default: cpu")
        ->delimiter(',')
        ->allow_extra_args(false);
    add_tuning_options(*command, options->tuning);
    command->add_option(
        "--tuned-for", options->tuned_for,
        "Sizes to choose records for: b32_q50_kv50,b1_q128_kv128; default: those at which the "
        "benchmark grid has the layer");
    command->add_option("--schedule", options->request.schedule,
                        "Parameters that differ from the built-in defaults, without asking records: "
                        "panel:32,attend.rows:48");
    command->add_option("--cuda-schedule", options->request.cuda_schedule,
                        "The same for CUDA: panel:64,attend.threads_y:16");
    command
        ->add_option("--emit", options->emit,
                     "Also write per kernel: asm (on a device PTX, too), stmt (Halide's statements), llvm")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::IsMember({"asm", "stmt", "llvm"}));
    command
        ->add_option("--jobs,-j", options->request.jobs, "Worker processes at a time; default: one per CPU")
        ->check(CLI::Range(1, 1024));
    command->add_option("--kernel-cache", options->kernel_cache, "Folder that keeps compiled kernels")
        ->envname("ATTNC_KERNEL_CACHE");
    command->add_option("--output,-o", options->output, "Folder for the files; made if it isn't there")
        ->required();
    command->footer(
        "Example:\n"
        "  attnc build --d-model 512 --num-heads 8 --name my_attention -o generated\n"
        "writes generated/libmy_attention.a, my_attention.h and .json, the runtime with its headers, and "
        "files for\n"
        "CMake and pkg-config.\n"
        "  attnc build --d-model 512 --num-heads 8 --target cpu,cuda -o generated\n"
        "also has code for NVIDIA's devices, for layers whose options name the target cuda.");
    command->callback([options] { run(*options); });
}

}  // namespace attnc
