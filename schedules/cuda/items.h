// CUDA schedule of fill_items: a thread for each item.
#pragma once

#include <Halide.h>

#include <vector>

#include "runtime/device_abi.h"

namespace attnc {

// items (c, b) and tables (b), all of one launch.
inline void schedule_fill_items_gpu(Halide::Func items, const std::vector<Halide::Func>& tables) {
    using Halide::Var;
    constexpr int kItems = 128;
    const Var item("item"), b = items.args()[1];
    items.bound(items.args()[0], 0, ATTNC_ITEM_COLUMNS)
        .split(b, b, item, kItems, Halide::TailStrategy::GuardWithIf)
        .unroll(items.args()[0])
        .gpu_threads(item)
        .gpu_blocks(b);
    for (Halide::Func table : tables) {
        table.split(b, b, item, kItems, Halide::TailStrategy::GuardWithIf).gpu_threads(item).gpu_blocks(b);
        table.compute_with(items, b);
    }
}

}  // namespace attnc
