// What is timed for each part of a schedule, and at which of the sizes that it is tuned for.
#pragma once

#include <string>
#include <vector>

#include "compiler/tune_measure.h"
#include "schedules/search_space.h"

namespace attnc {

struct TunedPart {
    SearchPart part;
    TunedWork work = TunedWork::kCall;
    std::vector<Sizes> sizes;  // at which a call runs the part's kernels; empty: at none
    std::string not_tuned;     // why it is left as it is; empty: it is tuned
};

// Every part of the configuration's schedules. `start` is what calls run by.
std::vector<TunedPart> tuned_parts(const Config& config, const std::string& target,
                                   const std::vector<Sizes>& sizes, const CpuSchedule& start);

// Whether the part is among those that were asked for by name; none named: all are.
bool is_asked_for(const TunedPart& part, const std::vector<std::string>& kernels);

}  // namespace attnc
