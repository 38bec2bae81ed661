// Splitting tokens into heads and merging heads into tokens: copies, with the padding between kernels added
// or removed.
#pragma once

#include <Halide.h>

namespace attnc {

// (d, m, h): feature d of head h of token m from x (d, m, h) with `features` of them; 0 beyond. Strides of x
// and of the result say which is merged and which is split.
inline Halide::Expr split_heads(const Halide::Func& x, const Halide::Expr& features, const Halide::Var& d,
                                const Halide::Var& m, const Halide::Var& h) {
    using namespace Halide;
    return select(d < features, x(unsafe_promise_clamped(min(d, features - 1), 0, features - 1), m, h), 0.0f);
}

// (d, m, h): the inverse; the extent of d in the result leaves the padding out.
inline Halide::Expr merge_heads(const Halide::Func& x, const Halide::Var& d, const Halide::Var& m,
                                const Halide::Var& h) {
    return x(d, m, h);
}

}  // namespace attnc
