// attnc_bar: measures how fast attnc is, row by row, beside how fast it has to be.
#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/bar_row.h"
#include "bench/memory_growth.h"
#include "compiler/files.h"
#include "compiler/machine.h"

namespace attnc::bench {

struct OneCore::Cores {
    cpu_set_t set;
};

OneCore::OneCore() : before_(new Cores) {
    ::sched_getaffinity(0, sizeof before_->set, &before_->set);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &before_->set)) continue;
        CPU_SET(cpu, &one);
        break;
    }
    ::sched_setaffinity(0, sizeof one, &one);
}

OneCore::~OneCore() {
    ::sched_setaffinity(0, sizeof before_->set, &before_->set);
    delete before_;
}

namespace {

using Json = nlohmann::ordered_json;

struct Options {
    std::vector<std::string> rows;
    double seconds = 0.5;
    std::string json, memory_of, archive;
    bool list = false;
};

bool is_wanted(const std::string& name, const std::vector<std::string>& texts) {
    return texts.empty() || std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
               return name.find(text) != std::string::npos;
           });
}

Json measure(const BarRow& row) {
    const Figure figure = row.measure();
    const bool holds = row.holds(figure.measured);
    fmt::print("{:<52} {:>9.3f} {} {:<7.7g} {:<5} {}; {}\n", row.name, figure.measured,
               row.at_most ? "<=" : ">=", row.bar, holds ? "holds" : "SHORT", row.unit, figure.note);
    std::fflush(stdout);
    return {{"row", row.name},    {"measured", figure.measured},
            {"bar", row.bar},     {"at_most", row.at_most},
            {"unit", row.unit},   {"holds", holds},
            {"note", figure.note}};
}

int run(const Options& options, const std::string& executable) {
    if (!options.memory_of.empty()) {
        fmt::print("{}\n", memory_growth(parse_problem(options.memory_of), options.archive));
        return 0;
    }
    Libraries libraries;
    const TimingPool two(2), one(1);
    const BarContext context = {libraries, best_target(), options.seconds, two, one, executable};
    Rows rows;
    for (const auto& add : {add_stage_rows, add_call_rows, add_decode_rows, add_thread_rows, add_cliff_rows,
                            add_process_rows}) {
        add(context, rows);
    }
    std::erase_if(rows, [&](const BarRow& row) { return !is_wanted(row.name, options.rows); });
    if (rows.empty()) throw std::runtime_error("no row of the bar has such a name: --list shows them");
    Json measured = Json::array();
    int64_t shortfalls = 0;
    for (const BarRow& row : rows) {
        if (options.list) {
            fmt::print("{:<52} {} {:<7.7g} {}\n", row.name, row.at_most ? "<=" : ">=", row.bar, row.unit);
            continue;
        }
        measured.push_back(measure(row));
        if (!measured.back()["holds"]) ++shortfalls;
    }
    if (options.list) return 0;
    fmt::print("{} of {} rows hold\n", rows.size() - static_cast<size_t>(shortfalls), rows.size());
    if (!options.json.empty()) {
        const Json all = {{"date", utc_now()},
                          {"cpu", cpu_model()},
                          {"cpus", std::thread::hardware_concurrency()},
                          {"target", context.target},
                          {"probe", FmaProbe().name()},
                          {"rows", measured}};
        write_file(options.json, all.dump(2) + "\n");
    }
    return shortfalls == 0 ? 0 : 1;
}

}  // namespace

}  // namespace attnc::bench

int main(int argc, char** argv) {
    using namespace attnc::bench;
    Options options;
    CLI::App app("How fast attnc is beside how fast it has to be. Exit code 1 where a row falls short.");
    app.add_option("--rows", options.rows, "Only rows whose name has one of these texts in it");
    app.add_option("--seconds", options.seconds, "How long to measure for each figure; default: 0.5")
        ->check(CLI::Range(0.0, 3600.0));
    app.add_option("--json", options.json, "Also write the rows to this file");
    app.add_flag("--list", options.list, "Name the rows and measure nothing");
    app.add_option("--memory-of", options.memory_of, "Print the bytes that a call of this problem grows by")
        ->group("");
    app.add_option("--archive", options.archive)->group("");
    CLI11_PARSE(app, argc, argv);
    try {
        return run(options, std::filesystem::read_symlink("/proc/self/exe"));
    } catch (const std::exception& error) {
        fmt::print(stderr, "attnc_bar: {}\n", error.what());
        return 1;
    }
}
