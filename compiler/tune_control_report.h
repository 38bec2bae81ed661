// What controls of several layers came to: a table for people, JSON for programs, and whether the schedules held.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/tune_control.h"

namespace attnc {

struct ControlledLayer {
    Config config;
    std::string origin;  // of the schedule that was held against others, in words
    std::vector<ControlResult> results;
};

struct ControlReport {
    std::string target;
    int threads = 1;
    size_t random = 0;   // points of each part; 0: a search from a detuned start
    uint64_t seed = 1;   // of the points
    std::string effort;  // of the search
    std::vector<ControlledLayer> layers;
};

// By how much a search from a detuned start may end above the schedule that was there, as a ratio of times: a short one by
// 5 %, a long one by no more than two builds of one code differ by.
double allowed_excess(const std::string& effort);

// "incumbent": the schedule that was there is surely faster, by more than two builds of one code differ by; "other": what was
// found is; "even": neither; "-": nothing was found.
std::string faster(const ControlResult& result);

std::string control_table(const ControlReport& report);
std::string control_json(const ControlReport& report);

// Why the claim does not hold, or is not known to, in one line; empty: it holds.
std::string control_fault(const ControlReport& report);

}  // namespace attnc
