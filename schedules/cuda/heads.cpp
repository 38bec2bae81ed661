#include "schedules/cuda/heads.h"

namespace attnc {

using namespace Halide;

namespace {

// Threads of a block: 16 neighbouring features are a sector of memory's cache, and padded heads are multiples of them.
constexpr int kLanes = 16, kRows = 8;

constexpr TailStrategy kGuarded = TailStrategy::GuardWithIf;

}  // namespace

void schedule_split_heads_gpu(Func y) {
    const Var d = y.args()[0], m = y.args()[1], h = y.args()[2], lane("lane"), row("row");
    y.split(d, d, lane, kLanes, kGuarded)
        .split(m, m, row, kRows, kGuarded)
        .reorder(d, lane, row, m, h)
        .gpu_threads(lane, row)
        .gpu_blocks(m, h);
}

void schedule_merge_heads_gpu(Func out) {
    const Var d = out.args()[0], i = out.args()[1], h = out.args()[2], b = out.args()[3];
    const Var lane("lane"), row("row"), rows("rows");
    out.split(d, d, lane, kLanes, kGuarded)
        .split(i, i, row, kRows, kGuarded)
        .fuse(i, b, rows)
        .reorder(d, lane, row, rows, h)
        .gpu_threads(lane, row)
        .gpu_blocks(rows, h);
}

// The chains of a row are those of its threads, which meet once to add them.
void schedule_norm_heads_gpu(HeadNorm& s, Func y, int head_dim) {
    static_assert(kLanes == HeadNorm::kLanes);
    const Var lane("lane"), row("row"), step("step");
    y.bound(s.d, 0, head_dim)
        .split(s.d, step, lane, kLanes)
        .split(s.m, s.m, row, kRows, kGuarded)
        .reorder(step, lane, row, s.m, s.h)
        .gpu_threads(lane, row)
        .gpu_blocks(s.m, s.h);
    for (Func f : {s.factor, s.squares}) {
        f.compute_at(y, lane).store_in(MemoryType::Register).bound_extent(s.m, 1).bound_extent(s.h, 1);
    }
    s.squares.update().unroll(s.lanes);
    s.chains.compute_at(y, s.m)
        .store_in(MemoryType::GPUShared)
        .bound(s.lane, 0, kLanes)
        .bound_extent(s.m, kRows)
        .bound_extent(s.h, 1)
        .gpu_threads(s.lane, s.m);
    s.chains.update().reorder(s.step, s.lane, s.m, s.h).gpu_threads(s.lane, s.m);
}

void schedule_rotate_heads_gpu(const RotationGpu& s, Func y) {
    const RVar slots("slots"), lane("lane");
    const Var row("row");
    y.gpu_blocks(y.args().back());  // a definition that stores nothing; on the host it would copy
    y.update()
        .allow_race_conditions()  // no feature is in two slots
        .split(s.slot, slots, lane, kLanes, kGuarded)
        .split(s.m, s.m, row, kRows, kGuarded)
        .reorder(lane, row, slots, s.m, s.h)
        .gpu_threads(lane, row)
        .gpu_blocks(s.m, s.h);
}

void schedule_tables_gpu(const Func& cos_table, Func sin_table) {
    const Var pair = cos_table.args()[0], m = cos_table.args()[1], lane("lane"), row("row");
    for (Func table : {cos_table, sin_table}) {
        table.split(pair, pair, lane, kLanes, kGuarded)
            .split(m, m, row, kRows, kGuarded)
            .reorder(pair, lane, row, m)
            .gpu_threads(lane, row)
            .gpu_blocks(m);
    }
    sin_table.compute_with(cos_table, pair);
}

}  // namespace attnc
