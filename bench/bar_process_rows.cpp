// Rows of the bar that take a process of their own: memory, and the time from its start.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <stdexcept>

#include "bench/bar_row.h"
#include "compiler/subprocess.h"
#include "support/random.h"

namespace attnc::bench {

namespace {

constexpr std::chrono::seconds kTimeLimit{120};

double number_from(const std::vector<std::string>& command) {
    const ProcessResult result = run_process(command, kTimeLimit);
    if (!result.succeeded()) {
        throw std::runtime_error(fmt::format("{}: {} {}", quoted(command),
                                             describe_failure(result, kTimeLimit), last_line(result.output)));
    }
    return std::stod(result.output);
}

void add_memory_rows(const BarContext& context, Rows& rows) {
    for (const char* config : {"d512_h8_f32", "d512_h8_f32_causal"}) {
        constexpr double kMiB = 1 << 20;
        constexpr double kTokens = 16384.0 * 512 * sizeof(float) / kMiB;
        rows.push_back(
            {fmt::format("memory {} seq 16384", config), "MiB of growth", true, 5 * kTokens + 32,
             [&context, config] {
                 const auto archive = context.libraries.archive(parse_config(config), context.target);
                 const std::string problem = fmt::format("{}:b1_q16384", config);
                 const double bytes =
                     number_from({context.executable, "--memory-of", problem, "--archive", archive.string()});
                 return Figure{bytes / kMiB,
                               fmt::format("input and output {} MiB, q, k and v {} MiB, 32 more are allowed",
                                           2 * kTokens, 3 * kTokens)};
             }});
    }
}

double now_ms() {
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// Best of many starts; the weights' file is in the page cache by then.
Figure cold_start(const BarContext& context) {
    const std::filesystem::path archive =
        context.libraries.archive(parse_config("d512_h8_f32"), context.target);
    const std::filesystem::path folder = archive.parent_path();
    const std::string name = archive.stem().string().substr(3);
    const std::string program = folder / "cold_start", weights = folder / "weights";
    const std::vector<std::string> compile = {find_program("cc"),
                                              "-O2",
                                              "-I" + folder.string(),
                                              "-include",
                                              name + ".h",
                                              "-DLIBRARY=" + name,
                                              ATTNC_BENCH_COLD_START,
                                              archive.string(),
                                              (folder / "libattnc_runtime.a").string(),
                                              "-pthread",
                                              "-o",
                                              program};
    if (compile.front().empty())
        throw std::runtime_error("cc not found on PATH: the cold start needs a C compiler");
    const ProcessResult compiled = run_process(compile, kTimeLimit);
    if (!compiled.succeeded())
        throw std::runtime_error(
            fmt::format("cannot compile the cold start: {}", last_line(compiled.output)));
    const std::vector<float> numbers = generated(4 * (512 * 512 + 512), 3, 0.0625F);
    write_file(weights, {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)});
    std::vector<double> times;
    for (int i = 0; i < 40; ++i) {
        const double begin = now_ms();
        times.push_back(number_from({program, weights}) / 1e6 - begin);
    }
    return {*std::min_element(times.begin(), times.end()),
            fmt::format("median {:.2f} ms of 40 starts", median(times))};
}

}  // namespace

void add_process_rows(const BarContext& context, Rows& rows) {
    add_memory_rows(context, rows);
    rows.push_back(
        {"cold start d512_h8_f32:b1_q50", "ms", true, 15, [&context] { return cold_start(context); }});
}

}  // namespace attnc::bench
