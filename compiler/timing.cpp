#include "compiler/timing.h"

#include <algorithm>

#include "compiler/layer_data.h"

namespace attnc {

namespace {

using Clock = std::chrono::steady_clock;

// Seconds that calls are timed for at once: far above what the clock resolves.
constexpr double kShortest = 1e-3;

struct ProbeTask {
    const FmaProbe& probe;
    int64_t pieces;
};

int probe_task(void* data, int64_t /*index*/) {
    const auto& task = *static_cast<const ProbeTask*>(data);
    task.probe.run(task.pieces);
    return 0;
}

// A work with what was measured of it so far.
struct Series {
    const TimedWork& work;
    int64_t repeats = 1;
    std::vector<double> times, ratios;

    // Calls enough to be timed; returns the seconds of one.
    double time_calls() const {
        const Clock::time_point begin = Clock::now();
        for (int64_t i = 0; i < repeats; ++i) work.call();
        return seconds_since(begin) / static_cast<double>(repeats);
    }

    // Runs until caches and branch predictors know it, and decides how many calls are timed at once.
    void warm_up() {
        const double once = time_calls();
        repeats = static_cast<int64_t>(std::clamp(kShortest / std::max(once, 1e-7), 1.0, 1e4));
        if (once > 100 * kShortest) return;  // a long call warms itself
        for (int i = 0; i < 3; ++i) time_calls();
    }

    TimedResult result(double probe_best) const {
        TimedResult result;
        result.name = work.name;
        result.operations = work.operations;
        result.calls = static_cast<int64_t>(times.size()) * repeats;
        const double best = *std::min_element(times.begin(), times.end());
        result.ms_best = best * 1e3;
        result.ms_median = median(times) * 1e3;
        result.times = times;
        result.probe_best = probe_best;
        result.fraction_best = work.operations / best / probe_best;
        result.fraction_median = median(ratios);
        return result;
    }
};

}  // namespace

TimingPool::TimingPool(int threads) : threads_(threads) {
    attnc_error error;
    check_status(attnc_pool_create(threads, &pool_, &error), error, "attnc_pool_create");
}

TimingPool::~TimingPool() { attnc_pool_destroy(pool_); }

const attnc_executor* TimingPool::executor() const { return attnc_pool_executor(pool_); }

double TimingPool::run(const FmaProbe& probe) const {
    ProbeTask task = {probe, threads_ == 1 ? 10 : 100};  // starting threads takes time too
    const attnc_executor& threads = *executor();
    const Clock::time_point begin = Clock::now();
    threads.parallel_for(threads.context, threads_, probe_task, &task);
    const double seconds = seconds_since(begin);
    return threads_ * static_cast<double>(task.pieces) * probe.operations() / seconds;
}

std::vector<TimedResult> time_in_turn(const std::vector<TimedWork>& works, const TimingPool& pool,
                                      const TimingOptions& options) {
    std::vector<Series> all;
    all.reserve(works.size());
    for (const TimedWork& work : works) all.push_back({work, 1, {}, {}});
    for (Series& series : all) series.warm_up();
    double probe_best = pool.run(options.probe);

    const Clock::time_point begin = Clock::now();
    for (size_t round = 0; round < options.fewest_rounds || seconds_since(begin) < options.seconds; ++round) {
        for (Series& series : all) {
            const double before = pool.run(options.probe);
            for (int i = 0; i < series.work.settling_calls; ++i) series.work.call();
            const double time = series.time_calls();
            const double after = pool.run(options.probe);
            probe_best = std::max({probe_best, before, after});
            series.times.push_back(time);
            series.ratios.push_back(series.work.operations / time / ((before + after) / 2));
        }
    }
    std::vector<TimedResult> results;
    results.reserve(all.size());
    for (const Series& series : all) results.push_back(series.result(probe_best));
    return results;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

double median_ratio(const TimedResult& a, const TimedResult& b) {
    std::vector<double> ratios;
    for (size_t round = 0; round < std::min(a.times.size(), b.times.size()); ++round)
        ratios.push_back(a.times[round] / b.times[round]);
    return median(ratios);
}

double best_ratio(const TimedResult& a, const TimedResult& b) { return a.ms_best / b.ms_best; }

}  // namespace attnc
