// CPU schedule of the decode kernel.
#pragma once

#include <Halide.h>

#include "schedules/cpu_params.h"
#include "stages/attention_decode.h"

namespace attnc {

// The tile that the definitions need, from the parameters.
DecodeTile decode_tile(const DecodeParams& params, int head_dim, const Halide::Target& target);

// context (d, i, g) and row_stats (i, g, c) as the outputs.
void schedule_decode(AttentionDecode& stage, Halide::Func context, Halide::Func row_stats,
                     const DecodeParams& params, int head_dim, int v_head_dim, int split_kv);

}  // namespace attnc
