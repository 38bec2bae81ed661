// Small arithmetic.
#pragma once

#include <cstdint>

namespace attnc {

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }  // a >= 0, b > 0

inline bool is_finite(double value) { return __builtin_isfinite(value); }

}  // namespace attnc
