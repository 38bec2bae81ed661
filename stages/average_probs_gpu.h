// Probabilities as their mean over the heads.
#pragma once

#include <Halide.h>

namespace attnc {

struct AverageProbsGpu {
    Halide::Var j{"j"}, i{"i"}, b{"b"};
    Halide::Func sums{"sums"};  // (j, i, b): of all heads, in their order
    Halide::RDom head;

    // probs (j, i, h, b) of so many heads
    AverageProbsGpu(const Halide::Func& probs, const Halide::Expr& heads)
        : head(0, heads, "head"), heads_(heads) {
        sums(j, i, b) = 0.0f;
        sums(j, i, b) += probs(j, i, head, b);
    }
    Halide::Expr mean() const { return sums(j, i, b) * (1.0f / Halide::cast<float>(heads_)); }

private:
    Halide::Expr heads_;
};

}  // namespace attnc
