// CUDA schedules of the projections.
#pragma once

#include <Halide.h>

#include "schedules/cuda_params.h"
#include "stages/projection_gpu.h"

namespace attnc {

// `out` has one update, over stage.store. vectors: four columns are stored as one.
void schedule_projection_gpu(ProjectionGpu& stage, Halide::Func out, const CudaProjectParams& params,
                             bool vectors);

ProjectionGpuTile projection_tile(const CudaProjectParams& params, int64_t panel);

}  // namespace attnc
