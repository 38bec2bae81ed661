// What is made of row statistics: the join of two disjoint sets of keys (the step of Online softmax, Milakov and
// Gimelshein 2018, in its form for normalised parts), and log-sum-exp.
#pragma once

#include <Halide.h>

#include "stages/row_stats.h"

namespace attnc {

struct AttentionMerge {
    Halide::Var d{"d"}, i{"i"}, c{"c"};
    Halide::Func joined{"joined"};    // (i): Tuple (largest, sum)
    Halide::Func weights{"weights"};  // (i): Tuple (of a, of b); they sum to 1

    // context_a, context_b (d, i); row_stats_a, row_stats_b (i, c)
    AttentionMerge(const Halide::Func& context_a, const Halide::Func& row_stats_a,
                   const Halide::Func& context_b, const Halide::Func& row_stats_b);

    Halide::Expr context(const Halide::Var& feature, const Halide::Var& query) const;
    Halide::Expr row_stats(const Halide::Var& query, const Halide::Var& column) const;

private:
    Halide::Func context_a_, stats_a_, context_b_, stats_b_;
};

// largest + log(sum) of a row's statistics; -infinity where no key is seen.
Halide::Expr log_sum_exp(const Halide::Expr& largest, const Halide::Expr& sum);

}  // namespace attnc
