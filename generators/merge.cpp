// attend_merge: joins two blocks of keys. attend_lse: log-sum-exp from row statistics.
#include "generators/library_generator.h"
#include "generators/register_kernel.h"
#include "schedules/cpu/attention.h"
#include "stages/attention_merge.h"

namespace attnc {
namespace {

using namespace Halide;

class AttendMerge : public LibraryGenerator<AttendMerge> {
public:
    Input<Buffer<float, 2>> context_a{"context_a"};      // (d, i)
    Input<Buffer<float, 2>> row_stats_a{"row_stats_a"};  // (i, c)
    Input<Buffer<float, 2>> context_b{"context_b"};      // (d, i)
    Input<Buffer<float, 2>> row_stats_b{"row_stats_b"};  // (i, c)
    Output<Buffer<float, 2>> context{"context"};         // (d, i)
    Output<Buffer<float, 2>> row_stats{"row_stats"};     // (i, c)

    void generate() {
        const int64_t v_head_dim = kernel_config().v_head_dim;
        from_zero(context_a, v_head_dim);
        from_zero(context_b, v_head_dim);
        from_zero(context, v_head_dim);
        row_statistics(row_stats_a);
        row_statistics(row_stats_b);
        row_statistics(row_stats);
        AttentionMerge stage(context_a, row_stats_a, context_b, row_stats_b);
        context(stage.d, stage.i) = stage.context(stage.d, stage.i);
        row_stats(stage.i, stage.c) = stage.row_stats(stage.i, stage.c);
        schedule_merge(stage, context, row_stats, static_cast<int>(v_head_dim), get_target());
    }
};

class AttendLse : public LibraryGenerator<AttendLse> {
public:
    Input<Buffer<float, 2>> row_stats_in{"row_stats_in"};  // (i, c)
    Output<Buffer<float, 1>> lse{"lse"};                   // (i)

    void generate() {
        row_statistics(row_stats_in);
        from_zero(lse);
        const Var i("i");
        lse(i) = log_sum_exp(row_stats_in(i, kLargest), row_stats_in(i, kSum));
        schedule_lse(lse, i, get_target());
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_KERNEL(attnc::AttendMerge, attend_merge)
ATTNC_REGISTER_KERNEL(attnc::AttendLse, attend_lse)
