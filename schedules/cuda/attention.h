// CUDA schedules of attention: blocks of threads by tiles of rows, heads, and splits or blocks of keys.
#pragma once

#include <Halide.h>

#include "schedules/cuda_params.h"
#include "stages/attention_gpu.h"

namespace attnc {

AttentionGpuTile attention_gpu_tile(const CudaAttendParams& params, const CudaLayout& layout);

// context has one update over stage.context_store, row_stats one over stage.stats_store.
void schedule_attention_gpu(AttentionGpu& stage, Halide::Func context, Halide::Func row_stats,
                            const CudaAttendParams& params);

// pairs has one update over stage.context_store.
void schedule_pairs_gpu(AttentionGpu& stage, const Halide::Func& pairs, const CudaAttendParams& params);

}  // namespace attnc
