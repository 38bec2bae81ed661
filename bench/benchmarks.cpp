// attnc_benchmarks: layers and their stages as Google Benchmarks, each interleaved with the probe of multiply-adds.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <set>
#include <sstream>

#include "bench/measured_call.h"
#include "compiler/files.h"

namespace attnc::bench {

namespace {

using Clock = std::chrono::steady_clock;

// Time of calls between two probes: long beside a probe, short beside a machine's changes of speed.
constexpr double kBetweenProbes = 10e-3;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What benchmarks share: they run one after another, and the library runs each several times to find out how often.
class Workshop {
public:
    const TimingPool& pool(int threads) { return pools_.try_emplace(threads, threads).first->second; }

    const MeasuredCall& call(const CallName& name) {
        const std::string text = to_string(name);
        if (text != current_name_) {
            current_ = {};
            current_ = make_call(name, libraries_, pool(name.threads));
            current_name_ = text;
        }
        return current_;
    }

private:
    Libraries libraries_;
    std::map<int, TimingPool> pools_;
    std::string current_name_;
    MeasuredCall current_;
};

// The time is that of the calls alone; peak_fraction compares the best call with the best probe.
void run_benchmark(benchmark::State& state, Workshop& workshop, const CallName& name) {
    const TimingPool& pool = workshop.pool(name.threads);
    const MeasuredCall* measured = nullptr;
    try {
        measured = &workshop.call(name);
    } catch (const std::exception& error) {
        state.SkipWithError(error.what());
        return;
    }
    measured->call();
    double probe = pool.run(FmaProbe()), best = 1e30, since_probe = 0;
    for ([[maybe_unused]] auto iteration : state) {
        const Clock::time_point begin = Clock::now();
        measured->call();
        const double seconds = seconds_since(begin);
        state.SetIterationTime(seconds);
        best = std::min(best, seconds);
        since_probe += seconds;
        if (since_probe < kBetweenProbes) continue;
        probe = std::max(probe, pool.run(FmaProbe()));
        since_probe = 0;
    }
    probe = std::max(probe, pool.run(FmaProbe()));
    using benchmark::Counter;
    state.counters["flops"] = Counter(measured->operations, Counter::kIsIterationInvariantRate);
    state.counters["bytes"] = Counter(measured->bytes, Counter::kIsIterationInvariantRate, Counter::kIs1024);
    state.counters["peak_fraction"] = measured->operations / best / probe;
}

// Problem strings, one a line.
std::vector<std::string> read_shapes(const std::string& path) {
    std::vector<std::string> problems;
    std::istringstream text(read_file(path));
    for (std::string line; std::getline(text, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        if (std::string problem; words >> problem) problems.push_back(problem);
    }
    return problems;
}

void register_benchmarks(Workshop& workshop, const std::vector<std::string>& problems,
                         const std::vector<int>& threads) {
    std::set<std::string> known;
    const auto add = [&](const CallName& name) {
        const std::string text = to_string(name);
        if (!known.insert(text).second) return;
        benchmark::RegisterBenchmark(
            text.c_str(),
            [&workshop, name](benchmark::State& state) { run_benchmark(state, workshop, name); })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
    };
    for (const std::string& text : problems) {
        const Problem problem = parse_problem(text);
        for (const int count : threads) {
            add({problem, {}, count});
            for (const CallName& stage : stages_of(problem, count)) add(stage);
        }
    }
}

int run(int argc, char** argv) {
    std::vector<std::string> problems,
        shapes = {ATTNC_BENCH_SHAPES "/layers.txt", ATTNC_BENCH_SHAPES "/models.txt"};
    std::vector<int> threads = {1, 2};
    CLI::App app(
        "Layers and their stages as Google Benchmarks. Options of that library, --benchmark_filter=REGEX and "
        "--benchmark_min_time=SECONDS among them, go to it.");
    app.add_option("problem", problems,
                   "Problem strings: d512_h8_f32:b32_q50. Default: those of the shape files");
    app.add_option("--shapes", shapes, "Files of problem strings; default: bench/shapes");
    app.add_option("--threads", threads, "Numbers of threads; default: 1 and 2")->check(CLI::Range(1, 1024));
    // What is the library's goes past this program's own options.
    std::vector<char*> own = {argv[0]}, library = {argv[0]};
    for (int i = 1; i < argc; ++i)
        (std::string_view(argv[i]).starts_with("--benchmark_") ? library : own).push_back(argv[i]);
    CLI11_PARSE(app, static_cast<int>(own.size()), own.data());
    if (problems.empty()) {
        for (const std::string& file : shapes) {
            for (const std::string& problem : read_shapes(file)) problems.push_back(problem);
        }
    }
    Workshop workshop;
    register_benchmarks(workshop, problems, threads);
    int count = static_cast<int>(library.size());
    benchmark::Initialize(&count, library.data());
    if (benchmark::ReportUnrecognizedArguments(count, library.data())) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

}  // namespace

}  // namespace attnc::bench

int main(int argc, char** argv) {
    try {
        return attnc::bench::run(argc, argv);
    } catch (const std::exception& error) {
        fmt::print(stderr, "attnc_benchmarks: {}\n", error.what());
        return 1;
    }
}
