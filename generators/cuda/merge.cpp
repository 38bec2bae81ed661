// attend_merge on a GPU: joins all splits of attend_decode. attend_lse: log-sum-exp from row statistics.
#include "schedules/cuda/merge.h"

#include "generators/cuda/gpu_generator.h"
#include "stages/attention_merge.h"

namespace attnc {
namespace {

using namespace Halide;

class AttendMerge : public GpuGenerator<AttendMerge> {
public:
    Input<Buffer<float, 4>> contexts{"contexts"};          // (d, h, m, split)
    Input<Buffer<float, 4>> row_stats_in{"row_stats_in"};  // (m, h, c, split)
    Output<Buffer<float, 3>> context{"context"};           // (d, h, m)
    Output<Buffer<float, 3>> row_stats{"row_stats"};       // (m, h, c)

    void generate() {
        const int v_head_dim = static_cast<int>(kernel_config().v_head_dim);
        aligned_rows(contexts, v_head_dim);
        aligned_rows(context, v_head_dim);
        from_zero(row_stats_in);
        from_zero(row_stats);
        row_stats_in.dim(2).set_bounds(0, kRowStats);
        row_stats.dim(2).set_bounds(0, kRowStats);
        AttentionMergeGpu stage(contexts, row_stats_in, contexts.dim(3).extent(), get_target());
        context(stage.d, stage.h, stage.m) = stage.context();
        row_stats(stage.m, stage.h, stage.c) = stage.row_stat();
        schedule_merge_gpu(stage, context, row_stats, v_head_dim);
    }
};

class AttendLse : public GpuGenerator<AttendLse> {
public:
    Input<Buffer<float, 3>> row_stats_in{"row_stats_in"};  // (m, h, c)
    Output<Buffer<float, 2>> lse{"lse"};                   // (m, h)

    void generate() {
        from_zero(row_stats_in);
        row_stats_in.dim(2).set_bounds(0, kRowStats);
        from_zero(lse);
        const Var m("m"), h("h");
        lse(m, h) = log_sum_exp(row_stats_in(m, h, kLargest), row_stats_in(m, h, kSum));
        schedule_lse_gpu(lse);
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_GPU_KERNEL(attnc::AttendMerge, attend_merge)
ATTNC_REGISTER_GPU_KERNEL(attnc::AttendLse, attend_lse)
