// CUDA schedules of what is done to heads one row at a time: copies, normalisation, rotation. Rows are in x of a launch's
// grid, heads in y.
#pragma once

#include <Halide.h>

namespace attnc {

// y (d, m, h), a copy.
void schedule_split_heads_gpu(Halide::Func y);
// out (d, i, h, b), a copy.
void schedule_merge_heads_gpu(Halide::Func out);

}  // namespace attnc
