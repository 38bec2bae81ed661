// attnc compile-kernel: what a worker process runs. Hidden, but printed when a kernel fails, to repeat it by hand.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "compiler/command.h"
#include "compiler/compile_kernel.h"

namespace attnc {

void add_compile_kernel_command(CLI::App& app) {
    struct Options {
        KernelJob job;
        Emit emit;
        std::string prefix;
        bool versions = false;
        int64_t memory_mib = 0;
    };
    CLI::App* command = app.add_subcommand("compile-kernel", "Compile one kernel for one target");
    command->group("");
    auto options = std::make_shared<Options>();
    command->add_option("--kernel", options->job.kernel, "Name of the generator");
    command->add_option("--config", options->job.config, "Its configuration");
    command->add_option("--schedule", options->job.schedule, "Schedule text of the target");
    command->add_option("--target", options->job.target, "Halide's name of the target");
    command->add_option("--symbol", options->job.symbol, "Name of the function");
    command->add_option("--registers", options->job.registers,
                        "That a thread of a device may take; default: any");
    command->add_flag("--checked", options->job.checked, "Its calls check their buffers");
    command->add_flag("--assembly", options->emit.assembly, "Also write .s");
    command->add_flag("--stmt", options->emit.stmt, "Also write .stmt");
    command->add_flag("--llvm", options->emit.llvm, "Also write .ll");
    command->add_option("--output,-o", options->prefix, "Prefix of the files");
    command->add_flag("--versions", options->versions, "Say what the code is made with");
    command->add_option("--memory-mib", options->memory_mib, "Address space that it may take; default: any")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
    command->footer(
        "Example:\n"
        "  attnc compile-kernel --kernel attend --config hd64_vhd64 --target x86-64-linux --symbol attend -o "
        "kernel");
    command->callback([options] {
        if (options->versions) {
            fmt::print("{}\n", to_json(compiler_versions()));
            return;
        }
        // A worker is of no use without the process that waits for it, and that may be killed.
        const pid_t parent = ::getppid();
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) return;
        if (options->memory_mib > 0) {
            const auto bytes = static_cast<rlim_t>(options->memory_mib) << 20;
            const rlimit limit = {bytes, bytes};
            ::setrlimit(RLIMIT_AS, &limit);
        }
        compile_kernel(options->job, options->prefix, options->emit);
    });
}

}  // namespace attnc
