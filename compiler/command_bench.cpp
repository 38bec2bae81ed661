// attnc bench: times libraries made for the purpose, as a fraction of what the machine's multiply-adds allow.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "compiler/build.h"
#include "compiler/command.h"
#include "compiler/device_there.h"
#include "compiler/files.h"
#include "compiler/fma_probe.h"
#include "compiler/layer_call.h"
#include "compiler/library_plan.h"
#include "compiler/load_library.h"
#include "compiler/machine.h"
#include "compiler/own_target.h"
#include "compiler/progress.h"
#include "compiler/run_apart.h"
#include "compiler/targets.h"
#include "compiler/timing.h"
#include "compiler/tree.h"
#include "compiler/tuning_options.h"
#include "schedules/cpu_params.h"

namespace attnc {

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

struct Options {
    std::vector<std::string> problems;
    int threads = 1;
    double seconds = 2;
    std::string target;
    std::string schedule;
    std::string json;
    std::string kernel_cache;
    std::string against;
    TuningOptions tuning;
};

// The attention of a layer without its projections; nothing if the layer has none.
Problem attention_alone(const Problem& problem) {
    Problem core = problem;
    core.config.in_proj = false;
    core.config.out_proj = false;
    core.config.bias_kv = false;  // a parameter of the projections
    core.config.d_model = core.config.k_dim = core.config.v_dim = 0;
    core.config = complete(core.config);
    return core;
}

// Libraries of the problem's parts, in `folder`: the whole layer first; then, if asked for, the same parts of the
// configuration that it is held against.
struct BuiltPart {
    std::string name;
    Problem problem;
    Config used;           // options that both configurations have
    std::string schedule;  // laid over the defaults; the same for all parts of a layer
    fs::path archive;
};

// The options of a layer that do without their weights or settings: those that both have.
Config common_options(const Config& a, const Config& b) {
    Config both = a;
    both.sink = a.sink && b.sink;
    both.alibi = a.alibi && b.alibi;
    both.qk_norm = a.qk_norm && b.qk_norm;
    both.rotary = a.rotary == b.rotary ? a.rotary : Rotary::kNone;
    return both;
}

// What a build of the layer would choose, or what was asked for. On a device nothing is looked up.
std::string schedule_text(const Problem& layer, const Options& options, const std::string& target) {
    if (!options.schedule.empty() || target == kCudaTarget) return options.schedule;
    const PlannedTarget planned =
        plan_target(layer.config, target, chosen_tuning(options.tuning, {layer.sizes}), "");
    if (planned.found.record)
        fmt::print("{}  schedule: {}\n", to_string(layer.config), planned.schedule_origin);
    return to_string(planned.schedule);
}

std::vector<BuiltPart> build_parts(const Problem& problem, const Options& options, const std::string& target,
                                   const fs::path& folder) {
    Config used = problem.config;
    std::vector<Problem> layers = {problem};
    if (!options.against.empty()) {
        layers.push_back({parse_config(options.against), problem.sizes});
        used = common_options(problem.config, layers.back().config);
    }
    std::vector<BuiltPart> parts;
    for (const Problem& layer : layers) {
        const std::string schedule = schedule_text(layer, options, target);
        parts.push_back({"layer", layer, used, schedule, {}});
        if (layer.config.in_proj || layer.config.out_proj)
            parts.push_back({"attention", attention_alone(layer), used, schedule, {}});
    }
    Progress progress("compiling kernels");
    for (BuiltPart& part : parts) {
        BuildRequest request;
        request.config = part.problem.config;
        request.targets = {target};
        (target == kCudaTarget ? request.cuda_schedule : request.schedule) = part.schedule;
        request.output = folder;
        // The parts share their kernels, so each is compiled once even where nobody keeps a cache.
        request.kernel_cache =
            options.kernel_cache.empty() ? folder / "kernels" : fs::path(options.kernel_cache);
        request.installation = own_installation();
        request.progress = [&](int done, int all) { progress.show(done, all); };
        part.archive = build_library(request).archive;
    }
    return parts;
}

Json result_json(const Problem& problem, const TimedResult& result, const std::string& target, int threads) {
    if (target == kCudaTarget) {
        return {{"problem", to_string(problem)},
                {"part", result.name},
                {"target", target},
                {"operations", result.operations},
                {"calls", result.calls},
                {"ms_best", result.ms_best},
                {"ms_median", result.ms_median},
                {"gflops_best", result.operations / result.ms_best / 1e6}};
    }
    return {{"problem", to_string(problem)},
            {"part", result.name},
            {"target", target},
            {"threads", threads},
            {"operations", result.operations},
            {"calls", result.calls},
            {"ms_best", result.ms_best},
            {"ms_median", result.ms_median},
            {"gflops_best", result.operations / result.ms_best / 1e6},
            {"probe_gflops", result.probe_best / 1e9},
            {"peak_fraction_best", result.fraction_best},
            {"peak_fraction_median", result.fraction_median}};
}

// A device is not held against the probe, which is the CPU's.
void print_device_header() {
    fmt::print("{:<10}{:>12}{:>12}{:>11}{:>9}\n", "", "best ms", "median ms", "GFLOP/s", "calls");
}

void print_device_result(const TimedResult& result) {
    fmt::print("{:<10}{:>12.4f}{:>12.4f}{:>11.1f}{:>9}\n", result.name, result.ms_best, result.ms_median,
               result.operations / result.ms_best / 1e6, result.calls);
}

void print_header() {
    fmt::print("{:<10}{:>12}{:>12}{:>11}{:>11}{:>13}{:>9}\n", "", "best ms", "median ms", "GFLOP/s",
               "best/peak", "median/peak", "calls");
}

void print_result(const TimedResult& result) {
    fmt::print("{:<10}{:>12.4f}{:>12.4f}{:>11.1f}{:>11.3f}{:>13.3f}{:>9}\n", result.name, result.ms_best,
               result.ms_median, result.operations / result.ms_best / 1e6, result.fraction_best,
               result.fraction_median, result.calls);
}

// In a process of its own; the results go to `json`.
void bench_problem(const Problem& problem, const std::vector<BuiltPart>& built, const Options& options,
                   const std::string& target, const fs::path& json) {
    const TimingPool pool(options.threads);
    std::vector<LoadedLibrary> libraries;
    std::vector<std::unique_ptr<LayerCall>> calls;
    std::vector<TimedWork> works;
    for (const BuiltPart& part : built) {
        libraries.emplace_back(part.archive, own_installation());
        calls.push_back(std::make_unique<LayerCall>(LayerCallSetup{
            part.problem, part.used, libraries.back().library(), target, pool.executor(), {}}));
        works.push_back(
            {part.name, call_operations(part.problem).all(), [call = calls.back().get()] { call->call(); }});
    }
    const std::vector<TimedResult> results = time_in_turn(works, pool, {.seconds = options.seconds});
    const bool device = target == kCudaTarget;
    if (device) {
        fmt::print("{}  {}\n", to_string(problem), target);
        print_device_header();
    } else {
        fmt::print("{}  {}, {} thread{}; probe ({}) {:.1f} GFLOP/s\n", to_string(problem), target,
                   options.threads, options.threads == 1 ? "" : "s", FmaProbe().name(),
                   results.front().probe_best / 1e9);
        print_header();
    }
    Json list = Json::array();
    const size_t own = options.against.empty() ? results.size() : results.size() / 2;
    for (size_t i = 0; i < results.size(); ++i) {
        if (i == own) fmt::print("against {}\n", options.against);
        device ? print_device_result(results[i]) : print_result(results[i]);
        list.push_back(result_json(built[i].problem, results[i], target, options.threads));
    }
    for (size_t i = 0; own < results.size() && i < own; ++i) {
        const double ratio = median_ratio(results[i], results[own + i]);
        fmt::print("{:<10} takes {:.3f} of the time against which it is held\n", results[i].name, ratio);
        list[i]["against"] = to_string(built[own + i].problem);
        list[i]["time_ratio_median"] = ratio;
    }
    write_file(json, list.dump());
}

void run(const Options& options) {
    std::vector<Problem> problems;
    for (const std::string& text : options.problems) {
        if (text.find(':') == std::string::npos) {
            throw UsageError(fmt::format("problem '{}' has no sizes: {}:b32_q50_kv50, say", text, text));
        }
        problems.push_back(parse_problem(text));
        const Sizes& sizes = problems.back().sizes;
        if (sizes.batch == 0 || sizes.seq_q == 0)
            throw UsageError(fmt::format("problem '{}' has no rows", text));
    }
    if (!options.against.empty()) {
        const Config other = parse_config(options.against);
        for (const Problem& problem : problems) {
            const Config& c = problem.config;
            if (c.d_model != other.d_model ||
                (c.in_proj || c.out_proj) != (other.in_proj || other.out_proj)) {
                throw UsageError(
                    fmt::format("{} and {} are not the same layer: d_model and projections differ",
                                to_string(c), to_string(other)));
            }
        }
    }
    if (options.target == kCudaTarget && !device_is_there())
        throw std::runtime_error("this machine cannot run cuda: it has no driver or no device");
    const std::string target = options.target == kCudaTarget ? kCudaTarget : own_target(options.target);
    const TemporaryFolder folder(system_temporary_folder());
    Json results = Json::array();
    for (const Problem& problem : problems) {
        const std::vector<BuiltPart> parts = build_parts(problem, options, target, folder.path());
        const fs::path json = folder.path() / "results.json";
        run_apart(fmt::format("the library of {}", to_string(problem)), [&] {
            bench_problem(problem, parts, options, target, json);
            return 0;
        });
        for (const Json& result : Json::parse(read_file(json))) results.push_back(result);
    }
    if (options.json.empty()) return;
    const Json all = {{"attnc", kVersion},          {"date", utc_now()},
                      {"cpu", cpu_model()},         {"cpus", std::thread::hardware_concurrency()},
                      {"probe", FmaProbe().name()}, {"results", results}};
    write_file(options.json, all.dump(2) + "\n");
}

}  // namespace

void add_bench_command(CLI::App& app) {
    CLI::App* command =
        app.add_subcommand("bench", "Time a layer beside a probe of the machine's multiply-adds");
    auto options = std::make_shared<Options>();
    command->add_option("problem", options->problems, "Problem strings with sizes: d512_h8_f32:b32_q50_kv50")
        ->required();
    command->add_option(
        "--against", options->against,
        "Configuration to hold each problem against, at the same sizes and in turn: what does an "
        "option cost that a call does not use?");
    command->add_option("--threads", options->threads, "Threads that share the work; default: 1")
        ->check(CLI::Range(1, 1024));
    command->add_option("--seconds", options->seconds, "How long to measure each problem; default: 2")
        ->check(CLI::Range(0.0, 3600.0));
    command->add_option("--target", options->target,
                        "Instruction set, or cuda; default: the best instruction set that this machine runs");
    add_tuning_options(*command, options->tuning);
    command->add_option("--schedule", options->schedule,
                        "Parameters that differ from the built-in defaults, without asking records");
    command->add_option("--json", options->json, "Also write the results to this file");
    command->add_option("--kernel-cache", options->kernel_cache, "Folder that keeps compiled kernels")
        ->envname("ATTNC_KERNEL_CACHE");
    command->footer(
        "Example:\n"
        "  attnc bench d512_h8_f32:b32_q50_kv50 --threads 2 --json bench.json\n"
        "Layer and attention alone take turns with independent multiply-adds in registers; best/peak "
        "compares the\n"
        "best call with the best probe, median/peak is the median over calls of call and probe side by "
        "side.");
    command->callback([options] { run(*options); });
}

}  // namespace attnc
