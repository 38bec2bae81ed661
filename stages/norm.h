// RMS normalisation of heads (Zhang and Sennrich 2019).
#pragma once

#include <Halide.h>

namespace attnc {

// y(d, m, h) = x(d, m, h) * norm_weight(d) / sqrt(sum over d of x^2 + epsilon): a mean, rather than a sum, is in the weights
// and in epsilon. The sum has kLanes chains, one for every kLanes-th feature, in every instruction set; a row's bits depend
// on nothing but the row.
struct HeadNorm {
    static constexpr int kLanes = 16;  // divides the padded head

    Halide::Var d{"d"}, m{"m"}, h{"h"}, lane{"lane"};
    Halide::RDom step, lanes;      // over the features of a chain; over the chains
    Halide::Func chains, squares;  // (lane, m, h), (m, h)
    Halide::Func factor;           // (m, h)

    HeadNorm(const Halide::Func& x, const Halide::Expr& epsilon, int head_dim)
        : step(0, head_dim / kLanes, "step"),
          lanes(0, kLanes, "lanes"),
          chains("chains"),
          squares("squares"),
          factor("factor") {
        using Halide::Expr;
        Expr feature = x(lane + kLanes * step, m, h);
        chains(lane, m, h) = 0.0f;
        chains(lane, m, h) += feature * feature;
        squares(m, h) = 0.0f;
        squares(m, h) += chains(lanes, m, h);
        factor(m, h) = 1.0f / sqrt(squares(m, h) + epsilon);
    }
    Halide::Expr y(const Halide::Func& x, const Halide::Func& norm_weight) const {
        return x(d, m, h) * factor(m, h) * norm_weight(d);
    }
};

}  // namespace attnc
