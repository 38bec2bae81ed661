// Trials of one layer: a candidate built and measured beside an incumbent, and the name that a journal knows the result by.
#pragma once

#include <string>
#include <vector>

#include "compiler/tune_bench.h"
#include "schedules/tuning_record.h"
#include "tuner/search.h"

namespace attnc {

// Random calls on which whatever may be used later is held against float64.
inline constexpr int kVerifiedCalls = 3;
inline constexpr double kGiveUpAbove = 1.15;  // of the incumbent's time: a candidate is timed no longer

struct TrialSetup {
    Config config;  // complete
    std::string target;
    int threads = 1;
    Machine machine;
};

class Trials {
public:
    // `bench` outlives it.
    Trials(const TrialSetup& setup, const TuneBench& bench);

    // Throws where the incumbent can't be built.
    TrialResult measure(const TunedPart& part, const SearchSpace& space, const Trial& trial) const;

    // All that the result depends on: the code, the machine, the calls, and how long is measured. Layers whose calls of the
    // part are alike have equal keys, so that one finds what the other measured; but for the last measurement before a
    // candidate replaces the incumbent, which each makes itself.
    std::string key(const TunedPart& part, const SearchSpace& space, const Trial& trial) const;

    // Of whatever is measured side by side. Throws where one of them can't be built: "FAULT_OF: why".
    MeasureRequest request(const CpuSchedule& candidate, const CpuSchedule& incumbent,
                           const std::string& fault_of, const std::vector<Sizes>& sizes) const;

private:
    TrialSetup setup_;
    const TuneBench& bench_;
    std::vector<int> cpus_;  // that are measured on
};

// How keys of what a journal has of the layer begin: of its trials, and of analyses of its kernels.
std::vector<std::string> journal_key_begins(const Config& config, int threads);
std::string analysis_key_begin(const std::string& part, const Config& config);

std::vector<CpuSchedule> schedules_of(const SearchSpace& space, const std::vector<SearchPoint>& points);

// Whether results by the two are equal in every bit: they cut keys into the same blocks.
bool same_bits(const CpuSchedule& a, const CpuSchedule& b);

}  // namespace attnc
