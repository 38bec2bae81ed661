// attnc tune: finds schedules for layers on this machine, and keeps them in a database.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "compiler/command.h"
#include "compiler/database_file.h"
#include "compiler/files.h"
#include "compiler/interrupt.h"
#include "compiler/machine.h"
#include "compiler/own_target.h"
#include "compiler/tree.h"
#include "compiler/tune_display.h"
#include "compiler/tune_report.h"
#include "compiler/tune_session.h"
#include "compiler/tuning_sources.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

struct Options {
    std::vector<std::string> problems;
    std::string effort = "measure";
    std::string time_limit;
    std::string database;
    std::string journal;
    std::string target;
    std::string schedule;
    std::string shard;
    std::string kernel_cache;
    std::string report;
    std::string peers;
    std::vector<std::string> kernels;
    int threads = 1;
    uint64_t seed = 1;
    bool lookup_only = false;
};

// A layer with the sizes that it is tuned for, together.
struct Layer {
    Config config;
    std::vector<Sizes> sizes;
};

// In the order of their problem strings, which every shard agrees on.
std::vector<Layer> layers_of(const std::vector<std::string>& problems) {
    std::map<std::string, Layer> layers;
    for (const std::string& text : problems) {
        if (text.find(':') == std::string::npos)
            throw UsageError(fmt::format("problem '{}' has no sizes: {}:b32_q50_kv50, say", text, text));
        const Problem problem = parse_problem(text);
        if (problem.sizes.batch == 0 || problem.sizes.seq_q == 0 || problem.sizes.seq_kv == 0)
            throw UsageError(fmt::format("problem '{}' has nothing to time", text));
        Layer& layer = layers[to_string(problem.config)];
        layer.config = problem.config;
        layer.sizes.push_back(problem.sizes);
    }
    std::vector<Layer> sorted;
    for (auto& [text, layer] : layers) {
        sort_sizes(layer.sizes);
        sorted.push_back(layer);
    }
    return sorted;
}

// "2/3": the second of three parts of the list.
std::vector<Layer> shard_of(const std::vector<Layer>& layers, const std::string& text) {
    if (text.empty()) return layers;
    int64_t index = 0, count = 0;
    char more = 0;
    const int read = std::sscanf(text.c_str(), "%ld/%ld%c", &index, &count, &more);
    if (read != 2 || index < 1 || count < index || count > 1'000'000)
        throw UsageError(
            fmt::format("shard {} is not of the form 2/3, the second of three", in_quotes(text)));
    std::vector<Layer> own;
    for (size_t i = static_cast<size_t>(index - 1); i < layers.size(); i += static_cast<size_t>(count))
        own.push_back(layers[i]);
    return own;
}

void check_kernels(const std::vector<std::string>& kernels, const std::vector<Layer>& layers) {
    std::set<std::string> known;
    for (const Layer& layer : layers) {
        for (const SearchPart& part : search_parts(layer.config)) known.insert(part.name);
    }
    for (const std::string& kernel : kernels) {
        if (known.contains(kernel)) continue;
        std::string names;
        for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
        throw UsageError(fmt::format("no kernel {} to tune: it is one of {}", in_quotes(kernel), names));
    }
}

fs::path chosen_database(const std::string& named) {
    if (!named.empty()) return named;
    return project_database(fs::current_path()).value_or(kProjectDatabase);
}

FoundSchedule look_up_layer(const Layer& layer, const std::string& target, const fs::path& database) {
    std::vector<std::string> named;
    if (fs::exists(database)) named.push_back(database.string());
    return look_up({layer.config, target, layer.sizes, this_machine()},
                   tuning_sources(named, fs::current_path(), own_installation()));
}

// Throws where there is no record: then nothing is tuned, and the caller may want to know.
void show_lookup(const Layer& layer, const std::string& target, const fs::path& database) {
    const FoundSchedule found = look_up_layer(layer, target, database);
    fmt::print("{} at {} on {}\n", to_string(layer.config), describe_sizes(layer.sizes), target);
    for (const LookupStep& step : found.steps)
        fmt::print("  {} {}: {}\n", step.taken ? "->" : "  ", step.asked, step.outcome);
    fmt::print("  {}\n", to_string(found.schedule));
    std::fflush(stdout);
    if (!found.record) {
        throw std::runtime_error(fmt::format("no record of {} for {}, and --lookup-only searches none",
                                             to_string(layer.config), target));
    }
}

// The schedule that the search starts from, and in words where it is from.
CpuSchedule start_of(const Layer& layer, const std::string& target, const Options& options,
                     const fs::path& database, std::string& origin) {
    const FoundSchedule found = look_up_layer(layer, target, database);
    if (options.schedule.empty()) {
        origin = found.record ? fmt::format("record of {}: {}", found.file, describe_record(*found.record))
                              : std::string("built-in default");
        return found.schedule;
    }
    origin = fmt::format("built-in default, then {}", options.schedule);
    const CpuSchedule start = parse_schedule(options.schedule, default_schedule(layer.config, target));
    check_schedule(start, layer.config, target);
    return start;
}

// The disk may be full or the file another's: nothing that was found is lost, as the journal has it.
void keep(const TuningRecord& record, const fs::path& database) { add_records(database, {record}); }

void print_result(TuneDisplay& display, const TuneResult& result, const fs::path& database) {
    for (const auto& [sizes, call] : result.record.calls)
        display.line(fmt::format("  {}: {:.4f} ms, spread {:.1f} %", sizes, call.ms, 100 * call.spread));
    if (!result.record.calls.empty()) {
        display.line(
            fmt::format("  whole calls take {:.3f} of the start's time ({:.3f} to {:.3f}); kept in {}",
                        result.ratio.median, result.ratio.low, result.ratio.high, database.string()));
    } else {
        display.line(fmt::format("  estimated, nothing timed; kept in {}", database.string()));
    }
}

ReportLayer tune_layer(const Layer& layer, const Options& options, const Effort& effort,
                       const fs::path& database, Journal& journal, const fs::path& cache,
                       Deadline& deadline) {
    const std::string target = own_target(options.target);
    std::string origin;
    const TemporaryFolder folder(system_temporary_folder());
    TuneRequest request = {.config = layer.config,
                           .sizes = layer.sizes,
                           .target = target,
                           .threads = options.threads,
                           .machine = this_machine(),
                           .start = start_of(layer, target, options, database, origin),
                           .effort = effort,
                           .kernels = options.kernels,
                           .seed = options.seed,
                           .version = kVersion,
                           .installation = own_installation(),
                           .cache = cache.empty() ? folder.path() / "kernels" : cache,
                           .folder = folder.path()};
    TuneDisplay display;
    display.line(fmt::format("{} at {} on {}, {} thread{}, {}", to_string(layer.config),
                             describe_sizes(layer.sizes), target, options.threads,
                             options.threads == 1 ? "" : "s", effort.name));
    display.line(fmt::format("  start: {}", origin));
    ReportLayer report;
    report.origin = origin;
    TuneListener listener;
    listener.part_begins = [&](const TunedPart& part, const std::string& start) {
        display.begin(part, start);
        report.parts.push_back({.name = part.part.name, .start = start, .best = start, .events = {}});
    };
    listener.part_skipped = [&](const TunedPart& part, const std::string& why) { display.skip(part, why); };
    listener.trial = [&](const TuneEvent& event) {
        display.trial(event);
        report.parts.back().events.push_back(event);
    };
    listener.part_ends = [&](const TunedPart& part, const std::string& best, double ratio, bool finished) {
        display.end(part, best, ratio, finished);
        report.parts.back().best = best, report.parts.back().ratio = ratio;
        report.parts.back().finished = finished;
    };
    listener.record = [&](const TuningRecord& record) { keep(record, database); };
    listener.note = [&](const std::string& text) { display.line("  " + text); };
    report.result = tune(request, journal, listener, deadline);
    print_result(display, report.result, database);
    return report;
}

void run(const Options& options) {
    const Effort effort = effort_by_name(options.effort);
    const double limit = options.time_limit.empty() ? -1 : parse_duration(options.time_limit);
    const std::vector<Layer> all = layers_of(options.problems);
    check_kernels(options.kernels, all);
    const std::vector<Layer> layers = shard_of(all, options.shard);
    const fs::path database = chosen_database(options.database);
    if (options.lookup_only) {
        for (const Layer& layer : layers) show_lookup(layer, own_target(options.target), database);
        return;
    }
    // Anything wrong with the files is said before the first minute has gone.
    add_records(database, {});
    Journal journal(options.journal.empty() ? fs::path(database.string() + ".journal")
                                            : fs::path(options.journal));
    const OtherTimes others =
        options.peers.empty() ? OtherTimes{} : autoscheduler_times(options.peers, options.threads);
    std::vector<ReportLayer> reports;
    Deadline deadline(steady_seconds, limit);
    for (size_t i = 0; i < layers.size(); ++i) {
        const auto share = static_cast<double>(layers.size() - i);
        Deadline own(steady_seconds, limit < 0 ? -1 : deadline.left() / share);
        reports.push_back(
            tune_layer(layers[i], options, effort, database, journal, options.kernel_cache, own));
        if (!options.report.empty()) write_file(options.report, report_page(reports, others));
    }
}

}  // namespace

void add_tune_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("tune", "Find the schedules that are fastest on this machine");
    auto options = std::make_shared<Options>();
    command
        ->add_option(
            "problem", options->problems,
            "Problem strings with sizes: d512_h8_f32:b32_q50_kv50. Sizes of one layer are tuned together")
        ->required();
    command->add_option(
        "--effort", options->effort,
        "estimate (nothing is run), quick (about a minute a kernel), measure, patient; default: measure");
    command->add_option("--time-limit", options->time_limit,
                        "Time for all of it: 90s, 10m, 1.5h; what was found by then is kept");
    command->add_option(
        "--db", options->database,
        "Database that records go to, and where the search starts from; default: the project's "
        "attnc.tuning.jsonl, or one in this folder");
    command->add_option(
        "--journal", options->journal,
        "File with what was measured, from which the next run goes on; default: FILE.journal beside the "
        "database");
    command->add_option("--target", options->target,
                        "Instruction set; default: the best that this machine runs");
    command->add_option("--threads", options->threads, "Threads that share a call; default: 1")
        ->check(CLI::Range(1, 1024));
    command
        ->add_option("--kernel", options->kernels,
                     "Only these kernels, with commas between them; default: all")
        ->delimiter(',')
        ->allow_extra_args(false);
    command->add_option("--schedule", options->schedule,
                        "Start from the default with these parameters, instead of what is looked up");
    command->add_flag("--lookup-only", options->lookup_only, "Say which record there is, and search nothing");
    command->add_option(
        "--shard", options->shard,
        "i/n: the i-th of n parts of the layers, for n machines or jobs; attnc db merge joins");
    CLI::Option* report = command->add_option("--report", options->report,
                                              "Also write what was tried as an HTML page to this file");
    command
        ->add_option("--peers", options->peers,
                     "Results of scripts/bench, whose Halide autoschedulers the report shows too")
        ->needs(report);
    command->add_option("--seed", options->seed, "Of the candidates that are drawn at random; default: 1");
    command->add_option("--kernel-cache", options->kernel_cache, "Folder that keeps compiled kernels")
        ->envname("ATTNC_KERNEL_CACHE");
    command->footer(
        "Example:\n"
        "  attnc tune d512_h8_f32:b1_q128_kv128 d512_h8_f32:b32_q50_kv50 --effort quick --db "
        "attnc.tuning.jsonl\n"
        "Stopped at any moment, it leaves the best so far in the database; the next run measures nothing "
        "again.");
    command->callback([options] { run(*options); });
}

}  // namespace attnc
