#include "stages/attention_merge.h"

#include <limits>

#include "stages/exp.h"

namespace attnc {

using namespace Halide;

AttentionMerge::AttentionMerge(const Func& context_a, const Func& row_stats_a, const Func& context_b,
                               const Func& row_stats_b)
    : context_a_(context_a), stats_a_(row_stats_a), context_b_(context_b), stats_b_(row_stats_b) {
    Expr largest = max(stats_a_(i, kLargest), stats_b_(i, kLargest));
    Expr a = stats_a_(i, kSum) * exp_nonpositive(stats_a_(i, kLargest) - largest);
    Expr b = stats_b_(i, kSum) * exp_nonpositive(stats_b_(i, kLargest) - largest);
    joined(i) = Tuple(largest, a + b);
    weights(i) = Tuple(a / (a + b), b / (a + b));
}

Expr AttentionMerge::context(const Var& feature, const Var& query) const {
    Expr a = context_a_(feature, query), b = context_b_(feature, query);
    Expr both = weights(query)[0] * a + weights(query)[1] * b;
    return select(sees_no_key(stats_b_(query, kSum)), a, sees_no_key(stats_a_(query, kSum)), b, both);
}

Expr AttentionMerge::row_stats(const Var& query, const Var& column) const {
    Expr both = mux(column, {joined(query)[0], joined(query)[1]});
    return select(sees_no_key(stats_b_(query, kSum)), stats_a_(query, column),
                  sees_no_key(stats_a_(query, kSum)), stats_b_(query, column), both);
}

Expr log_sum_exp(const Expr& largest, const Expr& sum) {
    Expr seen = largest + log(max(sum, 1.0f));
    return select(is_nan(sum), std::numeric_limits<float>::quiet_NaN(), sees_no_key(sum),
                  -std::numeric_limits<float>::infinity(), seen);
}

}  // namespace attnc
