#include "schedules/cpu/attention.h"

#include <algorithm>

#include "schedules/cpu/in_line.h"

namespace attnc {

using namespace Halide;

namespace {

// Reorders an update: `inner`, then its steps or keys, then what is outside of them. With masks there are runs around
// the keys.
void order(Stage stage, std::vector<VarOrRVar> inner, const RDom& keys, const Var& outer) {
    inner.emplace_back(keys.x);
    if (keys.dimensions() > 1) inner.emplace_back(keys.y);
    inner.emplace_back(outer);
    stage.reorder(inner);
}

// Registers' worth of lanes: `func`'s lanes i in vectors of 16, all side by side.
template <typename Stage>
void lanes_side_by_side(Stage stage, const Var& i) {
    const Var lane("lane");
    stage.split(i, i, lane, kQueryLanes).vectorize(lane).unroll(i);
}

// `lanes` (l, d, g, ...) from `quads` (b, d, l, g, ...), 16 queries x `side` numbers of each at a time.
void schedule_transposition(AttentionTwoPass& s, Func lanes, Func quads, const Var& d, int extent) {
    const int side = std::min(extent, kQueryLanes);
    const Var d16("d16"), d4("d4"), l4("l4"), run("run");
    lanes.bound(s.l, 0, kQueryLanes)
        .bound(d, 0, extent)
        .bound_extent(s.t, 1)
        .split(d, d16, d, side)
        .split(d, d, d4, 4)
        .split(s.l, l4, s.l, 4)
        .fuse(l4, d4, run)
        .reorder(run, s.l, d, d16, s.g)
        .vectorize(run)
        .unroll(s.l);
    quads.compute_at(lanes, d16)
        .store_in(MemoryType::Stack)
        .bound_extent(d, side)
        .bound(s.b, 0, 4)
        .bound(s.l, 0, 4)
        .bound_extent(s.g, 1)
        .bound_extent(s.t, 1)
        .reorder(d, s.b, s.l, s.g)
        .vectorize(d)
        .unroll(s.b)
        .unroll(s.l);
}

void schedule_queries(AttentionTwoPass& s, const Func& consumer, const Var& at, int q_vectors, int head_dim) {
    // A task has 64 KiB of stack; the transposed queries of common heads fit, those of wide ones go to the
    // heap.
    constexpr int kLargestOnStack = 16 * 1024;
    const int bytes = kQueryLanes * q_vectors * head_dim * static_cast<int>(sizeof(float));
    s.queries.compute_at(consumer, at)
        .store_in(bytes <= kLargestOnStack ? MemoryType::Stack : MemoryType::Heap);
    schedule_transposition(s, s.queries, s.quads, s.d, head_dim);
    s.queries.bound(s.g, 0, q_vectors);
}

// What masks of pairs say, as they lie in memory, and turned: sixteen queries at a time, so that few rows of a mask are read side
// by side.
struct MaskRows {
    Func rows, quads, lanes;
    int columns;  // numbers of a row in kGranule keys
    const std::vector<PairMask>& masks;
};

void schedule_mask_rows(AttentionTwoPass& s, BlockUpdate which, MaskRows pairs) {
    const Var lane("lane");
    const RDom& keys = s.addend_keys[which];
    s.block.update(s.update(which))
        .split(s.i, s.i, lane, kQueryLanes)
        .reorder(lane, keys.x, keys.y, s.i, s.t)
        .vectorize(lane)
        .never_partition(keys.y);
    pairs.rows.compute_at(s.block, keys.y)
        .store_in(MemoryType::Stack)
        .bound(s.c, 0, pairs.columns)
        .bound_extent(s.i, kQueryLanes)
        .bound_extent(s.n, 1)
        .bound_extent(s.t, 1);
    for (const PairMask& mask : pairs.masks) {
        pairs.rows.update(mask.update)
            .reorder(s.c, s.i, mask.once.x, s.n, s.t)
            .specialize(mask.side_by_side)
            .vectorize(s.c)
            .unroll(s.i);
    }
    pairs.lanes.compute_at(s.block, keys.y)
        .store_in(MemoryType::Stack)
        .bound_extent(s.g, 1)
        .bound_extent(s.n, 1);
    schedule_transposition(s, pairs.lanes, pairs.quads, s.c, pairs.columns);
    pairs.quads.bound_extent(s.n, 1);
}

void schedule_addends(AttentionTwoPass& s) {
    const Var lane("lane");
    for (const BlockUpdate which : {kKeyAddends, kBlockAddends}) {
        const RDom& keys = s.addend_keys[which];
        s.block.update(s.update(which))
            .split(s.i, s.i, lane, kQueryLanes)
            .vectorize(lane)
            .unroll(s.i)
            .never_partition(keys.y);
        order(s.block.update(s.update(which)), {lane, s.i}, keys, s.t);
    }
    schedule_mask_rows(s, kPairAddends,
                       {s.pair_addends, s.addend_quads, s.addend_lanes, kGranule, s.pair_masks});
    s.pair_addends.vectorize(s.c);
    s.key_addends.compute_at(s.block, s.addend_keys[kPairAddends].y)
        .store_in(MemoryType::Stack)
        .bound(s.c, 0, kGranule)
        .bound_extent(s.n, 1)
        .vectorize(s.c);
    s.key_addends.update().reorder(s.c, s.key_once.x, s.n);
    schedule_mask_rows(s, kKeptWords,
                       {s.mask_words, s.word_quads, s.word_lanes, kGranule / kWordKeys, s.word_masks});
    s.block.update(s.update(kKeptWords)).unroll(s.addend_keys[kKeptWords].x);
}

// A tile of scores: q_vectors x key_rows accumulators over the features of the head.
void schedule_sums(AttentionTwoPass& s, Func& sums, BlockUpdate which, const RDom& steps, int lanes,
                   int key_rows, Func ahead = Func()) {
    sums.compute_at(s.block, steps.x)
        .store_in(MemoryType::Stack)
        .bound(s.i, 0, lanes)
        .bound(s.c, 0, key_rows)
        .bound_extent(s.s, 1)
        .bound_extent(s.t, 1)
        .unroll(s.c);
    lanes_side_by_side(Stage(sums), s.i);
    const Var lane("lane");
    const RVar features("features"), feature("feature");
    sums.update()
        .split(s.i, s.i, lane, kQueryLanes)
        .split(s.depth.x, features, feature, s.tile.in_line)
        .reorder(lane, s.i, s.c, feature, features, s.s, s.t)
        .vectorize(lane)
        .unroll(s.i)
        .unroll(s.c)
        .unroll(feature);
    if (ahead.defined()) ahead.compute_at(sums, features).store_in(MemoryType::Stack);
    const Var block_lane("block_lane");
    s.block.update(s.update(which))
        .split(s.i, s.i, block_lane, kQueryLanes)
        .vectorize(block_lane)
        .unroll(s.i);
    order(s.block.update(s.update(which)), {block_lane, s.i}, steps, s.t);
}

// Everything up to the scores of one tile, computed at `at` of `consumer`.
void schedule_scores(AttentionTwoPass& s, const Func& consumer, const Var& at, const AttendParams& p,
                     int head_dim, int tile_kv) {
    const int q_vectors = static_cast<int>(p.q_vectors), lanes = kQueryLanes * q_vectors;
    const int key_rows = static_cast<int>(p.key_rows), tail_rows = static_cast<int>(p.tail_rows);

    s.bounds.compute_at(consumer, at)
        .store_in(MemoryType::Stack)
        .bound(s.x, 0, kTileBounds)
        .bound_extent(s.t, 1)
        .unroll(s.x);
    if (s.masked) {
        const int columns = tile_kv / kGranule;
        s.columns.compute_at(consumer, at)
            .store_in(MemoryType::Stack)
            .bound(s.c, 0, columns)
            .bound_extent(s.t, 1);
        s.columns.update().reorder(s.column_keys.x, s.t);
        s.runs.compute_at(consumer, at)
            .store_in(MemoryType::Stack)
            .bound(s.x, 0, kTileBounds)
            .bound(s.r, 0, columns)
            .bound_extent(s.t, 1);
        s.runs.update().reorder(s.x, s.run_keys.x, s.t).unroll(s.x);
    }
    schedule_queries(s, consumer, at, q_vectors, head_dim);

    s.block.compute_at(consumer, at)
        .store_in(MemoryType::Heap)
        .bound(s.i, 0, lanes)
        .bound(s.j, 0, kFirstScore + tile_kv + key_rows)
        .bound_extent(s.t, 1);
    lanes_side_by_side(s.block.update(s.update(kSeedMax)), s.i);
    schedule_sums(s, s.left_sums, kLeftScores, s.left, lanes, tail_rows);
    for (FullScores& full : s.full_scores) {
        schedule_sums(s, full.sums, full.update, full.steps, lanes, key_rows, full.ahead);
    }
    schedule_sums(s, s.right_sums, kRightScores, s.right, lanes, tail_rows);
    if (s.masked) schedule_addends(s);
}

}  // namespace

AttentionTile attention_tile(const AttendParams& params, const Target& target) {
    return {.rows = static_cast<int>(params.rows),
            .q_vectors = static_cast<int>(params.q_vectors),
            .key_rows = static_cast<int>(params.key_rows),
            .tail_rows = static_cast<int>(params.tail_rows),
            .context_rows = static_cast<int>(params.context_rows),
            .in_line = steps_in_line(target)};
}

void schedule_attend(AttentionTwoPass& s, Func context, Func row_stats, const AttendParams& p, int head_dim,
                     int v_head_dim, int tile_kv, const Target& target) {
    const int vector = target.natural_vector_size<float>();
    const int context_rows = static_cast<int>(p.context_rows);
    const Var tile("tile"), row("row"), group("group"), columns("columns"), column("column"), lane("lane");

    context.bound(s.d, 0, v_head_dim)
        .split(s.i, tile, row, static_cast<int>(p.rows), TailStrategy::GuardWithIf)
        .split(row, group, row, context_rows)
        .split(s.d, columns, column, static_cast<int>(p.context_columns))
        .split(column, column, lane, vector)
        .reorder(lane, column, row, group, columns, tile)
        .vectorize(lane)
        .unroll(column)
        .unroll(row)
        .never_partition(tile, columns, group);

    schedule_scores(s, context, tile, p, head_dim, tile_kv);

    lanes_side_by_side(s.block.update(s.update(kSeedSum)), s.i);
    lanes_side_by_side(s.block.update(s.update(kInvert)), s.i);
    const Var exp_lane("exp_lane");
    s.block.update(s.update(kExp)).split(s.i, s.i, exp_lane, kQueryLanes).vectorize(exp_lane).unroll(s.i);
    order(s.block.update(s.update(kExp)), {exp_lane, s.i}, s.exp_keys, s.t);

    // All groups of the tile, those past the queries too: context_sums is computed for them as well.
    s.group_bounds.compute_at(context, tile)
        .store_in(MemoryType::Stack)
        .bound(s.x, 0, kGroupBounds)
        .align_bounds(s.g, static_cast<int>(p.rows) / context_rows)
        .unroll(s.x);
    s.context_sums.compute_at(context, group)
        .store_in(MemoryType::Stack)
        .bound_extent(s.d, static_cast<int>(p.context_columns))
        .bound_extent(s.i, context_rows)
        .bound_extent(s.g, 1);
    const Var sum_lane("sum_lane");
    s.context_sums.split(s.d, s.d, sum_lane, vector).vectorize(sum_lane).unroll(s.d).unroll(s.i);
    for (size_t n = 0; n < s.value_keys.size(); n++) {
        Stage sums = s.context_sums.update(static_cast<int>(n));
        const RDom& keys = s.value_keys[n].keys;
        sums.split(s.d, s.d, sum_lane, vector)
            .reorder(sum_lane, s.d, s.i, keys.x, keys.y, s.g)
            .vectorize(sum_lane)
            .unroll(s.d)
            .unroll(s.i);
        if (s.value_keys[n].in_line) sums.unroll(keys.x);
    }

    row_stats.bound(s.c, 0, kRowStats)
        .split(s.i, tile, row, static_cast<int>(p.rows), TailStrategy::GuardWithIf)
        .split(row, row, lane, kQueryLanes, TailStrategy::GuardWithIf)
        .reorder(lane, row, s.c, tile)
        .vectorize(lane)
        .unroll(s.c)
        .compute_with(context, tile);
}

void schedule_pairs(AttentionTwoPass& s, Func pairs, const AttendParams& p, int head_dim, int tile_kv,
                    const Target& target) {
    const int vector = target.natural_vector_size<float>();
    const Var tile("tile"), row("row"), lane("lane");
    pairs.split(s.i, tile, row, static_cast<int>(p.rows), TailStrategy::GuardWithIf)
        .split(s.j, s.j, lane, vector, TailStrategy::GuardWithIf)
        .reorder(lane, row, s.j, tile)
        .vectorize(lane)
        .never_partition(tile, row);  // else the scores are copied three times
    schedule_scores(s, pairs, tile, p, head_dim, tile_kv);
}

void schedule_merge(AttentionMerge& s, Func context, Func row_stats, int v_head_dim, const Target& target) {
    const Var lane("lane");
    context.bound(s.d, 0, v_head_dim)
        .split(s.d, s.d, lane, target.natural_vector_size<float>())
        .vectorize(lane);
    row_stats.bound(s.c, 0, kRowStats).reorder(s.c, s.i).unroll(s.c);
    s.weights.compute_at(context, s.i).store_in(MemoryType::Stack);
}

void schedule_lse(Func lse, const Var& i, const Target& target) {
    lse.vectorize(i, target.natural_vector_size<float>(), TailStrategy::GuardWithIf);
}

}  // namespace attnc
