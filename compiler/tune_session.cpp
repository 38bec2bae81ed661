#include "compiler/tune_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

#include "compiler/interrupt.h"
#include "compiler/machine.h"
#include "compiler/tune_trials.h"
#include "tuner/static_estimate.h"

namespace attnc {

namespace {

constexpr double kCallSeconds = 0.6;  // for each size of a whole call
// What the static estimate has to promise before its word alone changes a schedule.
constexpr double kEstimateMargin = 0.05;

class Session {
public:
    Session(const TuneRequest& request, const TuneBench& bench, Journal& journal,
            const TuneListener& listener, Deadline& deadline)
        : request_(request),
          bench_(bench),
          journal_(journal),
          listener_(listener),
          deadline_(deadline),
          trials_({request.config, request.target, request.threads, request.machine}, bench),
          current_(request.start) {}

    TuneResult run();

private:
    void check_start();
    bool tune_part(const TunedPart& part, size_t parts_left);
    void estimate_part(const TunedPart& part);
    void take(const TunedPart& part, const CpuSchedule& schedule);
    void note_kernel(const TunedPart& part, const TrialResult& result, bool improved);
    std::vector<Ratio> compare_calls(const CpuSchedule& other);
    Ratio compare_result();
    void keep_record();
    TuningRecord record();

    const TuneRequest& request_;
    const TuneBench& bench_;
    Journal& journal_;
    const TuneListener& listener_;
    Deadline& deadline_;
    Trials trials_;
    CpuSchedule current_;
    std::map<std::string, KernelResult> kernels_;
    std::map<std::string, CallResult> calls_;
    std::map<std::string, TunedCalls> tuned_calls_;
    bool unkept_ = true;  // the record has not been given away since the schedule changed
};

void Session::check_start() {
    bench_.built_alone(current_);
    MeasureRequest request =
        trials_.request(current_, current_, "the schedule to start from", request_.sizes);
    request.verified_calls = kVerifiedCalls;
    request.seconds = 0;
    const MeasureAnswer answer = bench_.measure(request);
    if (!answer.fault.empty())
        throw std::runtime_error(fmt::format("the schedule to start from cannot be used: {}", answer.fault));
}

// attend_guarded runs the same loops as attend_masked, on rows that have to be done again: too rare to be timed.
void Session::take(const TunedPart& part, const CpuSchedule& schedule) {
    const bool follows = current_.params.attend_guarded == current_.params.attend_masked;
    if (schedule != current_) unkept_ = true;
    current_ = schedule;
    if (part.part.name == "attend_masked" && follows)
        current_.params.attend_guarded = current_.params.attend_masked;
}

// What another layer measured has its ratios, but not its times.
void Session::note_kernel(const TunedPart& part, const TrialResult& result, bool improved) {
    const CallTime& time = improved ? result.candidate : result.incumbent;
    if (time.seconds <= 0 || result.layer != to_string(request_.config)) return;
    KernelResult& kernel = kernels_[part.part.name];
    kernel.seconds = time.seconds, kernel.spread = time.spread, kernel.samples = result.ratio.samples;
}

bool Session::tune_part(const TunedPart& part, size_t parts_left) {
    const SearchSpace space(request_.config, request_.target, part.part, current_, part.sizes);
    const SearchPoint start = space.point_of(current_);
    const auto rank = [&](const std::vector<SearchPoint>& points) {
        return ranked_points(space, points, request_.config, request_.target, part.sizes,
                             caches_of(request_.machine));
    };
    const auto neighbours = [&](const SearchPoint& point) {
        std::vector<SearchPoint> points = space.neighbours(point);
        std::erase_if(points, [&](const SearchPoint& other) { return !bench_.has(space.schedule(other)); });
        return rank(points);
    };
    if (listener_.part_begins) listener_.part_begins(part, space.text(start));
    // Its share of the time that is left; what others leave over comes to those after them.
    double limit = deadline_.left() / static_cast<double>(std::max<size_t>(parts_left, 1));
    if (request_.effort.part_seconds >= 0) limit = std::min(limit, request_.effort.part_seconds);
    Deadline part_deadline(steady_seconds, std::isfinite(limit) ? limit : -1);
    Search search(start, bench_.first(part, space, part_deadline), neighbours, request_.effort.search);
    double incumbent_ratio = 1;
    SearchDriver driver;
    driver.key = [&](const Trial& trial) { return trials_.key(part, space, trial); };
    driver.measure = [&](const Trial& trial) { return trials_.measure(part, space, trial); };
    driver.prepare = [&](const std::vector<SearchPoint>& points) {
        bench_.prepare(schedules_of(space, points));
    };
    driver.told = [&](const Search& at, const Trial& trial, const TrialResult& result, bool from_journal) {
        const bool improved = at.best() == trial.candidate;
        if (trial.repeat > 0) note_kernel(part, result, improved);
        if (listener_.trial) {
            listener_.trial({part.part.name, space.text(trial.candidate), trial.level, trial.repeat, result,
                             incumbent_ratio, at.best_ratio(), improved, from_journal, at.trials(),
                             at.expected(), part_deadline.left()});
        }
        incumbent_ratio = at.best_ratio();
        if (!improved) return;
        take(part, space.schedule(at.best()));
        if (!from_journal) keep_record();
    };
    const bool finished = run_search(search, journal_, driver, part_deadline);
    bench_.prepare({});
    take(part, space.schedule(search.best()));
    if (!kernels_.contains(part.part.name) && !deadline_.passed()) {
        const Trial itself = {
            .id = 0, .candidate = search.best(), .incumbent = search.best(), .level = 0, .repeat = 1};
        note_kernel(part, trials_.measure(part, space, itself), false);
    }
    if (unkept_ && current_ != request_.start) keep_record();
    if (listener_.part_ends)
        listener_.part_ends(part, space.text(search.best()), search.best_ratio(), finished);
    return finished;
}

// Nothing runs: the estimate's best, if it promises clearly more than what is there.
void Session::estimate_part(const TunedPart& part) {
    const SearchSpace space(request_.config, request_.target, part.part, current_, part.sizes);
    const auto estimate = [&](const CpuSchedule& schedule) {
        return static_estimate(schedule, part.part, request_.config, request_.target, part.sizes,
                               caches_of(request_.machine));
    };
    if (listener_.part_begins) listener_.part_begins(part, space.text(space.point_of(current_)));
    const std::vector<SearchPoint> first = bench_.first(part, space, deadline_);
    const double ratio = first.empty() ? 1 : estimate(space.schedule(first.front())) / estimate(current_);
    const bool better = ratio < 1 - kEstimateMargin;
    if (better) take(part, space.schedule(first.front()));
    if (listener_.part_ends)
        listener_.part_ends(part, space.text(space.point_of(current_)), better ? ratio : 1, true);
}

// Whole calls by the schedule of the moment and by another one, side by side; in the order of the sizes.
std::vector<Ratio> Session::compare_calls(const CpuSchedule& other) {
    bench_.built_alone(current_);
    bench_.built_alone(other);
    MeasureRequest request = trials_.request(current_, other, "the schedule that was found", request_.sizes);
    request.verified_calls = kVerifiedCalls;
    request.seconds = kCallSeconds;
    request.fewest_rounds = level_rounds(2);
    const MeasureAnswer answer = bench_.measure(request);
    if (!answer.fault.empty())
        throw std::runtime_error(fmt::format("the schedule that was found: {}", answer.fault));
    std::vector<Ratio> ratios;
    for (size_t i = 0; i < answer.problems.size(); ++i) {
        const MeasureAnswer::Times& times = answer.problems[i];
        const double median = median_of(times.candidate);
        const std::string sizes = to_string(request_.sizes[i]);
        ratios.push_back(paired_ratio(times.candidate, times.incumbent));
        calls_[sizes] = {.ms = median * 1e3,
                         .spread = relative_spread(times.candidate),
                         .samples = static_cast<int64_t>(times.candidate.size()),
                         .probe_gflops = times.probe / 1e9};
        tuned_calls_[sizes].seconds = median;
        tuned_calls_[sizes].peak = times.operations / median / times.probe;
    }
    return ratios;
}

// Beside the start and beside the default, which most starts are.
Ratio Session::compare_result() {
    const std::vector<Ratio> over_start = compare_calls(request_.start);
    const CpuSchedule usual = default_schedule(request_.config, request_.target);
    const std::vector<Ratio> over_default = usual == request_.start ? over_start : compare_calls(usual);
    for (size_t i = 0; i < over_start.size(); ++i) {
        TunedCalls& calls = tuned_calls_[to_string(request_.sizes[i])];
        calls.over_start = over_start[i], calls.over_default = over_default[i];
    }
    return geometric_mean(over_start);
}

TuningRecord Session::record() {
    TuningRecord record = {.config = request_.config,
                           .sizes = request_.sizes,
                           .target = request_.target,
                           .machine = request_.machine,
                           .threads = request_.threads,
                           .schedule = current_,
                           .kernels = {},
                           .calls = calls_,
                           .attnc = request_.version,
                           .halide = bench_.versions.halide,
                           .llvm = bench_.versions.llvm,
                           .date = utc_now(),
                           .effort = request_.effort.name};
    if (!request_.effort.measures) return record;
    for (const auto& [kernel, hash] : bench_.built(current_).object_hashes) {
        record.kernels[kernel] = kernels_.contains(kernel) ? kernels_.at(kernel) : KernelResult{};
        record.kernels[kernel].object_hash = hash;
    }
    return record;
}

void Session::keep_record() {
    compare_calls(request_.start);
    if (listener_.record) listener_.record(record());
    unkept_ = false;
}

TuneResult Session::run() {
    TuneResult result;
    if (request_.effort.measures) check_start();
    for (size_t i = 0;; ++i) {
        check_interrupt();
        // Which kernels run at which sizes follows from the parts before.
        const std::vector<TunedPart> parts =
            tuned_parts(request_.config, request_.target, request_.sizes, current_);
        if (i == parts.size()) break;
        const TunedPart& part = parts[i];
        if (!is_asked_for(part, request_.kernels)) continue;
        size_t left = 0;
        for (size_t n = i; n < parts.size(); ++n)
            left += is_asked_for(parts[n], request_.kernels) && parts[n].not_tuned.empty() ? 1 : 0;
        if (!part.not_tuned.empty()) {
            if (listener_.part_skipped) listener_.part_skipped(part, part.not_tuned);
        } else if (!request_.effort.measures) {
            estimate_part(part);
        } else {
            result.finished = tune_part(part, left) && result.finished;
        }
    }
    if (!request_.effort.measures) {
        result.record = record();
        if (listener_.record) listener_.record(result.record);
        return result;
    }
    result.ratio = compare_result();
    if (surely_above(result.ratio, 1) && current_ != request_.start) {
        if (listener_.note) {
            listener_.note(fmt::format("whole calls take {:.3f} of the start's time: the start stays",
                                       result.ratio.median));
        }
        current_ = request_.start;
        kernels_.clear();
        result.ratio = compare_result();
    }
    result.record = record();
    result.calls = tuned_calls_;
    if (listener_.record) listener_.record(result.record);
    return result;
}

}  // namespace

CacheSizes caches_of(const Machine& machine) {
    CacheSizes sizes;
    if (machine.l1d_bytes > 0) sizes.l1d_bytes = machine.l1d_bytes;
    if (machine.l2_bytes > 0) sizes.l2_bytes = machine.l2_bytes;
    return sizes;
}

TuneResult tune(const TuneRequest& request, const TuneBench& bench, Journal& journal,
                const TuneListener& listener, Deadline& deadline) {
    return Session(request, bench, journal, listener, deadline).run();
}

}  // namespace attnc
