// CPU schedules of the attention kernels.
#pragma once

#include <Halide.h>

#include "schedules/cpu_params.h"
#include "stages/attention_merge.h"
#include "stages/attention_two_pass.h"

namespace attnc {

// The tile that the definitions need, from the parameters.
AttentionTile attention_tile(const AttendParams& params, const Halide::Target& target);

// context (d, i) and row_stats (i, c) as outputs of one loop over tiles of queries.
void schedule_attend(AttentionTwoPass& stage, Halide::Func context, Halide::Func row_stats,
                     const AttendParams& params, int head_dim, int v_head_dim, int tile_kv,
                     const Halide::Target& target);

// Probabilities or scores: pairs (j, i).
void schedule_pairs(AttentionTwoPass& stage, Halide::Func pairs, const AttendParams& params, int head_dim,
                    int tile_kv, const Halide::Target& target);

// context (d, i) and row_stats (i, c).
void schedule_merge(AttentionMerge& stage, Halide::Func context, Halide::Func row_stats, int v_head_dim,
                    const Halide::Target& target);

// lse (i).
void schedule_lse(Halide::Func lse, const Halide::Var& i, const Halide::Target& target);

}  // namespace attnc
