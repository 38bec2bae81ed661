// Splitting tokens into heads and merging heads into tokens, of a whole batch: as heads.h, with rows that don't count as 0.
#pragma once

#include <Halide.h>

#include "stages/gpu_items.h"

namespace attnc {

// (d, m, h): feature d of head h of row m = b * seq + i from x (d, i, h, b) with `features` of them; 0 beyond, and where i is
// not one of the first lengths(b).
inline Halide::Expr split_heads_gpu(const Halide::Func& x, const Halide::Expr& features,
                                    const Halide::Expr& seq, const Halide::ImageParam& lengths,
                                    const Halide::Var& d, const Halide::Var& m, const Halide::Var& h) {
    using namespace Halide;
    Expr item = clamp(m / seq, 0, lengths.dim(0).extent() - 1), query = m % seq;
    return only_where(d < features && query < element_of(lengths, {item}),
                      x(min(d, features - 1), query, h, item), 0.0f);
}

// (d, i, h, b): the inverse, from x (d, h, m); the extent of d in the result leaves the padding out.
inline Halide::Expr merge_heads_gpu(const Halide::Func& x, const Halide::Expr& seq,
                                    const Halide::ImageParam& lengths, const Halide::Var& d,
                                    const Halide::Var& i, const Halide::Var& h, const Halide::Var& b) {
    return only_where(i < element_of(lengths, {b}), x(d, h, b * seq + i), 0.0f);
}

}  // namespace attnc
