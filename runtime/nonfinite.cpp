#include "runtime/nonfinite.h"

#include <bit>
#include <cstring>

#include "runtime/kernel_abi.h"

namespace attnc {
namespace {

constexpr uint32_t kQuietNan = 0x7fc00000;

struct Sse2 {
    using Vector = uint32_t __attribute__((vector_size(16)));
};
struct Avx2 {
    using Vector = uint32_t __attribute__((vector_size(32)));
};
struct Avx512 {
    using Vector = uint32_t __attribute__((vector_size(64)));
};

// Compiled for the instruction set of the function that it stands in.
template <typename Set>
[[gnu::always_inline]] inline bool search(const ValueRows& rows) {
    // Added to the bits without their sign, this carries into the sign where the exponent is all ones, and nowhere else.
    constexpr uint32_t kLeastExponent = 0x00800000, kUnsigned = 0x7fffffff;
    using Vector = typename Set::Vector;
    constexpr auto kLanes = static_cast<int64_t>(sizeof(Vector) / sizeof(float));
    const int64_t even = rows.count - rows.count % kLanes;
    Vector found = {};
    uint32_t all = 0;
    const float* row = rows.data;
    for (int64_t n = 0; n < rows.rows; ++n, row += rows.stride) {
        for (int64_t i = 0; i < even; i += kLanes) {
            Vector bits;
            memcpy(&bits, row + i, sizeof bits);
            found |= (bits & kUnsigned) + kLeastExponent;
        }
        for (int64_t i = even; i < rows.count; ++i)
            all |= (std::bit_cast<uint32_t>(row[i]) & kUnsigned) + kLeastExponent;
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) all |= found[lane];
    return (all & ~kUnsigned) != 0;
}

[[gnu::target("avx2")]] bool search_avx2(const ValueRows& rows) { return search<Avx2>(rows); }
[[gnu::target("avx512f")]] bool search_avx512(const ValueRows& rows) { return search<Avx512>(rows); }

}  // namespace

bool any_nonfinite(const ValueRows& rows, int64_t features) {
    if ((features & ATTNC_CPU_AVX512_SKYLAKE) != 0) return search_avx512(rows);
    if ((features & ATTNC_CPU_AVX2) != 0) return search_avx2(rows);
    return search<Sse2>(rows);
}

float minus_infinity() { return std::bit_cast<float>(kMinusInfinity); }
float quiet_nan() { return std::bit_cast<float>(kQuietNan); }

}  // namespace attnc
