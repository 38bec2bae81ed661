// The attnc command.
#include <fmt/format.h>

#include <cctype>
#include <cstdio>
#include <exception>
#include <string>

#include "compiler/command.h"
#include "compiler/interrupt.h"
#include "compiler/tree.h"
#include "stages/config.h"

namespace {

constexpr int kFailure = 1;
constexpr int kWrongUse = 2;
constexpr int kSignalled = 128;

int report(const std::string& text, int exit_code) {
    fmt::print(stderr, "attnc: {}\n", text);
    return exit_code;
}

// The parser's messages in the form of our own: one line, lower case, no full stop.
std::string as_error_line(std::string text) {
    for (char& c : text) {
        if (c == '\n' || c == '\r') c = ' ';
    }
    while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
    const size_t colon = text.find(": ");
    const size_t starts[] = {
        0, colon == std::string::npos ? 0 : colon + 2};  // of sentences: "--jobs: Value 0 not ..."
    for (size_t start : starts) {
        const bool sentence = start + 1 < text.size() &&
                              std::isupper(static_cast<unsigned char>(text[start])) &&
                              !std::isupper(static_cast<unsigned char>(text[start + 1]));
        if (sentence) text[start] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[start])));
    }
    return text;
}

// The parser takes an unknown command for a missing one.
void check_command(const CLI::App& app, int argc, char** argv) {
    if (argc < 2 || argv[1][0] == '-') return;
    std::string known;
    for (const CLI::App* command : app.get_subcommands(nullptr)) {
        if (command->get_name() == argv[1]) {
            if (!command->get_subcommands(nullptr).empty()) check_command(*command, argc - 1, argv + 1);
            return;
        }
        const bool hidden = command->get_group().empty();
        if (!hidden) known += (known.empty() ? "" : ", ") + command->get_name();
    }
    throw attnc::UsageError(fmt::format("no command '{}': it is one of {}", argv[1], known));
}

int parse_and_run(CLI::App& app, int argc, char** argv) {
    try {
        check_command(app, argc, argv);
        app.parse(argc, argv);
        return 0;
    } catch (const CLI::RuntimeError& error) {
        return error.get_exit_code();
    } catch (const CLI::Success& success) {  // help and version
        return app.exit(success);
    } catch (const CLI::ParseError& error) {
        return report(as_error_line(error.what()), kWrongUse);
    } catch (const attnc::UsageError& error) {
        return report(error.what(), kWrongUse);
    } catch (const attnc::ConfigError& error) {
        return report(error.what(), kWrongUse);
    } catch (const attnc::Interrupted& interrupted) {
        return report(interrupted.what(), kSignalled + interrupted.signal);
    } catch (const std::exception& error) {
        return report(error.what(), kFailure);
    }
}

int run(int argc, char** argv) {
    attnc::handle_interrupts();
    CLI::App app("Compiles multi-head attention layers ahead of time to small native libraries.", "attnc");
    app.set_version_flag("--version", fmt::format("attnc {}", attnc::kVersion));
    app.require_subcommand(1);
    app.footer(
        "Example:\n"
        "  attnc build --d-model 512 --num-heads 8 -o generated\n"
        "Exit code: 0, 1 for failure, 2 for wrong use. More of each command: attnc COMMAND --help");
    attnc::add_build_command(app);
    attnc::add_show_command(app);
    attnc::add_verify_command(app);
    attnc::add_bench_command(app);
    attnc::add_weights_command(app);
    attnc::add_explain_command(app);
    attnc::add_list_command(app);
    attnc::add_db_command(app);
    attnc::add_generate_command(app);
    attnc::add_tune_command(app);
    attnc::add_compile_kernel_command(app);
    attnc::add_measure_command(app);
    return parse_and_run(app, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {  // of building the parser, or of printing
        std::fputs(error.what(), stderr);
        return kFailure;
    }
}
