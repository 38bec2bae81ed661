// Times calls that take turns, each beside a probe of the machine's multiply-adds on the same threads: the one way that
// attnc measures.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compiler/fma_probe.h"
#include "runtime/attnc.h"

namespace attnc {

// Threads of a measurement; at one the executor runs on the calling thread.
class TimingPool {
public:
    explicit TimingPool(int threads);
    TimingPool(const TimingPool&) = delete;
    TimingPool& operator=(const TimingPool&) = delete;
    ~TimingPool();
    const attnc_executor* executor() const;
    int threads() const { return threads_; }

    // Operations a second of all threads together.
    double run(const FmaProbe& probe) const;

private:
    attnc_pool* pool_ = nullptr;
    int threads_;
};

struct TimedWork {
    std::string name;
    double operations = 0;  // floating-point, of one call
    std::function<void()> call;
    int settling_calls = 0;  // at the beginning of each of its turns, not timed
};

struct TimedResult {
    std::string name;
    double operations = 0;
    int64_t calls = 0;  // that were timed
    double ms_best = 0, ms_median = 0;
    std::vector<double> times;   // seconds of a call in each round: rounds of all works are side by side
    double probe_best = 0;       // operations a second of all threads together
    double fraction_best = 0;    // best call against best probe
    double fraction_median = 0;  // median of the ratios of calls to the probes beside them
};

struct TimingOptions {
    double seconds = 2;        // for all works together, after the warm-up
    size_t fewest_rounds = 7;  // however long they take
    FmaProbe probe;
};

// The works take turns, each beside a probe on the threads of `pool`.
std::vector<TimedResult> time_in_turn(const std::vector<TimedWork>& works, const TimingPool& pool,
                                      const TimingOptions& options);

// Median over the rounds of a's time divided by b's.
double median_ratio(const TimedResult& a, const TimedResult& b);
// Best time of a divided by the best of b.
double best_ratio(const TimedResult& a, const TimedResult& b);

double median(std::vector<double> values);

double seconds_since(std::chrono::steady_clock::time_point begin);

}  // namespace attnc
