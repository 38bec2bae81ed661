// attnc explain: which schedule a problem gets, and why.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "compiler/command.h"
#include "compiler/library_plan.h"
#include "compiler/targets.h"

namespace attnc {

namespace {

// A problem string with or without sizes.
Config config_of(const std::string& problem) {
    return problem.find(':') == std::string::npos ? parse_config(problem) : parse_problem(problem).config;
}

void explain(const std::string& problem, const std::vector<std::string>& targets) {
    const Config config = config_of(problem);
    fmt::print("{}\n", to_string(config));
    for (const std::string& target : order_targets(targets)) {
        const PlannedTarget planned = plan_target(config, target, "");
        fmt::print("\n{}: {}\n", target, planned.schedule_origin);
        const std::string text = to_string(planned.schedule);
        for (size_t begin = 0; begin < text.size();) {
            const size_t end = std::min(text.find(',', begin), text.size());
            fmt::print("  {}\n", text.substr(begin, end - begin));
            begin = end + 1;
        }
    }
}

}  // namespace

void add_explain_command(CLI::App& app) {
    struct Options {
        std::string problem;
        std::vector<std::string> targets;
    };
    CLI::App* command = app.add_subcommand("explain", "Say which schedule a problem gets, and why");
    auto options = std::make_shared<Options>();
    command
        ->add_option("problem", options->problem, "Problem string: d512_h8_f32 or d512_h8_f32:b32_q50_kv50")
        ->required();
    command->add_option("--target", options->targets, "Instruction sets, separated by commas")
        ->delimiter(',')
        ->allow_extra_args(false);
    command->footer("Example:\n  attnc explain d512_h8_f32 --target x86-64-linux-avx512_skylake");
    command->callback([options] { explain(options->problem, options->targets); });
}

}  // namespace attnc
