#include "runtime/nonfinite.h"

#include <bit>
#include <cstring>

namespace attnc {
namespace {

constexpr uint32_t kQuietNan = 0x7fc00000;

}  // namespace

bool any_nonfinite(const float* values, int64_t count) {
    // Added to the bits without their sign, this carries into the sign where the exponent is all ones, and nowhere else.
    constexpr uint32_t kLeastExponent = 0x00800000, kUnsigned = 0x7fffffff;
    using Vector = uint32_t __attribute__((vector_size(16)));
    constexpr int64_t kLanes = 4;
    Vector found = {};
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        Vector bits;
        memcpy(&bits, values + i, sizeof bits);
        found |= (bits & kUnsigned) + kLeastExponent;
    }
    uint32_t all = found[0] | found[1] | found[2] | found[3];
    for (; i < count; ++i) all |= (std::bit_cast<uint32_t>(values[i]) & kUnsigned) + kLeastExponent;
    return (all & ~kUnsigned) != 0;
}

float minus_infinity() { return std::bit_cast<float>(kMinusInfinity); }
float quiet_nan() { return std::bit_cast<float>(kQuietNan); }

}  // namespace attnc
