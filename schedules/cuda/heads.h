// CUDA schedules of what is done to heads one row at a time: copies, normalisation, rotation. Rows are in x of a launch's
// grid, heads in y.
#pragma once

#include <Halide.h>

#include "stages/norm.h"
#include "stages/rotary_gpu.h"

namespace attnc {

// y (d, m, h), a copy.
void schedule_split_heads_gpu(Halide::Func y);
// out (d, i, h, b), a copy.
void schedule_merge_heads_gpu(Halide::Func out);
// y (d, m, h) of rows of head_dim features, which may be x's memory: a thread writes what it alone has read.
void schedule_norm_heads_gpu(HeadNorm& stage, Halide::Func y, int head_dim);
// The same.
void schedule_rotate_heads_gpu(const RotationGpu& stage, Halide::Func y);
// Tables (r, m), made together.
void schedule_tables_gpu(const Halide::Func& cos_table, Halide::Func sin_table);

}  // namespace attnc
