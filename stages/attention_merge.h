// Joins the attention results of two disjoint sets of keys (the step of Online softmax, Milakov and
// Gimelshein 2018, in its form for normalised parts).
#pragma once

#include <Halide.h>

namespace attnc {

struct AttentionMerge {
    Halide::Var d{"d"}, i{"i"};
    Halide::Func weights{"weights"};  // (i): Tuple (of a, of b); they sum to 1

    // context_a, context_b (d, i); lse_a, lse_b (i)
    AttentionMerge(const Halide::Func& context_a, const Halide::Func& lse_a, const Halide::Func& context_b,
                   const Halide::Func& lse_b);

    Halide::Expr context(const Halide::Var& feature, const Halide::Var& query) const;
    Halide::Expr lse(const Halide::Var& query) const;

private:
    Halide::Func context_a_, lse_a_, context_b_, lse_b_;
};

}  // namespace attnc
