// CUDA schedules of tables by keys, fill_key_bias's, fill_runs's and fill_key_blocks's: a thread for each element, neighbours
// along the keys.
#pragma once

#include <Halide.h>

namespace attnc {

// table (j, b).
inline void schedule_key_table_gpu(Halide::Func table) {
    using Halide::Var;
    constexpr int kKeys = 128;
    const Var j = table.args()[0], b = table.args()[1], key("key"), blocks("blocks");
    table.split(j, j, key, kKeys, Halide::TailStrategy::GuardWithIf)
        .fuse(j, b, blocks)
        .gpu_threads(key)
        .gpu_blocks(blocks);
}

// key_blocks (jb, ib, h, b). Granules are bytes: a row of threads writes a sector of memory's cache.
inline void schedule_fill_key_blocks_gpu(Halide::Func key_blocks) {
    using Halide::Var;
    constexpr int kColumns = 32, kRows = 4;
    constexpr auto kGuarded = Halide::TailStrategy::GuardWithIf;
    const Var jb = key_blocks.args()[0], ib = key_blocks.args()[1], h = key_blocks.args()[2],
              b = key_blocks.args()[3];
    const Var column("column"), row("row"), tiles("tiles"), blocks("blocks");
    key_blocks.split(jb, jb, column, kColumns, kGuarded)
        .split(ib, ib, row, kRows, kGuarded)
        .reorder(column, row, jb, ib, b, h)
        .fuse(jb, ib, tiles)
        .fuse(tiles, b, blocks)
        .gpu_threads(column, row)
        .gpu_blocks(blocks, h);
}

}  // namespace attnc
