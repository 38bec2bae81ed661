// CUDA schedules of what follows from contexts and row statistics.
#pragma once

#include <Halide.h>

#include "stages/attention_merge_gpu.h"
#include "stages/attention_suspects_gpu.h"
#include "stages/average_probs_gpu.h"
#include "stages/empty_rows_gpu.h"

namespace attnc {

void schedule_merge_gpu(AttentionMergeGpu& stage, Halide::Func context, Halide::Func row_stats,
                        int v_head_dim);
// suspects (h, b) has one update, over stage.rows.
void schedule_suspects_gpu(SuspectsGpu& stage, Halide::Func suspects);
// context (d, h, m) has one update, over stage.rows.
void schedule_fill_empty_gpu(EmptyRowsGpu& stage, Halide::Func context, int v_head_dim);
// averaged (j, i, b)
void schedule_average_gpu(AverageProbsGpu& stage, Halide::Func averaged);
// lse (i, h, b)
void schedule_lse_gpu(Halide::Func lse);

}  // namespace attnc
