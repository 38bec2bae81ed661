#include "schedules/cpu/decode.h"

#include <algorithm>

namespace attnc {

using namespace Halide;

namespace {

// Keys of one row are read key by key, each from its first line to its last, as hardware that fetches ahead likes it, where
// the steps over features are few enough to stand in line. Other sums over features and over keys are rolled loops: where
// several terms of a chain stand in one block of code, a target without fused multiply-adds may add them in another order,
// and not in the same one everywhere.
constexpr int kMostStepsInLine = 16, kKeysTogether = 8;

void schedule_tree(DotTree& tree, AttentionDecode& s, LoopLevel at, int scores, int together) {
    const int lanes = s.tile.lanes;
    const Var step("step");
    auto once = [&](Func& f) {
        f.compute_at(at)
            .store_in(MemoryType::Stack)
            .bound_extent(s.t, 1)
            .bound_extent(s.s, 1)
            .bound_extent(s.m, 1);
    };
    if (tree.by_key.defined()) {
        once(tree.by_key);
        tree.by_key.bound(s.l, 0, lanes).bound(s.n, 0, scores).vectorize(s.l).unroll(s.n);
        tree.products.compute_at(tree.by_key, s.n)
            .store_in(MemoryType::Stack)
            .bound(s.l, 0, lanes)
            .bound_extent(s.n, 1)
            .vectorize(s.l);
        tree.products.update().reorder(s.l, tree.depth.x).vectorize(s.l).unroll(tree.depth.x);
    } else {
        once(tree.products);
        tree.products.bound(s.l, 0, lanes).bound(s.n, 0, scores);
        tree.products.split(s.n, step, s.n, together).vectorize(s.l).unroll(s.n).unroll(step);
        tree.products.update()
            .split(s.n, step, s.n, together)
            .reorder(s.l, s.n, tree.depth.x, step, s.t, s.s, s.m)
            .vectorize(s.l)
            .unroll(s.n)
            .unroll(step);
    }
    int vectors = scores / 2;
    for (Func& level : tree.levels) {
        once(level);
        level.bound(s.l, 0, lanes).bound(s.n, 0, vectors).vectorize(s.l).unroll(s.n);
        vectors /= 2;
    }
}

}  // namespace

DecodeTile decode_tile(const DecodeParams& params, int head_dim, const Target& target) {
    const int lanes = target.natural_vector_size<float>();
    return {.lanes = lanes,
            .rows = static_cast<int>(params.rows),
            .keys = static_cast<int>(params.keys),
            .in_line = vector_unit(target.to_string()).fma && head_dim / lanes <= kMostStepsInLine};
}

void schedule_decode(AttentionDecode& s, Func context, Func row_stats, const DecodeParams& p, int head_dim,
                     int v_head_dim, int split_kv) {
    const int lanes = s.tile.lanes, rows = s.tile.rows, keys = s.tile.keys;
    const Var lane("lane"), single_column("single_column"), block_column("block_column"), tile("tile"),
        key("key");

    s.bounds.compute_root().store_in(MemoryType::Stack).bound(s.x, 0, kDecodeBounds);
    s.row_query.compute_root().store_in(MemoryType::Stack).bound(s.r, 0, kDecodeRows);

    s.queries.compute_root().store_in(MemoryType::Heap).bound(s.d, 0, head_dim).bound(s.r, 0, kDecodeRows);
    s.queries.update().split(s.d, s.d, lane, lanes).reorder(lane, s.d, s.query_rows.x).vectorize(lane);

    auto run_lanes = [&](Stage stage, const RVar& over) {
        stage.split(s.x, s.x, lane, lanes).reorder(lane, s.x, over).vectorize(lane).unroll(s.x);
    };
    s.run_rows.compute_root()
        .store_in(MemoryType::Heap)
        .bound(s.x, 0, kRunLanes)
        .bound(s.s, 0, split_kv / kRunLanes);
    run_lanes(s.run_rows.update(), s.table_runs.x);

    auto runs = [&](Func& f) {
        f.compute_root()
            .store_in(MemoryType::Heap)
            .bound(s.x, 0, kRunLanes)
            .bound(s.y, 0, kFirstRunColumn + split_kv / kRunLanes)
            .bound(s.r, 0, kDecodeRows);
    };
    runs(s.scores);
    run_lanes(s.scores.update(kSeedLargest), s.seed_rows.x);
    run_lanes(s.scores.update(kSingleScores), s.single_runs.x);
    s.scores.update(kBlockScores)
        .split(s.x, tile, key, keys)
        .reorder(key, s.block_runs.x, tile, s.block_runs.y, s.block_runs.z)
        .vectorize(key)
        .unroll(s.block_runs.x);
    for (size_t pass = 0; pass < s.score_passes.size(); pass++) {
        const RDom& over = s.score_passes[pass];
        s.scores.update(kFirstPass + static_cast<int>(pass))
            .split(s.x, s.x, lane, lanes)
            .reorder(lane, s.x, over.x, over.y)
            .vectorize(lane)
            .unroll(s.x);
    }
    schedule_tree(s.single, s, LoopLevel(s.scores, s.single_runs.x), kRunLanes, kKeysTogether);
    if (s.single.by_key.defined()) {
        s.key_ahead.compute_at(s.single.by_key, s.n).store_in(MemoryType::Stack);
        s.scores.update(kSingleScores).specialize(s.asks_ahead());
    }
    schedule_tree(s.block, s, LoopLevel(s.scores, tile), rows * keys, rows * keys);

    s.largest.compute_root().store_in(MemoryType::Stack).bound(s.r, 0, kDecodeRows);

    runs(s.weights);
    run_lanes(s.weights.update(kSeedSums), s.weight_seed_rows.x);
    s.weights.update(kWeights)
        .split(s.x, s.x, lane, lanes)
        .reorder(lane, s.x, s.weight_runs.x, s.weight_runs.y)
        .vectorize(lane)
        .unroll(s.x);
    s.total.compute_root().store_in(MemoryType::Stack).bound(s.r, 0, kDecodeRows);

    const int single_columns = static_cast<int>(p.single_columns), columns = static_cast<int>(p.columns);
    s.context_sums.compute_root()
        .store_in(MemoryType::Heap)
        .bound(s.d, 0, v_head_dim)
        .bound(s.r, 0, kDecodeRows);
    s.context_sums.update(kSeedContext)
        .split(s.d, s.d, lane, lanes)
        .reorder(lane, s.d, s.context_rows.x)
        .vectorize(lane);
    s.context_sums.update(kSingleContext)
        .split(s.d, single_column, s.d, single_columns)
        .split(s.d, s.d, lane, lanes)
        .reorder(lane, s.d, single_column, s.value_runs.x)
        .vectorize(lane)
        .unroll(s.d);
    s.context_sums.update(kBlockContext)
        .split(s.d, block_column, s.d, columns)
        .split(s.d, s.d, lane, lanes)
        .reorder(lane, s.d, s.value_block_runs.x, block_column, s.value_block_runs.y, s.value_block_runs.z)
        .vectorize(lane)
        .unroll(s.d)
        .unroll(s.value_block_runs.x);
    s.single_part.compute_at(s.context_sums, single_column)
        .store_in(MemoryType::Stack)
        .bound_extent(s.d, single_columns)
        .bound_extent(s.s, 1)
        .vectorize(s.d, lanes)
        .unroll(s.d);
    s.block_part.compute_at(s.context_sums, block_column)
        .store_in(MemoryType::Stack)
        .bound_extent(s.d, columns)
        .bound_extent(s.r, rows)
        .bound_extent(s.s, 1)
        .vectorize(s.d, lanes)
        .unroll(s.d)
        .unroll(s.r);
    for (int update = 0; update < kPartUpdates; update++) {
        s.single_part.update(update)
            .split(s.d, s.d, lane, lanes)
            .reorder(lane, s.d, s.single_keys[update].x, s.s)
            .vectorize(lane)
            .unroll(s.d);
        s.block_part.update(update)
            .split(s.d, s.d, lane, lanes)
            .reorder(lane, s.d, s.r, s.block_keys[update].x, s.s)
            .vectorize(lane)
            .unroll(s.d)
            .unroll(s.r);
    }

    context.bound(s.d, 0, v_head_dim).vectorize(s.d, lanes);
    row_stats.unroll(s.c);
}

}  // namespace attnc
