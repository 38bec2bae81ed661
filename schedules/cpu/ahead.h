// Whether a kernel asks for memory ahead (stages/prefetch.h).
#pragma once

namespace attnc {

// Asking takes some ten scalar instructions for each line of steps (schedules/cpu/in_line.h), so that there have to be some
// vectors of multiply-adds beside them. Scores of AVX2, 12 vectors at a time and a few features, lose 1 to 5 % by it; projections
// of as many, which come to each line of weights for few rows, gain 3 to 4 % at 48 rows and lose nothing above.
inline bool scores_ask_ahead(int vectors) { return vectors >= 20; }
inline bool projection_asks_ahead(int vectors) { return vectors >= 12; }

}  // namespace attnc
