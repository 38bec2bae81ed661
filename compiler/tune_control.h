// Holds the schedule that a build takes against what else there is, kernel by kernel: points drawn at random, or what a
// search finds from a start that is detuned on purpose. The schedule stays; nothing is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/tune_session.h"

namespace attnc {

struct ControlRequest {
    Config config;  // complete
    std::vector<Sizes> sizes;
    std::string target;
    int threads = 1;
    Machine machine;
    CpuSchedule schedule;              // that is held against the others
    std::vector<std::string> kernels;  // parts that are tried; empty: all
    size_t random = 0;                 // points of each part; 0: a search from a detuned start
    uint64_t seed = 1;                 // of the points
    Effort effort;                     // of the search
    std::string version;               // of attnc
};

// What came of one part.
struct ControlResult {
    std::string part;
    std::vector<Sizes> sizes;  // at which it was timed
    int64_t points = 0;        // that the part has beside the schedule's own
    int64_t tried = 0;         // of them
    int64_t trials = 0, known = 0,
            failed = 0;          // measurements; those that the journal had, and that were none
    double seconds = 0;          // that it took
    std::string schedule, best;  // the part's fields, and those of the best that was found
    std::optional<Ratio> ratio;  // its time over the schedule's; nothing: none was found
    bool finished = true;        // false: the time was up
};

struct ControlListener {
    std::function<void(const TunedPart&, const std::string& schedule)> part_begins;
    std::function<void(const TunedPart&, const std::string& why)> part_skipped;
    std::function<void(const TuneEvent&)> trial;
    std::function<void(const ControlResult&)> part_ends;
};

// Throws what `tune` throws.
std::vector<ControlResult> run_control(const ControlRequest& request, const TuneBench& bench,
                                       Journal& journal, const ControlListener& listener, Deadline& deadline);

}  // namespace attnc
