#include "compiler/paired_timing.h"

#include <algorithm>
#include <chrono>

namespace attnc {

namespace {

using Clock = std::chrono::steady_clock;

// Seconds that calls are timed for at once: far above what the clock resolves.
constexpr double kShortest = 1e-3;
constexpr int64_t kProbeEvery = 4;  // rounds

double time_calls(const std::function<void()>& work, int64_t calls) {
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) work();
    return seconds_since(begin) / static_cast<double>(calls);
}

}  // namespace

PairedTimes time_pair(const std::function<void()>& work, const std::function<void()>& other,
                      const TimingPool& pool, const PairedOptions& options) {
    time_calls(work, 1);
    const double once = time_calls(other, 1);
    const auto calls = static_cast<int64_t>(std::clamp(kShortest / std::max(once, 1e-7), 1.0, 1e4));
    if (once < 100 * kShortest) {  // a long call warms itself
        time_calls(work, 2 * calls);
        time_calls(other, 2 * calls);
    }
    PairedTimes result;
    result.probe_best = pool.run(options.probe);
    const Clock::time_point begin = Clock::now();
    for (int64_t round = 0;; ++round) {
        const bool enough_rounds = result.times.size() >= options.fewest_rounds;
        const double passed = seconds_since(begin);
        if (enough_rounds && (passed >= options.seconds || (options.enough && options.enough(result)))) break;
        if (passed >= options.longest && !result.times.empty()) break;
        // Whoever comes first in a round finds the caches as the other one left them: in turn.
        double time = 0, other_time = 0;
        if (round % 2 == 0) time = time_calls(work, calls);
        other_time = time_calls(other, calls);
        if (round % 2 == 1) time = time_calls(work, calls);
        result.times.push_back(time);
        result.other.push_back(other_time);
        if (round % kProbeEvery == 0)
            result.probe_best = std::max(result.probe_best, pool.run(options.probe));
    }
    return result;
}

}  // namespace attnc
