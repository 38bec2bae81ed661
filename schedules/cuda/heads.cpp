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

}  // namespace attnc
