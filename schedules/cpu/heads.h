// CPU schedules of what is done to heads one row at a time: copies, normalisation, rotation.
#pragma once

#include <Halide.h>

#include "stages/norm.h"
#include "stages/rotary.h"

namespace attnc {

// Features in vectors; what is left of them one by one.
inline void schedule_copy(Halide::Func y, const Halide::Var& feature, const Halide::Target& target) {
    y.vectorize(feature, target.natural_vector_size<float>(), Halide::TailStrategy::GuardWithIf);
}

// y (d, m, h) of rows of head_dim features.
void schedule_norm_heads(HeadNorm& stage, Halide::Func y, int head_dim, const Halide::Target& target);

// y (d, m, h), in place.
void schedule_rotate_heads(const Rotation& stage, Halide::Func y, const Halide::Target& target);

// A table (r, m) of cosines or sines.
void schedule_rotary_angles(Halide::Func table, const Halide::Var& pair, const Halide::Target& target);

}  // namespace attnc
