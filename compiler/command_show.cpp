// attnc show: the manifest inside a library.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "compiler/command.h"
#include "compiler/manifest.h"

namespace attnc {

void add_show_command(CLI::App& app) {
    struct Options {
        std::string file;
        bool json = false;
    };
    CLI::App* command = app.add_subcommand("show", "Say what is in a library");
    auto options = std::make_shared<Options>();
    command->add_option("library", options->file, "lib<name>.a, or the manifest <name>.json")->required();
    command->add_flag("--json", options->json, "The manifest itself");
    command->footer("Example:\n  attnc show generated/libmy_attention.a");
    command->callback([options] {
        const std::string manifest = load_manifest(options->file);
        fmt::print("{}", options->json ? manifest : describe_manifest(manifest));
    });
}

}  // namespace attnc
