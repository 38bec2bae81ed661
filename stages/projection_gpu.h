// Linear projection on a GPU: a block of threads makes a tile of rows by one panel of columns. Rows and weights go through
// shared memory in steps of `depth` inner features; each thread holds 4 x 4 sums of each of its groups.
#pragma once

#include <Halide.h>

#include "stages/gpu_items.h"
#include "stages/gpu_threads.h"

namespace attnc {

struct ProjectionGpuTile {
    GpuThreads threads;
    int row_groups = 2, column_groups = 2;  // fours of rows and columns of a thread
    int depth = 16;                         // inner features in shared memory at a time
    int chain = 4;  // with state in shared memory: multiply-adds of a sum between two of its stores

    int rows() const { return kQuad * threads.y * row_groups; }
    int columns() const { return kQuad * threads.x * column_groups; }
};

// sums = bias_vector + sum over k of weights(n, k, p) x(k, m), each one chain in the order of k, as in Projection.
struct ProjectionGpu {
    ProjectionGpuTile tile;

    // u: row of four; h: group of rows; v: column of four; g: group of columns; s, t: thread; k: inner feature; m: tile of
    // rows; p: panel
    Halide::Var u{"u"}, h{"h"}, v{"v"}, g{"g"}, s{"s"}, t{"t"}, k{"k"}, m{"m"}, p{"p"};

    Halide::Func row_tile{"row_tile"};        // (u, t, h, k, m), shared
    Halide::Func weight_tile{"weight_tile"};  // (v, s, g, k, p), shared
    ThreadFunc sums;                          // (v, g, u, h)
    ThreadDomain seed, multiply;  // domains of its definitions; steps of the second: chain in step, step

    // Where the results go: columns and rows of a thread, threads, tiles and panels.
    Halide::RDom store;
    enum StoreDimension { kColumn, kColumnGroup, kRow, kRowGroup, kThreadX, kThreadY, kTile, kPanel };

    // x (k, m) of `depth` features and `count` rows; weights (n, k, p) and bias_vector (n, p), p < panels. The first
    // `seq` rows are those of item 0, and so on; of an item, the first lengths(item) count. Tiles of others aren't
    // computed.
    ProjectionGpu(const Halide::Func& x, const Halide::Func& weights, const Halide::Func& bias_vector,
                  const Halide::ImageParam& lengths, const Halide::Expr& depth, const Halide::Expr& count,
                  const Halide::Expr& seq, const Halide::Expr& panels, const ProjectionGpuTile& sizes);

    // Of an element of `store`:
    Halide::Expr result() const;       // 0 in a row that doesn't count
    Halide::Expr row() const;          // in x; count and more in a tile that overhangs
    Halide::Expr column_quad() const;  // fours of columns before its own

private:
    Halide::ImageParam lengths_;
    Halide::Expr seq_;
    Halide::Expr counts(const Halide::Expr& row) const;
};

}  // namespace attnc
