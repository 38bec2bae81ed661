#include "schedules/cpu/projection.h"

namespace attnc {

using namespace Halide;

namespace {

// The register tile: rows x panel accumulators over the whole inner dimension, computed at `at` of
// `consumer`. Panels are outside rows, so that a panel (panel * depth floats) stays in L2 while rows stream
// past it.
void schedule_sums(Projection& s, const Func& consumer, const Var& at, int rows, int panel, int vector) {
    const Var lane("lane"), lane_u("lane_u");
    s.sums.compute_at(consumer, at)
        .store_in(MemoryType::Stack)
        .bound(s.n, 0, panel)
        .bound_extent(s.m, rows)
        .bound_extent(s.p, 1)
        .split(s.n, s.n, lane, vector)
        .vectorize(lane)
        .unroll(s.n)
        .unroll(s.m);
    s.sums.update()
        .split(s.n, s.n, lane_u, vector)
        .reorder(lane_u, s.n, s.m, s.k.x, s.k.y, s.p)
        .vectorize(lane_u)
        .unroll(s.n)
        .unroll(s.m)
        .unroll(s.k.x);
    if (s.rest.defined()) {
        s.sums.update(1)
            .split(s.n, s.n, lane_u, vector)
            .reorder(lane_u, s.n, s.m, s.rest.x, s.p)
            .vectorize(lane_u)
            .unroll(s.n)
            .unroll(s.m);
    }
    if (s.ahead.defined()) {
        s.ahead.compute_at(s.sums, s.k.y)
            .store_in(MemoryType::Stack)
            .bound_extent(s.t, 1)
            .bound_extent(s.p, 1);
    }
}

// Schedules the consumer's definition for each tile: for few rows its specialization, by whose split their sums go.
template <typename Loops>
void by_tiles(const ProjectionTiles& tiles, Func consumer, int panel, int vector, const Loops& loops) {
    if (tiles.few) {
        const Var few_tile("few_tile");
        Projection few = *tiles.few;
        loops(consumer.specialize(tiles.are_few), few_tile, few.tile);
        schedule_sums(few, consumer, few_tile, few.tile, panel, vector);
    }
    const Var tile("tile");
    Projection all = tiles.all;
    loops(Stage(consumer), tile, all.tile);
    schedule_sums(all, consumer, tile, all.tile, panel, vector);
}

}  // namespace

void schedule_project_heads(const ProjectionTiles& tiles, Func y, const std::vector<Var>& y_args, int head,
                            int heads, const Target& target) {
    const int vector = target.natural_vector_size<float>();
    const Var &n = y_args[0], &a = y_args[1], &m = y_args[2], &c = y_args[3], &h = y_args[4];
    const Var row("row"), lane("lane");
    y.bound(n, 0, head).bound(a, 0, heads);
    by_tiles(tiles, y, head * heads, vector, [&](Stage stage, const Var& tile, int rows) {
        stage.split(m, tile, row, rows, TailStrategy::GuardWithIf)
            .split(n, n, lane, vector)
            .reorder(lane, n, a, row, tile, c, h)
            .vectorize(lane)
            .unroll(n)
            .unroll(a)
            .unroll(row)
            .never_partition(tile, c, h);
    });
}

void schedule_project_out(const ProjectionTiles& tiles, const Func& out, const std::vector<Var>& out_args,
                          int panel, const Target& target) {
    const int vector = target.natural_vector_size<float>();
    const Var &n = out_args[0], &m = out_args[1];
    const Var row("row"), columns("columns"), column("column"), lane("lane");
    by_tiles(tiles, out, panel, vector, [&](Stage stage, const Var& tile, int rows) {
        stage.split(m, tile, row, rows, TailStrategy::GuardWithIf)
            .split(n, columns, column, panel, TailStrategy::GuardWithIf)
            .split(column, column, lane, vector)
            .reorder(lane, column, row, tile, columns)
            .vectorize(lane)
            .unroll(column)
            .unroll(row)
            .never_partition(tile);
    });
}

}  // namespace attnc
