#include "runtime/nonfinite.h"

#include <bit>

namespace attnc {
namespace {

constexpr uint32_t kExponent = 0x7f800000, kMinusInfinity = 0xff800000, kQuietNan = 0x7fc00000;

}  // namespace

bool any_nonfinite(const float* values, int64_t count) {
    uint32_t found = 0;  // collected without a branch, so that the loop is vector code
    for (int64_t i = 0; i < count; ++i) {
        const bool nonfinite = (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent;
        found |= nonfinite ? 1U : 0U;
    }
    return found != 0;
}

bool is_minus_infinity(float value) { return std::bit_cast<uint32_t>(value) == kMinusInfinity; }

float minus_infinity() { return std::bit_cast<float>(kMinusInfinity); }
float quiet_nan() { return std::bit_cast<float>(kQuietNan); }

}  // namespace attnc
