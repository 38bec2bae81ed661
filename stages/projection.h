// Linear projection: rows of x times a matrix packed in panels, plus bias.
#pragma once

#include <Halide.h>

#include <optional>

#include "runtime/kernel_abi.h"
#include "stages/prefetch.h"

namespace attnc {

struct ProjectionInputs {
    Halide::Func x;             // (k, m)
    Halide::Func weights;       // (n, k, p)
    Halide::Func bias_vector;   // (n, p)
    Halide::Expr depth, count;  // extents of k and m
    int panel = 0;              // extent of n
    int in_line = 1;            // steps of k that stand in line
    // Of weights, whose panels lie one after another; undefined: nothing is asked for ahead.
    Halide::Expr address = {};
};

// sums(n, m, p) = bias_vector(n, p) + sum over k of weights(n, k, p) * x(k, m): column n of panel p for row
// m. Each sum is one chain in the order of k, so a row's bits depend on nothing but its own x and the
// weights.
struct Projection {
    Halide::Var n{"n"}, m{"m"}, p{"p"}, t{"t"};
    Halide::RDom k;      // over the inner dimension: x in line, y
    Halide::RDom rest;   // over what is left of it; undefined: nothing ever
    Halide::Func rows;   // x, with rows past the last one repeating it: tiles may overhang
    Halide::Func ahead;  // (s, t, p): 0, and asks for memory that is needed soon after steps s of row tile t
    Halide::Func sums;
    int tile;     // rows that share a step of k
    int in_line;  // steps of k

    Projection(const ProjectionInputs& in, int tile_rows)
        : k({{0, in.in_line}, {0, in.depth / in.in_line}}, "k"),
          rows("rows"),
          ahead("ahead"),
          sums("sums"),
          tile(tile_rows),
          in_line(in.in_line) {
        using namespace Halide;
        Var feature("feature");
        rows(feature, m) = in.x(feature, unsafe_promise_clamped(min(m, in.count - 1), 0, in.count - 1));

        sums(n, m, p) = in.bias_vector(n, p);
        Expr step = k.y * in_line + k.x, from = step;
        if (in.address.defined()) {
            define_ahead(in);
            from = unsafe_promise_clamped(step + ahead(k.y, m / tile, p), 0, in.depth - 1);
        }
        sums(n, m, p) += in.weights(n, from, p) * rows(step, m);
        if (in_line == 1) return;
        rest = RDom(0, in.depth % in_line, "rest");
        Expr last = in.depth / in_line * in_line + rest;
        sums(n, m, p) += in.weights(n, last, p) * rows(last, m);
    }

private:
    // A line for each step: of the next panel, so that all of its lines are shared out among the row tiles, several steps
    // asking for the same one where tiles are many. A single tile takes no longer than its own panel needs to come: it asks
    // for what it reads some steps later, which keeps the hardware's prefetching from pausing at each page.
    void define_ahead(const ProjectionInputs& in) {
        using namespace Halide;
        constexpr int kMostHalvings = 5, kStepsAhead = 64;
        Var steps("steps");
        const int lines = in.panel * static_cast<int>(sizeof(float)) / kLineBytes;  // of a step
        Expr tiles = in.count / tile, halvings = 0;
        for (int by = 1; by <= kMostHalvings; by++) halvings += cast<int>(tiles >= (lines << by));
        Expr single = tiles < 2, panel_lines = in.depth * lines;
        // The same in all steps of a tile.
        Expr first =
            cast<uint64_t>(p) * cast<uint64_t>(panel_lines) +
            cast<uint64_t>(select(single, kStepsAhead * lines, panel_lines + ((t * in.depth) >> halvings)));
        Expr apart = cast<uint64_t>(select(single, lines, 1) * kLineBytes);
        Expr group = cast<uint64_t>(select(single, steps, steps >> halvings));
        Expr place = in.address + first * kLineBytes + group * (apart * in_line), all = 0;
        for (int step = 0; step < in_line; step++) all += prefetch(place + step * apart);
        ahead(steps, t, p) = all;
    }
};

// The same sums by tiles of rows, of a tail kernel by a smaller tile where there are ATTNC_FEW_ROWS or fewer.
struct ProjectionTiles {
    Projection all;
    std::optional<Projection> few;
    Halide::Expr are_few;

    ProjectionTiles(const ProjectionInputs& in, int tile, bool tail)
        : all(in, tile), are_few(in.count <= ATTNC_FEW_ROWS) {
        if (tail && tile > ATTNC_FEW_ROWS) few.emplace(in, ATTNC_FEW_ROWS);
    }

    Halide::Expr sums(const Halide::Expr& n, const Halide::Expr& m, const Halide::Expr& p) const {
        return few ? select(are_few, few->sums(n, m, p), all.sums(n, m, p)) : Halide::Expr(all.sums(n, m, p));
    }
};

}  // namespace attnc
