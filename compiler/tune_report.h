// What the tuner did, as one HTML page that needs nothing else: each part's candidates in the order in which they were
// timed, which parameters mattered, and whole calls by the default, by what was found, and by Halide's autoschedulers.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "compiler/tune_session.h"

namespace attnc {

struct ReportPart {
    std::string name, start, best;
    double ratio = 1;
    bool finished = true;
    std::vector<TuneEvent> events;
};

struct ReportLayer {
    std::string origin;  // of the start
    std::vector<ReportPart> parts;
    TuneResult result;
};

// Times of other schedulers at a shape, from a results file of scripts/bench: by what they are called, milliseconds beside
// attnc's in the same run.
struct OtherTime {
    std::string name;
    double ms = 0, attnc_ms = 0;
};
using OtherTimes = std::map<std::string, std::vector<OtherTime>>;  // by problem string

// Of calls on so many threads. Throws std::runtime_error: a file that is none of scripts/bench.
OtherTimes autoscheduler_times(const std::filesystem::path& results, int threads);

std::string report_page(const std::vector<ReportLayer>& layers, const OtherTimes& others);

}  // namespace attnc
