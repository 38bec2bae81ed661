// The points that a control holds a tuned schedule against: drawn at random, or detuned on purpose.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/search_space.h"

namespace attnc {

// `count` of the points but for `without`, all of them where there are fewer: each set of them is as likely as any other, and
// so is each order. The same seed draws the same.
std::vector<SearchPoint> drawn_points(std::vector<SearchPoint> points, const SearchPoint& without,
                                      size_t count, uint64_t seed);

// The space's point with the smallest register tile, one row of one vector where the rules allow it; blocks of keys, and the
// queries that an optional kernel takes, stay those of `tuned`.
SearchPoint detuned_point(const SearchSpace& space, const SearchPoint& tuned);

}  // namespace attnc
