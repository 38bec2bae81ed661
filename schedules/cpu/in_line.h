// How many steps of an inner loop of multiply-adds stand in line.
#pragma once

#include <Halide.h>

#include "schedules/cpu_params.h"

namespace attnc {

// Beside two vectors of multiply-adds a cycle there are few places left for addresses, comparisons and jumps: one step at a
// time, sums over values in L2 reach 0.84 of the peak of an Intel Xeon, four in line 0.96. Without fused
// multiply-adds the code generator may add terms that stand in line in another order, and not in the same one everywhere.
inline int steps_in_line(const Halide::Target& target) {
    constexpr int kSteps = 4;
    return vector_unit(target.to_string()).fma ? kSteps : 1;
}

}  // namespace attnc
