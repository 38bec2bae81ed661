#include "compiler/tune_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "compiler/brief_sizes.h"
#include "compiler/hash.h"
#include "compiler/tune_efforts.h"
#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

double geometric(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += std::log(value);
    return std::exp(sum / static_cast<double>(values.size()));
}

CallTime call_time(const MeasureAnswer& answer, std::vector<double> MeasureAnswer::Times::*which) {
    CallTime time;
    std::vector<double> medians, peaks;
    for (const MeasureAnswer::Times& times : answer.problems) {
        medians.push_back(median_of(times.*which));
        peaks.push_back(times.operations / medians.back() / times.probe);
        time.spread = std::max(time.spread, relative_spread(times.*which));
    }
    time.seconds = geometric(medians), time.peak = geometric(peaks);
    return time;
}

TrialResult trial_result(const MeasureAnswer& answer) {
    if (!answer.fault.empty()) return {{}, answer.fault};
    std::vector<Ratio> ratios;
    ratios.reserve(answer.problems.size());
    for (const MeasureAnswer::Times& times : answer.problems)
        ratios.push_back(paired_ratio(times.candidate, times.incumbent));
    TrialResult result = {geometric_mean(ratios), ""};
    if (result.ratio.samples < 1) return {{}, "no round gave a time"};
    result.candidate = call_time(answer, &MeasureAnswer::Times::candidate);
    result.incumbent = call_time(answer, &MeasureAnswer::Times::incumbent);
    return result;
}

// The part of a schedule that decides how long the part's work takes: its own fields and Layout; in attention its other forms
// too, which share the queries; of a whole call all.
std::string deciding_text(const TunedPart& part, const CpuSchedule& schedule) {
    if (part.work == TunedWork::kCall) return to_string(schedule);
    std::vector<int> kernels = part.part.kernels;
    if (part.part.name.starts_with("attend")) {
        for (const int form : {ATTNC_KERNEL_ATTEND, ATTNC_KERNEL_ATTEND_NARROW, ATTNC_KERNEL_ATTEND_SINGLE})
            kernels.push_back(form);
    }
    std::string text;
    for (const int kernel : kernels) text += to_string(schedule, kernel) + ";";
    return text;
}

// What may take the incumbent's place is measured at the part's own sizes before it does.
std::vector<Sizes> sizes_of(const TunedPart& part, const Trial& trial) {
    return trial.repeat > 0 ? part.sizes : brief_sizes(part.work, part.sizes);
}

// The layer as far as the part's calls know of it. On one thread attention does for each head what it does for the others,
// and the output projection takes merged heads as one row: how many heads there are, or how a row is divided among them,
// only repeats the same work. On more threads heads are what is shared out.
std::string layer_text(const std::string& part, const Config& config, int threads) {
    Config alike = config;
    if (threads == 1 && part == "project_out") {
        alike.num_heads = alike.num_kv_heads = 1;
        alike.head_dim = alike.v_head_dim = config.num_heads * config.v_head_dim;
    }
    if (threads == 1 && part.starts_with("attend") && part != "attend_decode") {
        alike.num_heads = config.num_heads / config.num_kv_heads;
        alike.num_kv_heads = 1;
        alike.d_model = alike.k_dim = alike.v_dim = alike.num_heads * config.head_dim;
    }
    return to_string(alike);
}

}  // namespace

std::vector<CpuSchedule> schedules_of(const SearchSpace& space, const std::vector<SearchPoint>& points) {
    std::vector<CpuSchedule> schedules;
    schedules.reserve(points.size());
    for (const SearchPoint& point : points) schedules.push_back(space.schedule(point));
    return schedules;
}

bool same_bits(const CpuSchedule& a, const CpuSchedule& b) {
    return a.layout.tile_kv == b.layout.tile_kv && a.layout.split_kv == b.layout.split_kv;
}

Trials::Trials(const TrialSetup& setup, const TuneBench& bench)
    : setup_(setup), bench_(bench), cpus_(usable_cpus()) {
    cpus_.resize(std::min(cpus_.size(), static_cast<size_t>(setup.threads)));
}

MeasureRequest Trials::request(const CpuSchedule& candidate, const CpuSchedule& incumbent,
                               const std::string& fault_of, const std::vector<Sizes>& sizes) const {
    const BuiltSchedule own = bench_.built(candidate), other = bench_.built(incumbent);
    for (const BuiltSchedule* built : {&other, &own}) {
        if (!built->fault.empty()) throw std::runtime_error(fmt::format("{}: {}", fault_of, built->fault));
    }
    MeasureRequest request = {.candidate = own.library,
                              .incumbent = other.library,
                              .target = setup_.target,
                              .threads = setup_.threads,
                              .cpus = cpus_,
                              .problems = {},
                              .same_bits = same_bits(candidate, incumbent)};
    for (const Sizes& size : sizes) request.problems.push_back({setup_.config, size});
    return request;
}

TrialResult Trials::measure(const TunedPart& part, const SearchSpace& space, const Trial& trial) const {
    const CpuSchedule candidate = space.schedule(trial.candidate);
    if (const BuiltSchedule built = bench_.built(candidate); !built.fault.empty()) return {{}, built.fault};
    const std::vector<Sizes> sizes = sizes_of(part, trial);
    MeasureRequest asked = request(candidate, space.schedule(trial.incumbent), "the incumbent", sizes);
    asked.work = part.work;
    // What may take the incumbent's place is right at other sizes too, as is what has bits of its own.
    asked.verified_calls = trial.repeat > 0 || !asked.same_bits ? kVerifiedCalls : 0;
    asked.seconds = level_seconds(trial.level) / std::sqrt(static_cast<double>(sizes.size()));
    asked.fewest_rounds = level_rounds(trial.level);
    asked.give_up_above = kGiveUpAbove;
    TrialResult result = trial_result(bench_.measure(asked));
    result.layer = to_string(setup_.config);
    return result;
}

std::string Trials::key(const TunedPart& part, const SearchSpace& space, const Trial& trial) const {
    const Machine& machine = setup_.machine;
    const std::string& name = part.part.name;
    const std::string layer =
        trial.repeat > 0 ? to_string(setup_.config) : layer_text(name, setup_.config, setup_.threads);
    std::string all = fmt::format("{} {} {} {} {} {} {} {} {}", bench_.versions.identity, layer,
                                  setup_.target, setup_.threads, machine.cpu, machine.l1d_bytes,
                                  machine.l2_bytes, static_cast<int>(part.work), name);
    for (const Sizes& size : sizes_of(part, trial)) all += " " + to_string(size);
    all += fmt::format(" {} {} {} {} {}", deciding_text(part, space.schedule(trial.candidate)),
                       deciding_text(part, space.schedule(trial.incumbent)), level_seconds(trial.level),
                       level_rounds(trial.level), trial.repeat);
    return fmt::format("{} {} {}.{} {}", layer, space.text(trial.candidate), trial.level, trial.repeat,
                       hash128_hex(all));
}

std::string analysis_key_begin(const std::string& part, const Config& config) {
    return fmt::format("loops of {} {} ", part, kernel_config(config, kernel_by_name(part)));
}

std::vector<std::string> journal_key_begins(const Config& config, int threads) {
    std::set<std::string> begins = {to_string(config) + " "};
    for (const SearchPart& part : search_parts(config)) {
        begins.insert(layer_text(part.name, config, threads) + " ");
        begins.insert(analysis_key_begin(part.name, config));
    }
    return {begins.begin(), begins.end()};
}

}  // namespace attnc
