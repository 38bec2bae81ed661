// A guess at how long a part of a schedule takes, from its numbers alone: accumulators, loads for each multiply-add, rows
// and lanes that are computed in vain, and what has to stay in which cache. It orders candidates; nothing is decided by it.
#pragma once

#include <string_view>
#include <vector>

#include "schedules/search_space.h"

namespace attnc {

struct CacheSizes {
    int64_t l1d_bytes = 32 << 10, l2_bytes = 1 << 20;
};

// Cycles for each multiply-add of a vector that is of use, over all sizes; only ratios between schedules mean something.
double static_estimate(const CpuSchedule& schedule, const SearchPart& part, const Config& config,
                       std::string_view target, const std::vector<Sizes>& sizes, const CacheSizes& caches);

// The space's points, those with the least estimate first.
std::vector<SearchPoint> ranked_points(const SearchSpace& space, const std::vector<SearchPoint>& points,
                                       const Config& config, std::string_view target,
                                       const std::vector<Sizes>& sizes, const CacheSizes& caches);

// `count` of them to begin a search with: three quarters the best by the estimate, in turn for each value of the Layout
// field, since the estimate knows least of those; the others drawn from all, by `seed`, for where the estimate is wrong.
std::vector<SearchPoint> first_candidates(const SearchSpace& space, const std::vector<SearchPoint>& ranked,
                                          size_t count, uint64_t seed);

}  // namespace attnc
