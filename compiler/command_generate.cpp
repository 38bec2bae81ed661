// attnc generate: Halide's own generator driver on attnc's generators, for statements, assembly and any target.
#include <Halide.h>

#include <memory>
#include <string>
#include <vector>

#include "compiler/command.h"

namespace attnc {

void add_generate_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("generate", "Run one generator through Halide's own driver");
    command->prefix_command();
    command->set_help_flag("--help",
                           "This text; without arguments, the driver's own help and the generators");
    command->footer(
        "Example:\n"
        "  attnc generate -g attend -f attend -e stmt,assembly -o . target=x86-64-linux-avx2-fma "
        "config=hd64_vhd64");
    command->callback([command] {
        std::vector<std::string> arguments = {"attnc generate"};
        for (const std::string& argument : command->remaining()) arguments.push_back(argument);
        std::vector<char*> pointers;
        pointers.reserve(arguments.size() + 1);
        for (std::string& argument : arguments) pointers.push_back(argument.data());
        pointers.push_back(nullptr);
        const int code =
            Halide::Internal::generate_filter_main(static_cast<int>(arguments.size()), pointers.data());
        if (code != 0) throw CLI::RuntimeError(1);
    });
}

}  // namespace attnc
