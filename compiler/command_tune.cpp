// attnc tune: finds schedules for layers on this machine, or on the ranks of an MPI run, and keeps them in a database.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "compiler/command.h"
#include "compiler/database_file.h"
#include "compiler/files.h"
#include "compiler/kernel_workers.h"
#include "compiler/machine.h"
#include "compiler/own_target.h"
#include "compiler/subprocess.h"
#include "compiler/targets.h"
#include "compiler/tree.h"
#include "compiler/tune_control_here.h"
#include "compiler/tune_device.h"
#include "compiler/tune_display.h"
#include "compiler/tune_export.h"
#include "compiler/tune_here.h"
#include "compiler/tune_layers.h"
#include "compiler/tune_ranks.h"
#include "compiler/tune_report.h"
#include "compiler/tune_results.h"
#include "compiler/tune_session.h"
#include "compiler/tune_trials.h"
#include "compiler/tuning_sources.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

struct Options : TuneOptions {
    std::string time_limit;
    std::string database;
    std::string journal;
    std::string shard;
    std::string kernel_cache;
    std::string report;
    std::string peers;
    std::string export_folder;
    std::string import_file;
    int64_t export_candidates = 0;  // 0: as the effort says
    std::string json;
    size_t random = 0;
    bool detuned = false;
    bool lookup_only = false;
    bool mpi = false;
    bool under_rank = false;
};

fs::path chosen_database(const std::string& named) {
    if (!named.empty()) return named;
    return project_database(fs::current_path()).value_or(kProjectDatabase);
}

fs::path chosen_journal(const Options& options, const fs::path& database) {
    return options.journal.empty() ? fs::path(database.string() + ".journal") : fs::path(options.journal);
}

void say(const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
}

// Throws where there is no record: then nothing is tuned, and the caller may want to know.
void show_lookup(const TunedLayer& layer, const std::string& target, const fs::path& database) {
    const FoundSchedule found = look_up_layer(layer, target, this_machine(), database);
    fmt::print("{} on {}\n", name_of(layer), target);
    for (const LookupStep& step : found.steps)
        fmt::print("  {} {}: {}\n", step.taken ? "->" : "  ", step.asked, step.outcome);
    fmt::print("  {}\n", to_string(found.schedule));
    std::fflush(stdout);
    if (!found.record) {
        throw std::runtime_error(fmt::format("no record of {} for {}, and --lookup-only searches none",
                                             to_string(layer.config), target));
    }
}

// The disk may be full or the file another's: nothing that was found is lost, as the journal has it.
void keep(const TuningRecord& record, const fs::path& database) { add_records(database, {record}); }

// `kept`: where, in words; empty: by whoever started this.
void print_result(TuneDisplay& display, const TuneResult& result, const std::string& kept) {
    for (const auto& [sizes, call] : result.record.calls)
        display.line(fmt::format("  {}: {:.4f} ms, spread {:.1f} %", sizes, call.ms, 100 * call.spread));
    if (!result.record.calls.empty()) {
        display.line(fmt::format("  whole calls take {:.3f} of the start's time ({:.3f} to {:.3f}){}",
                                 result.ratio.median, result.ratio.low, result.ratio.high, kept));
    } else {
        display.line(fmt::format("  estimated, nothing timed{}", kept));
    }
}

ReportLayer tune_layer(const TunedLayer& layer, const Options& options, const Effort& effort,
                       const fs::path& database, Journal& journal, const fs::path& cache,
                       Deadline& deadline) {
    const std::string target = own_target(options.target);
    const TuneStart start = start_of(layer, target, this_machine(), options, database);
    const TemporaryFolder folder(system_temporary_folder());
    const TuneRequest request = {.config = layer.config,
                                 .sizes = layer.sizes,
                                 .target = target,
                                 .threads = options.threads,
                                 .machine = this_machine(),
                                 .start = start.schedule,
                                 .effort = effort,
                                 .kernels = options.kernels,
                                 .version = kVersion};
    const TuneBench bench = bench_here({.config = layer.config,
                                        .target = target,
                                        .threads = options.threads,
                                        .machine = request.machine,
                                        .effort = effort,
                                        .seed = options.seed,
                                        .journal = &journal,
                                        .installation = own_installation(),
                                        .cache = cache.empty() ? folder.path() / "kernels" : cache,
                                        .folder = folder.path()});
    TuneDisplay display;
    display.line(fmt::format("{} on {}, {} thread{}, {}", name_of(layer), target, options.threads,
                             options.threads == 1 ? "" : "s", effort.name));
    if (!options.under_rank) display.line(fmt::format("  start: {}", start.origin));
    ReportLayer report;
    report.origin = start.origin;
    TuneListener listener;
    listener.part_begins = [&](const TunedPart& part, const std::string& text) {
        display.begin(part, text);
        report.parts.push_back({.name = part.part.name, .start = text, .best = text, .events = {}});
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
    report.result = tune(request, bench, journal, listener, deadline);
    print_result(display, report.result,
                 options.under_rank ? "" : fmt::format("; kept in {}", database.string()));
    return report;
}

// The same command for a rank, of which it chooses the machine's start here, where the records are.
RankWork work_of(const TunedLayer& layer, const Options& options, const fs::path& database) {
    return {.name = name_of(layer),
            .journal_keys = journal_key_begins(layer.config, options.threads),
            .start = [&options, layer, database](const std::string& target, const Machine& machine) {
                const TuneStart start = start_of(layer, target, machine, options, database);
                std::vector<std::string> arguments = {"--effort",   options.effort,
                                                      "--target",   target,
                                                      "--schedule", to_string(start.schedule),
                                                      "--threads",  std::to_string(options.threads),
                                                      "--seed",     std::to_string(options.seed)};
                for (const std::string& kernel : options.kernels) {
                    arguments.emplace_back("--kernel");
                    arguments.push_back(kernel);
                }
                for (const Sizes& sizes : layer.sizes)
                    arguments.push_back(to_string(Problem{layer.config, sizes}));
                return RankWork::Start{arguments, start.origin};
            }};
}

void work_as_rank(RankLink& link, const Options& options) {
    const Installation installation = own_installation();
    work_for_ranks(link,
                   {.target = options.target,
                    .versions = fmt::format("{} ({})", kVersion, versions_of(installation.command).identity),
                    .command = installation.command,
                    .kernel_cache = options.kernel_cache});
}

// Rank 0.
void tune_on_ranks(RankLink& link, const std::vector<TunedLayer>& layers, const Options& options,
                   const fs::path& database, Journal& journal, Deadline& deadline) {
    if (link.ranks() < 2) {
        throw UsageError(
            "--mpi has no rank to measure on: start it as mpirun -n 3 attnc tune --mpi, of which two "
            "measure");
    }
    RanksRequest request = {
        .works = {},
        .threads = options.threads,
        .versions = fmt::format("{} ({})", kVersion, versions_of(own_installation().command).identity),
        .database = database,
        .say = say};
    for (const TunedLayer& layer : layers) request.works.push_back(work_of(layer, options, database));
    const std::vector<std::string> failures = hand_out_works(link, request, journal, deadline);
    if (failures.empty()) return;
    throw std::runtime_error(
        fmt::format("{}{}", failures.front(),
                    failures.size() > 1 ? fmt::format(" (and {} more)", failures.size() - 1) : ""));
}

void export_layers(const std::vector<TunedLayer>& layers, const Options& options, const Effort& effort,
                   double time_limit, const fs::path& database) {
    if (options.target.empty())
        throw UsageError("--export needs --target: the instruction set of the machine that will measure");
    if (!effort.measures) throw UsageError("effort estimate measures nothing that --export could be for");
    const TemporaryFolder folder(system_temporary_folder());
    ExportRequest request = {.layers = {},
                             .target = order_targets({options.target}).front(),
                             .threads = options.threads,
                             .effort = effort,
                             .time_limit = time_limit,
                             .kernels = options.kernels,
                             .seed = options.seed,
                             .version = kVersion,
                             .installation = own_installation(),
                             .cache = options.kernel_cache,
                             .folder = options.export_folder,
                             .say = say};
    if (options.export_candidates > 0) {
        request.effort.first = static_cast<size_t>(options.export_candidates);
        request.effort.analysed = std::max(effort.analysed, request.effort.first);
    }
    for (const TunedLayer& layer : layers) {
        // The machine is unknown, so that records of this one are others'.
        const TuneStart start = start_of(layer, request.target, {}, options, database);
        request.layers.push_back({layer.config, layer.sizes, start.schedule, start.origin});
    }
    const fs::path runner = export_runner(request);
    say(fmt::format("run {} there, and bring back the file that it writes", runner.string()));
}

void import_results(const Options& options, const fs::path& database) {
    const std::vector<TuningRecord> records = load_results(options.import_file);
    const AddedRecords count = add_records(database, records);
    for (const TuningRecord& record : records) say(describe_record(record));
    say(fmt::format("{} new, {} better than what was there, {} not; kept in {}", count.added, count.replaced,
                    count.kept, database.string()));
}

void run_for_devices(const Options& options, const std::vector<TunedLayer>& layers,
                     const fs::path& database) {
    if (options.mpi || !options.export_folder.empty() || !options.report.empty() || options.random > 0 ||
        options.detuned)
        throw UsageError(
            "--mpi, --export, --report, --random and --detuned are for CPUs: nothing is run for a device");
    const DeviceTuneRequest request = {.layers = layers,
                                       .options = options,
                                       .database = database,
                                       .cache = options.kernel_cache,
                                       .installation = own_installation(),
                                       .version = kVersion,
                                       .say = say};
    options.lookup_only ? show_device_lookups(request) : tune_devices(request);
}

// Fails where the schedules that builds take don't hold.
void control_layers(const std::vector<TunedLayer>& layers, const Options& options, const Effort& effort,
                    double limit, const fs::path& database) {
    if (!effort.measures) throw UsageError("effort estimate measures nothing that --detuned could be for");
    ControlHere setup = {.layers = layers,
                         .options = options,
                         .effort = effort,
                         .random = options.random,
                         .database = database,
                         .journal = options.journal,
                         .kernel_cache = options.kernel_cache};
    // How long a search takes is part of what --detuned tells, so that it begins from nothing.
    if (options.random > 0 && setup.journal.empty()) setup.journal = database.string() + ".random.journal";
    Deadline deadline(steady_seconds, limit);
    const ControlReport report = control_here(setup, deadline);
    fmt::print("{}", control_table(report));
    std::fflush(stdout);
    if (!options.json.empty()) write_file(options.json, control_json(report));
    if (const std::string fault = control_fault(report); !fault.empty()) throw std::runtime_error(fault);
}

void run(const Options& options) {
    if (options.under_rank) end_with_parent();
    if (!options.json.empty() && options.random == 0 && !options.detuned)
        throw UsageError("--json needs --random or --detuned, of which it tells");
    std::unique_ptr<RankLink> link;
    if (options.mpi) link = std::make_unique<RankLink>(own_installation());
    if (link && link->rank() > 0) {
        work_as_rank(*link, options);
        return;
    }
    const fs::path database = chosen_database(options.database);
    if (!options.import_file.empty()) {
        if (!options.problems.empty()) throw UsageError("--import takes no problems: the file says which");
        import_results(options, database);
        return;
    }
    const Effort effort = effort_by_name(options.effort);
    const double limit = options.time_limit.empty() ? -1 : parse_duration(options.time_limit);
    const std::vector<TunedLayer> all = layers_of(options.problems);
    if (names_devices(options.target)) {
        run_for_devices(options, shard_of(all, options.shard), database);
        return;
    }
    check_kernels(options.kernels, all);
    const std::vector<TunedLayer> layers = shard_of(all, options.shard);
    if (!options.export_folder.empty()) {
        export_layers(layers, options, effort, limit, database);
        return;
    }
    if (options.lookup_only) {
        for (const TunedLayer& layer : layers) show_lookup(layer, own_target(options.target), database);
        return;
    }
    if (options.random > 0 || options.detuned) {
        control_layers(layers, options, effort, limit, database);
        return;
    }
    // Anything wrong with the files is said before the first minute has gone.
    add_records(database, {});
    Journal journal(chosen_journal(options, database));
    const OtherTimes others =
        options.peers.empty() ? OtherTimes{} : autoscheduler_times(options.peers, options.threads);
    Deadline deadline(steady_seconds, limit);
    if (link) {
        tune_on_ranks(*link, layers, options, database, journal, deadline);
        return;
    }
    std::vector<ReportLayer> reports;
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
    command->add_option(
        "problem", options->problems,
        "Problem strings with sizes: d512_h8_f32:b32_q50_kv50. Sizes of one layer are tuned together");
    CLI::Option* effort = command->add_option(
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
                        "Instruction set; default: the best that this machine runs. Or devices, with "
                        "--effort estimate: cuda-sm_80,cuda-sm_90");
    command->add_option("--threads", options->threads, "Threads that share a call; default: 1")
        ->check(CLI::Range(1, 1024));
    command
        ->add_option("--kernel", options->kernels,
                     "Only these kernels, with commas between them; default: all")
        ->delimiter(',')
        ->allow_extra_args(false);
    CLI::Option* schedule =
        command->add_option("--schedule", options->schedule,
                            "Start from the default with these parameters, instead of what is looked up");
    command
        ->add_flag("--no-records", options->no_records, "Start from the default, whatever records there are")
        ->excludes(schedule);
    CLI::Option* lookup = command->add_flag("--lookup-only", options->lookup_only,
                                            "Say which record there is, and search nothing");
    command->add_option(
        "--shard", options->shard,
        "i/n: the i-th of n parts of the layers, for n machines or jobs; attnc db merge joins");
    CLI::Option* mpi = command->add_flag(
        "--mpi", options->mpi,
        "Under mpirun: rank 0 hands layers out to the other ranks, which measure, and keeps what they find");
    command->add_flag("--under-rank", options->under_rank, "End with the process that started this one")
        ->group("");
    CLI::Option* report = command->add_option("--report", options->report,
                                              "Also write what was tried as an HTML page to this file");
    command
        ->add_option("--peers", options->peers,
                     "Results of scripts/bench, whose Halide autoschedulers the report shows too")
        ->needs(report);
    mpi->excludes(lookup)->excludes(report);
    CLI::Option* exported =
        command
            ->add_option("--export", options->export_folder,
                         "Tune nothing here: write a program to this folder that tunes on "
                         "another machine, of the instruction set --target")
            ->excludes(lookup)
            ->excludes(report)
            ->excludes(mpi);
    command
        ->add_option(
            "--export-candidates", options->export_candidates,
            "Candidates of each kernel that the program carries; default: as many as --effort begins with")
        ->check(CLI::Range(1, 10000))
        ->needs(exported);
    CLI::Option* imported =
        command
            ->add_option(
                "--import", options->import_file,
                "Tune nothing: add what such a program found to the database, from the file that it wrote")
            ->excludes(exported)
            ->excludes(lookup)
            ->excludes(report)
            ->excludes(mpi);
    CLI::Option* random =
        command
            ->add_option("--random", options->random,
                         "Tune nothing: hold what builds take against so many random points of each kernel")
            ->check(CLI::Range(1, 1'000'000))
            ->excludes(lookup)
            ->excludes(report)
            ->excludes(mpi)
            ->excludes(exported)
            ->excludes(imported)
            ->excludes(effort);
    command
        ->add_flag("--detuned", options->detuned,
                   "Tune nothing: hold what builds take against a search from the smallest register tile")
        ->excludes(random)
        ->excludes(lookup)
        ->excludes(report)
        ->excludes(mpi)
        ->excludes(exported)
        ->excludes(imported);
    command->add_option("--json", options->json, "File for what came of --random or --detuned");
    command->add_option("--seed", options->seed, "Of the candidates that are drawn at random; default: 1");
    command->add_option("--kernel-cache", options->kernel_cache, "Folder that keeps compiled kernels")
        ->envname("ATTNC_KERNEL_CACHE");
    command->footer(
        "Example:\n"
        "  attnc tune d512_h8_f32:b1_q128_kv128 d512_h8_f32:b32_q50_kv50 --effort quick --db "
        "attnc.tuning.jsonl\n"
        "  mpirun -n 5 --enable-recovery attnc tune --mpi d512_h8_f32:b1_q128_kv128 "
        "d768_h12_f32:b1_q384_kv384\n"
        "  attnc tune d512_h8_f32:b1_q128_kv128 --target x86-64-linux-avx2-fma-f16c --export runner\n"
        "  attnc tune --import results.txt --db attnc.tuning.jsonl\n"
        "  attnc tune d512_h8_f32:b1_q128_kv128 --target cuda-sm_80,cuda-sm_90 --effort estimate\n"
        "Stopped at any moment, it leaves the best so far in the database; the next run measures nothing "
        "again.");
    command->callback([options] { run(*options); });
}

}  // namespace attnc
