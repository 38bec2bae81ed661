// Loops over the threads of a block, as all stages of a GPU kernel have them.
#pragma once

#include <Halide.h>

#include <utility>
#include <vector>

#include "stages/gpu_threads.h"

namespace attnc {

using Loops = std::vector<Halide::VarOrRVar>;

// Each thread's copies of `inner`, unrolled, the first one in vectors where `vectors`; then `serial` loops of the thread,
// the threads, and what is outside of them.
inline void thread_loops(Halide::Stage stage, const Loops& inner, const Loops& serial,
                         const Halide::VarOrRVar& x, const Halide::VarOrRVar& y, const Loops& outer,
                         bool vectors = true) {
    Loops order = inner;
    order.insert(order.end(), serial.begin(), serial.end());
    order.push_back(x);
    order.push_back(y);
    order.insert(order.end(), outer.begin(), outer.end());
    stage.reorder(order);
    for (size_t n = 0; n < inner.size(); ++n) {
        if (n == 0 && vectors) {
            stage.vectorize(inner[n]);
        } else {
            stage.unroll(inner[n]);
        }
    }
    stage.gpu_threads(x, y);
}

// A value of each thread: in its registers or in shared memory, allocated at `level`. `extents` are those of its tile.
inline void keep_by_thread(ThreadFunc& value, const Halide::LoopLevel& level,
                           const std::vector<int>& extents) {
    value.func.compute_at(level);
    for (size_t n = 0; n < extents.size(); ++n) value.func.bound(value.tile[n], 0, extents[n]);
    for (const Halide::Var& block : value.blocks) value.func.bound_extent(block, 1);
    if (value.threads.register_state) {
        value.func.store_in(Halide::MemoryType::Register);
        return;
    }
    // Neighbouring threads hold neighbouring vectors.
    value.func.store_in(Halide::MemoryType::GPUShared)
        .bound(value.x, 0, value.threads.x)
        .bound(value.y, 0, value.threads.y);
    std::vector<Halide::Var> storage = {value.tile[0], value.x, value.y};
    storage.insert(storage.end(), value.tile.begin() + 1, value.tile.end());
    storage.insert(storage.end(), value.blocks.begin(), value.blocks.end());
    value.func.reorder_storage(storage);
}

// Definition `number` of it: all threads of `domain`, in the order thread_loops has.
inline void define_by_thread(ThreadFunc& value, int number, const ThreadDomain& domain, const Loops& inner,
                             const Loops& serial = {}, const Loops& block_steps = {}, bool vectors = true) {
    Halide::Stage stage = value.stage(number);
    if (value.threads.register_state) stage.allow_race_conditions();
    Loops outer = block_steps;
    outer.insert(outer.end(), value.blocks.begin(), value.blocks.end());
    thread_loops(stage, inner, serial, domain.x_loop, domain.y_loop, outer, vectors);
}

}  // namespace attnc
