// Sizes at which a part's trials take little time and still run what they run at its own.
#pragma once

#include <vector>

#include "compiler/tune_measure.h"

namespace attnc {

// Of each size fewer items and queries where they only repeat the same work, and none twice. Rows of a projection are alike
// from some hundred on, as are tiles of queries that attend to the same keys: their number modulo a tile's stays, so that the
// last ones take the same forms of kernels. Whole calls, and steps with a cache, stay as they are.
std::vector<Sizes> brief_sizes(TunedWork work, const std::vector<Sizes>& sizes);

}  // namespace attnc
