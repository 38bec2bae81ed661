// Infinity and NaN, looked for by bits.
#pragma once

#include <cstdint>

namespace attnc {

// Whether any of `count` values is infinite or NaN.
bool any_nonfinite(const float* values, int64_t count);

// The bits of -infinity, which drops a key where it is a bias.
bool is_minus_infinity(float value);

float minus_infinity();
float quiet_nan();

}  // namespace attnc
