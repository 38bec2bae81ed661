// Dropped scores, and small tools of the attention stages.
#pragma once

#include <Halide.h>

#include <limits>

namespace attnc {

// A dropped score is -infinity, so that its exponential is exactly 0. The maximum starts at the lowest finite
// number: a query that sees no key gets -infinity - lowest = -infinity, never infinity - infinity.
inline constexpr float kLowest = std::numeric_limits<float>::lowest();
inline constexpr float kDropped = -std::numeric_limits<float>::infinity();
inline constexpr int kDroppedBits = static_cast<int>(0xff800000U);

// A dropped key's weight is -0 where it has to be told from that of a key whose weight came out as 0.
inline constexpr int kDroppedWeightBits = std::numeric_limits<int>::min();

// Comparison by bits: the code generator's float comparisons may assume that there are no infinities.
inline Halide::Expr is_dropped(const Halide::Expr& score) {
    return Halide::reinterpret<int>(score) == kDroppedBits;
}

// A table of two instead of a select, for values that depend on scores: a select's condition would be taken for a reason
// to compute the scores, lane by lane or not at all, and the bounds of the loops around would be lost.
inline Halide::Expr choose(const Halide::Expr& condition, const Halide::Expr& yes, const Halide::Expr& no) {
    return Halide::mux(Halide::cast<int>(condition), {no, yes});
}

// value, or -infinity where `drop`.
inline Halide::Expr drop_where(const Halide::Expr& drop, const Halide::Expr& value) {
    return choose(drop, kDropped, value);
}

// At least the lowest finite number, so that only what is dropped is -infinity; NaN stays NaN.
inline Halide::Expr at_least_lowest(const Halide::Expr& sum) {
    return Halide::strict_float(choose(sum < kLowest, kLowest, sum));
}

inline Halide::Expr add_to_score(const Halide::Expr& score, const Halide::Expr& addend) {
    return drop_where(is_dropped(addend) || is_dropped(score), at_least_lowest(score + addend));
}

inline Halide::Expr ceil_div(const Halide::Expr& a, int b) { return (a + (b - 1)) / b; }

}  // namespace attnc
