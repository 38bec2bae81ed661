// CUDA schedules of fill_positions and clear_rows: rows and items in x of a launch's grid.
#pragma once

#include <Halide.h>

#include "stages/packed_rows_gpu.h"

namespace attnc {

// row_positions (m) with one update over stage.rows.
inline void schedule_fill_positions_gpu(const FillPositionsGpu& s, Halide::Func row_positions) {
    using Halide::RVar;
    constexpr int kRows = 128;
    const RVar tiles("tiles"), row("row"), blocks("blocks");
    row_positions.gpu_blocks(row_positions.args()[0]);  // stores nothing; on the host it would copy
    row_positions.update()
        .allow_race_conditions()  // no row is that of two items
        .split(s.rows[0], tiles, row, kRows, Halide::TailStrategy::GuardWithIf)
        .fuse(tiles, s.rows[1], blocks)
        .gpu_threads(row)
        .gpu_blocks(blocks);
}

// out (n, m) with one update over stage.at.
inline void schedule_clear_rows_gpu(const ClearRowsGpu& s, Halide::Func out) {
    using Halide::RVar;
    // No more blocks than attention has: an item of a packed batch may have all rows.
    constexpr int kLanes = 32, kRows = 4, kTile = 128;
    constexpr auto kGuarded = Halide::TailStrategy::GuardWithIf;
    const RVar columns("columns"), lane("lane"), tiles("tiles"), steps("steps"), row("row"), blocks("blocks");
    out.gpu_blocks(out.args().back());  // stores nothing; on the host it would copy
    out.update()
        .allow_race_conditions()  // no row is that of two items
        .split(s.at[0], columns, lane, kLanes, kGuarded)
        .split(s.at[1], tiles, steps, kTile, kGuarded)
        .split(steps, steps, row, kRows)
        .reorder({columns, steps, lane, row, tiles, s.at[2]})
        .fuse(tiles, s.at[2], blocks)
        .gpu_threads(lane, row)
        .gpu_blocks(blocks);
}

}  // namespace attnc
