#include "stages/attention_merge.h"

#include <limits>

#include "stages/exp2.h"

namespace attnc {

using namespace Halide;

namespace {

constexpr float kLog2E = 1.44269504088896340736f;

// By bits: float comparisons may assume that there are no infinities.
Expr sees_nothing(const Expr& lse) { return reinterpret<int>(lse) == static_cast<int>(0xff800000U); }

Expr share(const Expr& lse, const Expr& maximum) { return exp2_nonpositive((lse - maximum) * kLog2E); }

}  // namespace

AttentionMerge::AttentionMerge(const Func& context_a, const Func& lse_a, const Func& context_b,
                               const Func& lse_b)
    : context_a_(context_a), lse_a_(lse_a), context_b_(context_b), lse_b_(lse_b) {
    Expr maximum = max(lse_a(i), lse_b(i));
    Expr a = share(lse_a(i), maximum), b = share(lse_b(i), maximum);
    weights(i) = Tuple(a / (a + b), b / (a + b));
}

Expr AttentionMerge::context(const Var& feature, const Var& query) const {
    Expr a = context_a_(feature, query), b = context_b_(feature, query);
    Expr both = weights(query)[0] * a + weights(query)[1] * b;
    return select(sees_nothing(lse_b_(query)), a, sees_nothing(lse_a_(query)), b, both);
}

Expr AttentionMerge::lse(const Var& query) const {
    Expr a = lse_a_(query), b = lse_b_(query);
    Expr maximum = max(a, b);
    Expr both = maximum + log(share(a, maximum) + share(b, maximum));
    return select(sees_nothing(b), a, sees_nothing(a), b, is_nan(a) || is_nan(b),
                  std::numeric_limits<float>::quiet_NaN(), both);
}

}  // namespace attnc
