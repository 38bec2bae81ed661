// Infinity and NaN, looked for by bits.
#pragma once

#include <bit>
#include <cstdint>

namespace attnc {

// Rows of `count` values, `stride` apart.
struct ValueRows {
    const float* data;
    int64_t count, rows, stride;
};

// Whether any value is infinite or NaN. `features`: the ATTNC_CPU_* that may be used.
bool any_nonfinite(const ValueRows& rows, int64_t features);

// The bits of -infinity, which drops a key where it is a bias.
inline constexpr uint32_t kMinusInfinity = 0xff800000;
inline bool is_minus_infinity(float value) { return std::bit_cast<uint32_t>(value) == kMinusInfinity; }

float minus_infinity();
float quiet_nan();

}  // namespace attnc
