// The floating-point control word during a task: denormals count as zero, every exception is masked, rounding
// is to nearest. The caller's word comes back bit for bit, flags included.
#pragma once

#include <xmmintrin.h>

#include <cstdint>

namespace attnc {

class FpControlGuard {
public:
    FpControlGuard() : saved_(_mm_getcsr()) { _mm_setcsr(kWord); }
    ~FpControlGuard() { _mm_setcsr(saved_); }
    FpControlGuard(const FpControlGuard&) = delete;
    FpControlGuard& operator=(const FpControlGuard&) = delete;

private:
    static constexpr uint32_t kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040, kMaskAll = 0x1f80;
    static constexpr uint32_t kWord = kFlushToZero | kDenormalsAreZero | kMaskAll;
    uint32_t saved_;
};

}  // namespace attnc
