// Infinity and NaN, looked for by bits.
#pragma once

#include <bit>
#include <cstdint>

namespace attnc {

// Whether any of `count` values is infinite or NaN.
bool any_nonfinite(const float* values, int64_t count);

// The bits of -infinity, which drops a key where it is a bias.
inline constexpr uint32_t kMinusInfinity = 0xff800000;
inline bool is_minus_infinity(float value) { return std::bit_cast<uint32_t>(value) == kMinusInfinity; }

float minus_infinity();
float quiet_nan();

}  // namespace attnc
