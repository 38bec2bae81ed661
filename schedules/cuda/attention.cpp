#include "schedules/cuda/attention.h"

#include <algorithm>

#include "schedules/cuda/thread_loops.h"

namespace attnc {

using namespace Halide;

namespace {

// Of loops over blocks and the block of keys, one iteration.
void bound_blocks(Func f, const std::vector<Var>& blocks) {
    for (const Var& block : blocks) f.bound_extent(block, 1);
}

void share(Func f, const LoopLevel& level) { f.compute_at(level).store_in(MemoryType::GPUShared); }

// A copy in the thread's registers of what `consumer` reads of a shared Func, in vectors of four along `lane`.
Func in_registers(Func shared, const Func& consumer, const LoopLevel& level, const Var& lane,
                  const Loops& rest) {
    Func copy = shared.in(consumer);
    copy.compute_at(level).store_in(MemoryType::Register).vectorize(lane);
    for (const VarOrRVar& loop : rest) copy.unroll(loop);
    return copy;
}

void schedule_queries(AttentionGpu& s, const LoopLevel& level) {
    const GpuThreads& threads = s.tile.threads;
    const Var outer("outer"), thread("thread"), lane("lane");
    share(s.query_tile, level);
    bound_blocks(s.query_tile, {s.n, s.h, s.z});
    s.query_tile.bound(s.u, 0, kQuad)
        .bound(s.t, 0, threads.y)
        .bound(s.d, 0, s.query_features())
        .split(s.d, outer, lane, kQuad)
        .split(outer, outer, thread, threads.x);
    thread_loops(s.query_tile, {s.u, lane, outer}, {}, thread, s.t, {s.n, s.h, s.z});
    s.query_quads.compute_at(s.query_tile, outer)
        .store_in(MemoryType::Register)
        .bound_extent(s.e, kQuad)
        .bound_extent(s.u, kQuad)
        .bound_extent(s.t, 1)
        .bound_extent(s.d, 1)
        .vectorize(s.e)
        .unroll(s.u);
    bound_blocks(s.query_quads, {s.n, s.h, s.z});
}

// Of a thread's copies, of so many floats each, those whose loads are under way at a time: all that an assembler sees in a row
// it starts at once, and spills what it then has no registers for, however many there are.
int copies_at_once(int copies, int floats) {
    constexpr int kMostFloats = 32;
    int at_once = std::clamp(kMostFloats / floats, 1, copies);
    while (copies % at_once != 0) --at_once;
    return at_once;
}

// Keys, transposed on their way into shared memory, then the scores of a block.
void schedule_scores(AttentionGpu& s, const LoopLevel& level, const CudaAttendParams& params) {
    const AttentionGpuTile& tile = s.tile;
    const GpuThreads& threads = tile.threads;
    const Loops own = {s.v, s.g, s.u};
    keep_by_thread(s.scores, level, {kQuad, tile.key_groups, kQuad});
    define_by_thread(s.scores, s.update(kGpuSeed), s.score_domains[kGpuSeed], own);

    const std::vector<RVar>& steps = s.score_domains[kGpuMultiply].steps;
    Stage multiply = s.scores.stage(s.update(kGpuMultiply));
    RVar outer("score_quads"), inner("score_quad");
    const RVar quads = threads.register_state ? steps[1] : steps[0];
    multiply.split(quads, outer, inner, static_cast<int>(params.unroll) / kQuad);
    Loops serial = {inner, outer};
    if (threads.register_state) serial.insert(serial.begin(), steps[0]);
    define_by_thread(s.scores, s.update(kGpuMultiply), s.score_domains[kGpuMultiply], own, serial,
                     {steps.back()});
    multiply.unroll(inner);
    if (threads.register_state) multiply.unroll(steps[0]);
    const LoopLevel each(s.scores.func, threads.register_state ? steps[0] : inner);
    in_registers(s.query_tile, s.scores.func, each, s.u, {s.d});
    in_registers(s.key_tile, s.scores.func, each, s.v, {s.g, s.d});

    const int lanes = s.key_lanes();
    const int groups = copies_at_once(tile.key_groups, kQuad * lanes);
    const int quads_at_once = copies_at_once(tile.depth / (lanes * threads.y), kQuad * lanes * groups);
    const Var quad("quad"), quad_step("quad_step"), group_step("group_step"), thread("thread"), lane("lane");
    share(s.key_tile, LoopLevel(s.scores.func, steps.back()));
    bound_blocks(s.key_tile, {s.kb, s.n, s.h, s.z});
    s.key_tile.bound(s.v, 0, kQuad)
        .bound(s.s, 0, threads.x)
        .bound(s.g, 0, tile.key_groups)
        .bound_extent(s.d, tile.depth)
        .split(s.d, quad, lane, lanes)
        .split(quad, quad, thread, threads.y)
        .split(quad, quad_step, quad, quads_at_once)
        .split(s.g, group_step, s.g, groups);
    thread_loops(s.key_tile, {s.v, lane, s.g, quad}, {group_step, quad_step}, s.s, thread,
                 {s.kb, s.n, s.h, s.z});
    s.key_quads.compute_at(s.key_tile, s.g)
        .store_in(MemoryType::Register)
        .bound_extent(s.e, lanes)
        .bound_extent(s.v, kQuad)
        .bound_extent(s.s, 1)
        .bound_extent(s.g, 1)
        .bound_extent(s.d, 1)
        .vectorize(s.e)
        .unroll(s.v);
    bound_blocks(s.key_quads, {s.kb, s.n, s.h, s.z});

    for (int which = kGpuMultiply + 1; which < kGpuScoreUpdates; ++which) {
        const int number = s.update(static_cast<GpuScoreUpdate>(which));
        if (number < 0) continue;
        const ThreadDomain& domain = s.score_domains[which];
        define_by_thread(s.scores, number, domain, own, {}, {domain.steps[0]}, false);
    }
}

// From the scores of a block to its largest score, weights and their sums.
void schedule_weights(AttentionGpu& s, const LoopLevel& level) {
    const AttentionGpuTile& tile = s.tile;
    const std::vector<Var> blocks = {s.kb, s.n, s.h, s.z};
    const Loops outer(blocks.begin(), blocks.end());
    share(s.maxima, level);
    s.maxima.bound(s.u, 0, kQuad).bound(s.s, 0, tile.threads.x).bound(s.t, 0, tile.threads.y);
    bound_blocks(s.maxima, blocks);
    thread_loops(s.maxima, {s.u}, {}, s.s, s.t, outer, false);
    keep_by_thread(s.largest, level, {kQuad});
    define_by_thread(s.largest, 0, s.largest_domain, {s.u}, {}, {}, false);

    keep_by_thread(s.weights, level, {kQuad, tile.key_groups, kQuad});
    define_by_thread(s.weights, 0, s.weight_domain, {s.v, s.g, s.u}, {}, {}, false);
    keep_by_thread(s.sum, level, {kQuad});
    define_by_thread(s.sum, 0, s.sum_domain, {s.u});

    const Var group("group"), thread("thread");
    share(s.weight_tile, level);
    s.weight_tile.bound(s.u, 0, kQuad)
        .bound(s.t, 0, tile.threads.y)
        .bound(s.c, 0, tile.threads.x * tile.key_groups)
        .bound(s.e, 0, kQuad)
        .bound_storage(s.t, tile.threads.y + 1)  // rows of other keys begin in other banks
        .split(s.c, group, thread, tile.threads.x);
    bound_blocks(s.weight_tile, blocks);
    thread_loops(s.weight_tile, {s.u, s.e, group}, {}, thread, s.t, outer);
}

void schedule_products(AttentionGpu& s, const LoopLevel& level, const CudaAttendParams& params) {
    const AttentionGpuTile& tile = s.tile;
    const GpuThreads& threads = tile.threads;
    const int groups = s.features_of_thread() / kQuad;
    const Loops own = {s.v, s.g, s.u};
    keep_by_thread(s.products, level, {kQuad, groups, kQuad});
    define_by_thread(s.products, 0, s.product_seed, own);

    const std::vector<RVar>& steps = s.product_domain.steps;
    const RVar quads = threads.register_state ? steps[1] : steps[0];
    Stage multiply = s.products.stage(1);
    RVar outer("product_quads"), inner("product_quad");
    multiply.split(quads, outer, inner, static_cast<int>(params.unroll) / kQuad);
    Loops serial = {inner, outer};
    if (threads.register_state) serial.insert(serial.begin(), steps[0]);
    define_by_thread(s.products, 1, s.product_domain, own, serial, {steps.back()});
    multiply.unroll(inner);
    if (threads.register_state) multiply.unroll(steps[0]);
    const LoopLevel each(s.products.func, threads.register_state ? steps[0] : inner);
    in_registers(s.weight_tile, s.products.func, each, s.u, {s.c, s.e});
    in_registers(s.value_tile, s.products.func, each, s.v, {s.g, s.j});

    const int at_once = copies_at_once(tile.value_keys / threads.y, kQuad * groups);
    const Var key_step("key_step"), outer_key("outer_key"), thread("thread");
    share(s.value_tile, LoopLevel(s.products.func, steps.back()));
    s.value_tile.bound(s.v, 0, kQuad)
        .bound(s.s, 0, threads.x)
        .bound(s.g, 0, groups)
        .bound_extent(s.j, tile.value_keys)
        .split(s.j, outer_key, thread, threads.y)
        .split(outer_key, key_step, outer_key, at_once);
    bound_blocks(s.value_tile, {s.kb, s.n, s.h, s.z});
    thread_loops(s.value_tile, {s.v, s.g, outer_key}, {key_step}, s.s, thread, {s.kb, s.n, s.h, s.z});
}

void schedule_state(AttentionGpu& s, const LoopLevel& level) {
    const AttentionGpuTile& tile = s.tile;
    const std::vector<Var> blocks = {s.n, s.h, s.z};
    const Loops outer(blocks.begin(), blocks.end());
    keep_by_thread(s.state, level, {kQuad, s.features_of_thread() + 2});
    define_by_thread(s.state, 0, s.seed, {s.u, s.i});
    define_by_thread(s.state, 1, s.join, {s.u}, {}, {s.join.steps[0]}, false);

    share(s.row_sums, level);
    s.row_sums.bound(s.u, 0, kQuad).bound(s.s, 0, tile.threads.x).bound(s.t, 0, tile.threads.y);
    bound_blocks(s.row_sums, blocks);
    thread_loops(s.row_sums, {s.u}, {}, s.s, s.t, outer);
    keep_by_thread(s.total, level, {kQuad});
    define_by_thread(s.total, 0, s.total_domain, {s.u});
}

// The results of kBlockRows, kBlockHead, kBlockKeys.
void store_by_thread(Func out, const RDom& store, const Loops& inner, int first_thread, bool vectors) {
    out.gpu_blocks(out.args().back());
    Stage stage = out.update();
    stage.allow_race_conditions();
    const RVar n = store[first_thread + 2], h = store[first_thread + 3], z = store[first_thread + 4];
    thread_loops(stage, inner, {}, store[first_thread], store[first_thread + 1], {n, h, z}, vectors);
    stage.gpu_blocks(n, h, z);
}

}  // namespace

AttentionGpuTile attention_gpu_tile(const CudaAttendParams& params, const CudaLayout& layout) {
    const int x = static_cast<int>(layout.threads_x);
    return {.threads = {.x = x,
                        .y = static_cast<int>(params.threads_y),
                        .register_state = params.register_state != 0},
            .key_groups = static_cast<int>(layout.tile_kv) / (kQuad * x),
            .depth = static_cast<int>(params.depth),
            .value_keys = static_cast<int>(params.value_keys)};
}

void schedule_attention_gpu(AttentionGpu& s, Func context, Func row_stats, const CudaAttendParams& params) {
    const RDom& store = s.context_store;
    store_by_thread(context, store, {store[s.kColumn], store[s.kGroup], store[s.kRow]}, s.kThreadX, true);
    const RDom& stats = s.stats_store;
    store_by_thread(row_stats, stats, {stats[s.kStat], stats[s.kGroup], stats[s.kRow]}, s.kThreadX, false);
    row_stats.update().compute_with(context.update(), stats[s.kBlockRows]);

    const LoopLevel block(context, store[s.kBlockRows]);
    const LoopLevel block_of_keys(s.state.func, s.join.steps[0]);
    schedule_state(s, block);
    schedule_queries(s, block);
    schedule_scores(s, block_of_keys, params);
    schedule_weights(s, block_of_keys);
    schedule_products(s, block_of_keys, params);
}

void schedule_pairs_gpu(AttentionGpu& s, const Func& pairs, const CudaAttendParams& params) {
    const RDom& store = s.context_store;
    store_by_thread(pairs, store, {store[s.kColumn], store[s.kGroup], store[s.kRow]}, s.kThreadX, false);
    const LoopLevel block(pairs, store[s.kBlockRows]);
    schedule_queries(s, block);
    schedule_scores(s, block, params);
}

}  // namespace attnc
