// Linear projection: rows of x times a matrix packed in panels, plus bias.
#pragma once

#include <Halide.h>

namespace attnc {

// sums(n, m, p) = bias_vector(n, p) + sum over k of weights(n, k, p) * x(k, m): column n of panel p for row
// m. Each sum is one chain in the order of k, so a row's bits depend on nothing but its own x and the
// weights.
struct Projection {
    Halide::Var n{"n"}, m{"m"}, p{"p"};
    Halide::RDom k;     // over the inner dimension
    Halide::Func rows;  // x, with rows past the last one repeating it: tiles may overhang
    Halide::Func sums;

    // x (k, m) of `depth` features and `count` rows; weights (n, k, p); bias_vector (n, p).
    Projection(const Halide::Func& x, const Halide::Func& weights, const Halide::Func& bias_vector,
               const Halide::Expr& depth, const Halide::Expr& count)
        : k(0, depth, "k"), rows("rows"), sums("sums") {
        using Halide::unsafe_promise_clamped;
        Halide::Var feature("feature");
        rows(feature, m) = x(feature, unsafe_promise_clamped(Halide::min(m, count - 1), 0, count - 1));
        sums(n, m, p) = bias_vector(n, p);
        sums(n, m, p) += weights(n, k, p) * rows(k, m);
    }
};

}  // namespace attnc
