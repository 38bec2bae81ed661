// What is made of row statistics on a GPU. attend_merge: joins sets of keys. fill_empty: contexts of rows without one.
// attend_lse: log-sum-exp.
#include "schedules/cuda/merge.h"

#include "generators/cuda/gpu_generator.h"
#include "stages/attention_merge.h"
#include "stages/dropping.h"

namespace attnc {
namespace {

using namespace Halide;

class AttendMerge : public GpuGenerator<AttendMerge> {
public:
    Input<Buffer<float, 4>> contexts{"contexts"};          // (d, h, m, split)
    Input<Buffer<float, 4>> row_stats_in{"row_stats_in"};  // (m, h, c, split)
    Output<Buffer<float, 3>> context{"context"};           // (d, h, m)
    Output<Buffer<float, 3>> row_stats{"row_stats"};       // (m, h, c)

    void configure() {
        if (kernel_config().sink) sinks_ = add_input<Buffer<float, 1>>("sinks");  // (h)
    }

    void generate() {
        const int v_head_dim = static_cast<int>(kernel_config().v_head_dim);
        aligned_rows(contexts, v_head_dim);
        aligned_rows(context, v_head_dim);
        row_statistics(row_stats_in);
        row_statistics(row_stats);
        Func sinks;
        if (sinks_ != nullptr) {
            from_zero(*sinks_);
            sinks = *sinks_;
        }
        AttentionMergeGpu stage(contexts, row_stats_in, contexts.dim(3).extent(), sinks, get_target());
        context(stage.d, stage.h, stage.m) = stage.context();
        row_stats(stage.m, stage.h, stage.c) = stage.row_stat();
        schedule_merge_gpu(stage, context, row_stats, v_head_dim);
    }

private:
    GeneratorInput<Buffer<float, 1>>* sinks_ = nullptr;  // null: not in this configuration
};

class FillEmpty : public GpuGenerator<FillEmpty> {
public:
    Input<Buffer<float, 3>> row_stats_in{"row_stats_in"};  // (m, h, c)
    Input<Buffer<float, 3>> v{"v"};                        // (d, m, h)
    Input<Buffer<int32_t, 2>> items{"items"};              // (c, b): ATTNC_ITEM_*
    Input<int32_t> seq_q{"seq_q"};
    Input<int32_t> empty_rows{"empty_rows"};      // attnc_empty_rows
    Output<Buffer<float, 3>> context{"context"};  // (d, h, m)

    void configure() { key_runs_ = add_key_runs(); }

    void generate() {
        const int v_head_dim = static_cast<int>(kernel_config().v_head_dim);
        row_statistics(row_stats_in);
        from_zero(v, v_head_dim);
        item_columns(items);
        from_zero(context, v_head_dim);
        context.dim(1).set_bounds(0, row_stats_in.dim(1).extent());
        context.dim(2).set_bounds(0, row_stats_in.dim(0).extent());
        EmptyRowsGpu stage({.row_stats = row_stats_in,
                            .v = v,
                            .items = items,
                            .key_runs = key_runs_of_items(key_runs_, items),
                            .row_count = row_stats_in.dim(0).extent(),
                            .key_row_count = v.dim(1).extent(),
                            .heads = row_stats_in.dim(1).extent(),
                            .key_heads = v.dim(2).extent(),
                            .seq_q = seq_q,
                            .empty_rows = empty_rows});
        const Var m("m");
        context(stage.d, stage.h, m) = undef<float>();
        context(stage.d, stage.h, stage.context_row()) = stage.value();
        schedule_fill_empty_gpu(stage, context, v_head_dim);
    }

private:
    KeyRuns* key_runs_ = nullptr;
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

class AverageProbs : public GpuGenerator<AverageProbs> {
public:
    Input<Buffer<float, 4>> probs{"probs"};         // (j, i, h, b)
    Output<Buffer<float, 3>> averaged{"averaged"};  // (j, i, b)

    void generate() {
        from_zero(probs);
        from_zero(averaged);
        AverageProbsGpu stage(probs, probs.dim(2).extent());
        averaged(stage.j, stage.i, stage.b) = stage.mean();
        schedule_average_gpu(stage, averaged);
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_GPU_KERNEL(attnc::AttendMerge, attend_merge)
ATTNC_REGISTER_GPU_KERNEL(attnc::FillEmpty, fill_empty)
ATTNC_REGISTER_GPU_KERNEL(attnc::AttendLse, attend_lse)
ATTNC_REGISTER_GPU_KERNEL(attnc::AverageProbs, average_probs)
