// CUDA schedules of what keeps a cache: a thread for each item, or for each feature of a row.
#pragma once

#include <Halide.h>

#include <vector>

#include "stages/cache_lengths_gpu.h"
#include "stages/cache_rows_gpu.h"

namespace attnc {

// Tables (b), all of one launch.
inline void schedule_fill_cache_gpu(const std::vector<Halide::Func>& tables) {
    using Halide::Var;
    constexpr int kItems = 128;
    const Var b = tables.front().args()[0], item("item");
    for (Halide::Func table : tables) {
        table.split(b, b, item, kItems, Halide::TailStrategy::GuardWithIf).gpu_threads(item).gpu_blocks(b);
        if (table.name() != tables.front().name()) table.compute_with(tables.front(), b);
    }
}

// kept (n) with one update over the stage's items.
inline void schedule_keep_lengths_gpu(const KeepLengthsGpu& s, Halide::Func kept) {
    using Halide::RVar;
    constexpr int kItems = 128;
    const RVar blocks("blocks"), item("item");
    kept.gpu_blocks(kept.args()[0]);  // a definition that stores nothing; on the host it would copy
    kept.update()
        .allow_race_conditions()  // no slot is that of two items
        .split(s.items, blocks, item, kItems, Halide::TailStrategy::GuardWithIf)
        .gpu_threads(item)
        .gpu_blocks(blocks);
}

// y (d, n, h) with one update over stage.at and stage.h.
inline void schedule_append_rows_gpu(const AppendRowsGpu& s, Halide::Func y) {
    using Halide::RVar;
    // 16 neighbouring features are a sector of memory's cache, and padded heads are multiples of them. No more blocks than
    // attention has: an item of a packed batch may have all rows.
    constexpr int kLanes = 16, kRows = 8, kTile = 128;
    constexpr auto kGuarded = Halide::TailStrategy::GuardWithIf;
    const RVar features("features"), lane("lane"), tiles("tiles"), steps("steps"), row("row"),
        blocks("blocks");
    y.gpu_blocks(y.args().back());  // a definition that stores nothing; on the host it would copy
    y.update()
        .allow_race_conditions()  // no row is that of two keys
        .split(s.at[0], features, lane, kLanes, kGuarded)
        .split(s.at[1], tiles, steps, kTile, kGuarded)
        .split(steps, steps, row, kRows)
        .reorder({features, lane, row, steps, tiles, s.at[2], s.h})
        .fuse(tiles, s.at[2], blocks)
        .gpu_threads(lane, row)
        .gpu_blocks(blocks, s.h);
}

}  // namespace attnc
