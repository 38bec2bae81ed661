// Reductions of a list in the shape of a tree.
#pragma once

#include <Halide.h>

#include <utility>
#include <vector>

namespace attnc {

// By neighbours: ((0 + 1) + (2 + 3)) + ...; one that is left over joins in the next round.
template <typename Join>
Halide::Expr reduce_as_tree(std::vector<Halide::Expr> values, Join join) {
    while (values.size() > 1) {
        std::vector<Halide::Expr> next;
        for (size_t n = 0; n + 1 < values.size(); n += 2) next.push_back(join(values[n], values[n + 1]));
        if (values.size() % 2 == 1) next.push_back(values.back());
        values = std::move(next);
    }
    return values.front();
}

inline Halide::Expr tree_max(const std::vector<Halide::Expr>& values) {
    return reduce_as_tree(values,
                          [](const Halide::Expr& a, const Halide::Expr& b) { return Halide::max(a, b); });
}

inline Halide::Expr tree_sum(const std::vector<Halide::Expr>& values) {
    return reduce_as_tree(
        values, [](const Halide::Expr& a, const Halide::Expr& b) { return Halide::strict_float(a + b); });
}

}  // namespace attnc
