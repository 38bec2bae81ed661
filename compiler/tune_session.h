// Tunes the schedule of one layer for some sizes on this machine: part by part, from a start, into a record that is kept
// at each step forward.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compiler/tune_bench.h"
#include "compiler/tune_efforts.h"
#include "compiler/tune_parts.h"
#include "schedules/tuning_record.h"
#include "tuner/journal.h"
#include "tuner/run_search.h"
#include "tuner/static_estimate.h"

namespace attnc {

struct TuneRequest {
    Config config;  // complete
    std::vector<Sizes> sizes;
    std::string target;
    int threads = 1;
    Machine machine;
    CpuSchedule start;
    Effort effort;
    std::vector<std::string> kernels;  // parts that are tuned; empty: all
    std::string version;               // of attnc
};

CacheSizes caches_of(const Machine& machine);

// What happened, for displays and reports.
struct TuneEvent {
    std::string part;
    std::string candidate;  // its fields
    int level = 0, repeat = 0;
    TrialResult result;          // against the incumbent
    double incumbent_ratio = 1;  // the incumbent's time over that of the part's start
    double best_ratio = 1;       // the same of the best, after this trial
    bool improved = false;       // it is the new best
    bool from_journal = false;
    int64_t trial = 0, expected = 0;  // of the part: done, and about how many are left
    double seconds_left = 0;          // of the part's time; infinity: any
};

struct TuneListener {
    std::function<void(const TunedPart&, const std::string& start)> part_begins;
    std::function<void(const TunedPart&, const std::string& why)> part_skipped;
    std::function<void(const TuneEvent&)> trial;
    std::function<void(const TunedPart&, const std::string& best, double ratio, bool finished)> part_ends;
    std::function<void(const TuningRecord&)> record;  // better than what came before: to be kept
    std::function<void(const std::string&)> note;
};

// Whole calls at one of the sizes.
struct TunedCalls {
    double seconds = 0, peak = 0;  // of the result: median, and fraction of the multiply-adds at the time
    Ratio over_start, over_default;
};

struct TuneResult {
    TuningRecord record;
    std::map<std::string, TunedCalls> calls;  // by to_string(Sizes)
    Ratio ratio;                              // of whole calls: the result's time over the start's
    bool finished = true;                     // false: the time was up
};

// Throws std::runtime_error where the start itself can't be built, or gives wrong results; Interrupted.
TuneResult tune(const TuneRequest& request, const TuneBench& bench, Journal& journal,
                const TuneListener& listener, Deadline& deadline);

}  // namespace attnc
