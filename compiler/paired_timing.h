// Times two works that take turns, round by round, for as long as it takes to tell them apart.
#pragma once

#include <functional>
#include <vector>

#include "compiler/timing.h"

namespace attnc {

struct PairedTimes {
    std::vector<double> times, other;  // seconds of a call, side by side
    double probe_best = 0;             // operations a second of all threads together, between the rounds
};

struct PairedOptions {
    double seconds = 0.2;      // after the warm-up
    size_t fewest_rounds = 9;  // however long they take
    double longest = 10;       // seconds, after which fewer rounds do too
    FmaProbe probe;
    // Whether the rounds so far suffice; asked after each from fewest_rounds on. May be empty.
    std::function<bool(const PairedTimes&)> enough;
};

PairedTimes time_pair(const std::function<void()>& work, const std::function<void()>& other,
                      const TimingPool& pool, const PairedOptions& options);

}  // namespace attnc
