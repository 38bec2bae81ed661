#include "schedules/cuda/merge.h"

#include "stages/gpu_threads.h"

namespace attnc {

using namespace Halide;

namespace {

constexpr int kRows = 8;       // rows of a block of threads
constexpr int kLanes = 16;     // threads along a row's features
constexpr int kThreads = 128;  // of kernels with one for each element

void keep(AttentionMergeGpu& s, const AttentionMergeGpu::Row& of, const LoopLevel& level) {
    for (Func f : {of.largest, of.total}) {
        f.compute_at(level).store_in(MemoryType::Register).bound_extent(s.m, 1).bound_extent(s.h, 1);
    }
}

}  // namespace

void schedule_merge_gpu(AttentionMergeGpu& s, Func context, Func row_stats, int v_head_dim) {
    const Var row("row"), lane("lane"), quad("quad"), threads("threads");
    context.bound(s.d, 0, v_head_dim)
        .split(s.d, s.d, lane, kQuad)
        .split(s.d, threads, quad, kLanes, TailStrategy::GuardWithIf)
        .split(s.m, s.m, row, kRows, TailStrategy::GuardWithIf)
        .reorder(lane, threads, quad, row, s.m, s.h)
        .vectorize(lane)
        .gpu_threads(quad, row)
        .gpu_blocks(s.m, s.h);
    keep(s, s.of_context, LoopLevel(context, quad));
    s.sums.compute_at(context, threads)
        .store_in(MemoryType::Register)
        .bound_extent(s.d, kQuad)
        .bound_extent(s.h, 1)
        .bound_extent(s.m, 1)
        .vectorize(s.d);
    s.sums.update().reorder(s.d, s.parts_of_sum.x, s.h, s.m).vectorize(s.d);

    row_stats.bound(s.c, 0, kRowStats)
        .split(s.m, s.m, row, kRows, TailStrategy::GuardWithIf)
        .reorder(s.c, row, s.m, s.h)
        .gpu_threads(s.c, row)
        .gpu_blocks(s.m, s.h)
        .compute_with(context, s.m);
    keep(s, s.of_stats, LoopLevel(row_stats, s.c));
}

void schedule_suspects_gpu(SuspectsGpu& s, Func suspects) {
    const Var h = suspects.args()[0], b = suspects.args()[1], item("item");
    suspects.split(b, b, item, kThreads, TailStrategy::GuardWithIf)
        .reorder(item, b, h)
        .gpu_threads(item)
        .gpu_blocks(b, h);
    const RVar row = s.rows[0];
    suspects.update().allow_race_conditions().gpu_threads(row).gpu_blocks(s.rows[1], s.rows[2]);
    s.found.compute_at(suspects, row)
        .store_in(MemoryType::Register)
        .bound_extent(s.i, 1)
        .bound_extent(s.h, 1)
        .bound_extent(s.b, 1);
}

void schedule_fill_empty_gpu(EmptyRowsGpu& s, Func context, int v_head_dim) {
    const RVar row = s.rows[0], n = s.rows[1];
    context.gpu_blocks(context.args().back());  // a definition that stores nothing; on the host it would copy
    context.bound(s.d, 0, v_head_dim);
    context.update().allow_race_conditions().reorder(row, s.d, n, s.h).gpu_threads(s.d).gpu_blocks(n, s.h);
    s.sums.compute_at(context, s.d)
        .store_in(MemoryType::Register)
        .bound_extent(s.d, 1)
        .bound_extent(s.h, 1)
        .bound_extent(s.n, 1);
    s.some.compute_at(context, s.d).store_in(MemoryType::Register).bound_extent(s.h, 1).bound_extent(s.n, 1);
}

void schedule_average_gpu(AverageProbsGpu& s, Func averaged) {
    const Var key("key"), rows("rows");
    averaged.split(s.j, s.j, key, kThreads, TailStrategy::GuardWithIf)
        .fuse(s.j, s.i, rows)
        .fuse(rows, s.b, rows)
        .gpu_threads(key)
        .gpu_blocks(rows);
    s.sums.compute_at(averaged, key)
        .store_in(MemoryType::Register)
        .bound_extent(s.j, 1)
        .bound_extent(s.i, 1)
        .bound_extent(s.b, 1);
}

void schedule_lse_gpu(Func lse) {
    const Var i = lse.args()[0], h = lse.args()[1], b = lse.args()[2], row("row"), rows("rows");
    lse.split(i, i, row, kThreads, TailStrategy::GuardWithIf)
        .fuse(i, b, rows)
        .reorder(row, rows, h)
        .gpu_threads(row)
        .gpu_blocks(rows, h);
}

}  // namespace attnc
