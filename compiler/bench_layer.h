// Times a library on a problem, interleaved with the FMA probe on the same threads.
#pragma once

#include <string>
#include <vector>

#include "runtime/attnc.h"
#include "stages/config.h"

namespace attnc {

struct BenchOptions {
    std::string target;
    int threads = 1;
    double seconds = 2;  // for all parts together, after the warm-up
};

// A library and what it is to run.
struct BenchPart {
    std::string name;  // "layer", "attention"
    Problem problem;
    const attnc_library* library = nullptr;
    Config used;  // options that the library has and this does not are left unused
};

struct BenchResult {
    std::string part;
    double operations = 0;  // floating-point, of one call
    int64_t calls = 0;      // that were timed
    double ms_best = 0, ms_median = 0;
    std::vector<double> times;   // seconds of a call in each round: rounds of all parts are side by side
    double probe_best = 0;       // operations a second of all threads together
    double fraction_best = 0;    // best call against best probe
    double fraction_median = 0;  // median of the ratios of calls to the probes beside them
};

// Median over the rounds of a's time divided by b's.
double median_ratio(const BenchResult& a, const BenchResult& b);

// The parts take turns, each beside a probe. Throws std::runtime_error.
std::vector<BenchResult> bench_layers(const std::vector<BenchPart>& parts, const BenchOptions& options);

// Floating-point operations of a call: 2 for each multiply-add of the projections and of the query and key pairs that
// are visible. Softmax counts nothing.
double call_operations(const Problem& problem);

}  // namespace attnc
