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
        row_statistics(row_stats_in);
        row_statistics(row_stats);
        AttentionMergeGpu stage(contexts, row_stats_in, contexts.dim(3).extent(), get_target());
        context(stage.d, stage.h, stage.m) = stage.context();
        row_stats(stage.m, stage.h, stage.c) = stage.row_stat();
        schedule_merge_gpu(stage, context, row_stats, v_head_dim);
    }
};

class AttendLse : public GpuGenerator<AttendLse> {
public:
    Input<Buffer<float, 3>> row_stats_in{"row_stats_in"};  // (m, h, c)
    Input<Buffer<int32_t, 2>> items{"items"};              // (c, b): ATTNC_ITEM_*
    Output<Buffer<float, 3>> lse{"lse"};                   // (i, h, b)

    void generate() {
        row_statistics(row_stats_in);
        item_columns(items);
        from_zero(lse);
        lse.dim(1).set_bounds(0, row_stats_in.dim(1).extent());
        lse.dim(2).set_bounds(0, items.dim(1).extent());
        const Var i("i"), h("h"), b("b");
        const Expr row = query_row(items, i, b, row_stats_in.dim(0).extent());
        lse(i, h, b) =
            only_where(i < item_number(items, ATTNC_ITEM_QUERIES, b),
                       log_sum_exp(row_stats_in(row, h, kLargest), row_stats_in(row, h, kSum)), kDropped);
        schedule_lse_gpu(lse);
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_GPU_KERNEL(attnc::AttendMerge, attend_merge)
ATTNC_REGISTER_GPU_KERNEL(attnc::AttendLse, attend_lse)
