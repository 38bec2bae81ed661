#include "stages/projection_gpu.h"

namespace attnc {

using namespace Halide;

ProjectionGpu::ProjectionGpu(const Func& x, const Func& weights, const Func& bias_vector,
                             const ImageParam& lengths, const Expr& depth, const Expr& count, const Expr& seq,
                             const Expr& panels, const ProjectionGpuTile& sizes)
    : tile(sizes), sums("sums", sizes.threads, {v, g, u, h}, {m, p}), lengths_(lengths), seq_(seq) {
    const GpuThreads& threads = tile.threads;
    Expr source = min(m * tile.rows() + (h * threads.y + t) * kQuad + u, count - 1);
    row_tile(u, t, h, k, m) = select(k < depth, x(min(k, depth - 1), source), 0.0f);
    weight_tile(v, s, g, k, p) = weights((g * threads.x + s) * kQuad + v, k, p);

    seed = sums.define("seed", [&](const ThreadDomain& over) {
        return bias_vector((g * threads.x + over.x) * kQuad + v, p);
    });

    // A tile without a row that counts has none to compute: it lies in one item, behind its length.
    Expr first = m * tile.rows(), last = min(first + tile.rows(), count) - 1;
    Expr some_count = counts(first) || first / seq != last / seq;
    const int chain = threads.register_state ? 1 : tile.chain;
    multiply = sums.over("multiply", {{0, tile.depth / chain}, {0, (depth + (tile.depth - 1)) / tile.depth}});
    multiply.domain.where(some_count);
    Expr sum = sums.at({v, g, u, h}, multiply);
    for (int step = 0; step < chain; ++step) {
        Expr feature = multiply.steps[1] * tile.depth + multiply.steps[0] * chain + step;
        sum = sum + row_tile(u, multiply.y, h, feature, m) * weight_tile(v, multiply.x, g, feature, p);
    }
    sums.at({v, g, u, h}, multiply) = sum;

    store = RDom({{0, kQuad},
                  {0, tile.column_groups},
                  {0, kQuad},
                  {0, tile.row_groups},
                  {0, threads.x},
                  {0, threads.y},
                  {0, (count + (tile.rows() - 1)) / tile.rows()},
                  {0, panels}},
                 "store");
    store.where(row() < count);
}

// Whether a row is one of the first lengths(item) of its item; of a row that isn't there, anything.
Expr ProjectionGpu::counts(const Expr& row) const {
    Expr item = clamp(row / seq_, 0, lengths_.dim(0).extent() - 1);
    return row % seq_ < element_of(lengths_, {item});
}

Expr ProjectionGpu::row() const {
    return store[kTile] * tile.rows() + (store[kRowGroup] * tile.threads.y + store[kThreadY]) * kQuad +
           store[kRow];
}

Expr ProjectionGpu::column_quad() const {
    return (store[kPanel] * tile.column_groups + store[kColumnGroup]) * tile.threads.x + store[kThreadX];
}

Expr ProjectionGpu::result() const {
    Expr sum = sums.at({store[kColumn], store[kColumnGroup], store[kRow], store[kRowGroup]}, store[kThreadX],
                       store[kThreadY], {store[kTile], store[kPanel]});
    return select(counts(row()), sum, 0.0f);
}

}  // namespace attnc
