// The program that `attnc tune --export` makes: tunes the layers that it carries on the machine that it is run on.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "compiler/exported_bench.h"
#include "compiler/files.h"
#include "compiler/interrupt.h"
#include "compiler/machine.h"
#include "compiler/own_target.h"
#include "compiler/tune_display.h"
#include "compiler/tune_efforts.h"
#include "compiler/tune_results.h"
#include "compiler/tune_session.h"
#include "schedules/tuning_lookup.h"

namespace attnc {

namespace {

constexpr const char* kResults = "results.txt";
constexpr const char* kHelp =
    "usage: {} [RESULTS]\n"
    "Tunes schedules of attnc on this machine; RESULTS (default: {}) is then for attnc tune --import.\n"
    "Stopped, it goes on from RESULTS.journal when it is started again.\n";

TuneListener listener_of(TuneDisplay& display) {
    TuneListener listener;
    listener.part_begins = [&](const TunedPart& part, const std::string& start) {
        display.begin(part, start);
    };
    listener.part_skipped = [&](const TunedPart& part, const std::string& why) { display.skip(part, why); };
    listener.trial = [&](const TuneEvent& event) { display.trial(event); };
    listener.part_ends = [&](const TunedPart& part, const std::string& best, double ratio, bool finished) {
        display.end(part, best, ratio, finished);
    };
    listener.note = [&](const std::string& text) { display.line("  " + text); };
    return listener;
}

TuningRecord tune_layer(const ExportedRun& run, const ExportedLayer& layer, Journal& journal,
                        Deadline& deadline) {
    const Config config = parse_config(layer.config);
    TuneRequest request = {.config = config,
                           .sizes = {},
                           .target = run.target,
                           .threads = run.threads,
                           .machine = this_machine(),
                           .start = parse_schedule(layer.start, default_schedule(config, run.target)),
                           .effort = effort_by_name(run.effort),
                           .kernels = run.wanted,
                           .version = run.attnc};
    for (const std::string& sizes : layer.sizes) request.sizes.push_back(parse_sizes(sizes));
    TuneDisplay display;
    display.line(fmt::format("{} at {} on {}", layer.config, describe_sizes(request.sizes), run.target));
    display.line(fmt::format("  start: {}", layer.origin));
    const TuneBench bench = exported_bench(run, layer, attnc_exported);
    const TuneResult result = tune(request, bench, journal, listener_of(display), deadline);
    display.line(fmt::format("  whole calls take {:.3f} of the start's time ({:.3f} to {:.3f})",
                             result.ratio.median, result.ratio.low, result.ratio.high));
    return result.record;
}

void run(const std::string& results) {
    const ExportedRun run = parse_exported_run(attnc_exported.description);
    own_target(run.target);
    write_file(results, "");  // a place that can't be written is said before the first minute has gone
    std::vector<TuningRecord> records;
    {
        Journal journal(results + ".journal");
        Deadline deadline(steady_seconds, run.time_limit);
        for (size_t i = 0; i < run.layers.size(); ++i) {
            const auto share = static_cast<double>(run.layers.size() - i);
            Deadline own(steady_seconds, run.time_limit < 0 ? -1 : deadline.left() / share);
            records.push_back(tune_layer(run, run.layers[i], journal, own));
        }
        write_file(results, results_text(records));
    }
    std::error_code ignored;
    std::filesystem::remove(results + ".journal", ignored);
    fmt::print("bring {} back, for attnc tune --import {}\n", results, results);
}

int report(const std::string& command, const std::string& text, int exit_code) {
    fmt::print(stderr, "{}: {}\n", command, text);
    return exit_code;
}

int run_command(const std::string& command, const std::vector<std::string>& arguments) {
    const std::string argument = arguments.empty() ? kResults : arguments.front();
    if (argument == "--help" || argument == "-h") {
        fmt::print(kHelp, command, kResults);
        return 0;
    }
    if (arguments.size() > 1 || argument.empty() || argument.starts_with('-'))
        return report(command, fmt::format("wrong use; {} --help says more", command), 2);
    handle_interrupts();
    try {
        run(argument);
        return 0;
    } catch (const Interrupted& interrupted) {
        return report(command, interrupted.what(), 128 + interrupted.signal);
    } catch (const std::exception& error) {
        return report(command, error.what(), 1);
    }
}

}  // namespace

}  // namespace attnc

int main(int argc, char** argv) {
    try {
        const std::string path = argv[0];
        return attnc::run_command(path.substr(path.rfind('/') + 1), {argv + 1, argv + argc});
    } catch (const std::exception& error) {  // of printing
        std::fputs(error.what(), stderr);
        return 1;
    }
}
