// Infinity and NaN, looked for by bits.
#pragma once

#include <cstdint>

namespace attnc {

// Whether any of `count` values is infinite or NaN.
bool any_nonfinite(const float* values, int64_t count);

// The bits of -infinity, which is what lse is for a query without keys.
bool is_minus_infinity(float value);

float minus_infinity();
float quiet_nan();

}  // namespace attnc
