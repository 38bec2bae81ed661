// The subcommands of attnc: each adds itself to the command line with a callback that does its work.
#pragma once

#include <CLI/CLI.hpp>

namespace attnc {

void add_build_command(CLI::App& app);
void add_show_command(CLI::App& app);
void add_list_command(CLI::App& app);
void add_explain_command(CLI::App& app);
void add_verify_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_weights_command(CLI::App& app);
void add_db_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_tune_command(CLI::App& app);
void add_compile_kernel_command(CLI::App& app);  // hidden: the worker
void add_measure_command(CLI::App& app);         // hidden: what times a candidate

// Wrong use of the command: exit code 2. Failures are other exceptions: exit code 1.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace attnc
