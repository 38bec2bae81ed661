#include "compiler/fma_probe.h"

#include <immintrin.h>

#include <cstdint>

#include "schedules/cpu_params.h"

namespace attnc {

namespace {

// Enough chains to hide the latency of an FMA on two ports (2 x 4 cycles, 2 x 5 on older cores); few enough for the
// registers. Every accumulator starts at zero and stays there: no overflow, no denormals.
constexpr int kChains = 12;
constexpr int64_t kRounds = 20000;  // of kChains; tens of microseconds

__attribute__((target("avx512f"))) void rounds_avx512() {
    __m512 a0 = _mm512_setzero_ps(), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
    __m512 a6 = a0, a7 = a0, a8 = a0, a9 = a0, a10 = a0, a11 = a0;
    __m512 x = _mm512_setzero_ps();
    for (int64_t i = 0; i < kRounds; ++i) {
        asm volatile(
            "vfmadd231ps %12, %12, %0\n\tvfmadd231ps %12, %12, %1\n\tvfmadd231ps %12, %12, %2\n\t"
            "vfmadd231ps %12, %12, %3\n\tvfmadd231ps %12, %12, %4\n\tvfmadd231ps %12, %12, %5\n\t"
            "vfmadd231ps %12, %12, %6\n\tvfmadd231ps %12, %12, %7\n\tvfmadd231ps %12, %12, %8\n\t"
            "vfmadd231ps %12, %12, %9\n\tvfmadd231ps %12, %12, %10\n\tvfmadd231ps %12, %12, %11"
            : "+v"(a0), "+v"(a1), "+v"(a2), "+v"(a3), "+v"(a4), "+v"(a5), "+v"(a6), "+v"(a7), "+v"(a8),
              "+v"(a9), "+v"(a10), "+v"(a11)
            : "v"(x));
    }
}

__attribute__((target("avx2,fma"))) void rounds_avx2() {
    __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
    __m256 a6 = a0, a7 = a0, a8 = a0, a9 = a0, a10 = a0, a11 = a0;
    __m256 x = _mm256_setzero_ps();
    for (int64_t i = 0; i < kRounds; ++i) {
        asm volatile(
            "vfmadd231ps %12, %12, %0\n\tvfmadd231ps %12, %12, %1\n\tvfmadd231ps %12, %12, %2\n\t"
            "vfmadd231ps %12, %12, %3\n\tvfmadd231ps %12, %12, %4\n\tvfmadd231ps %12, %12, %5\n\t"
            "vfmadd231ps %12, %12, %6\n\tvfmadd231ps %12, %12, %7\n\tvfmadd231ps %12, %12, %8\n\t"
            "vfmadd231ps %12, %12, %9\n\tvfmadd231ps %12, %12, %10\n\tvfmadd231ps %12, %12, %11"
            : "+x"(a0), "+x"(a1), "+x"(a2), "+x"(a3), "+x"(a4), "+x"(a5), "+x"(a6), "+x"(a7), "+x"(a8),
              "+x"(a9), "+x"(a10), "+x"(a11)
            : "x"(x));
    }
}

void rounds_sse2() {  // a multiply and an add for each lane's two operations; both ports take both
    __m128 a0 = _mm_setzero_ps(), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
    __m128 a6 = a0, a7 = a0, a8 = a0, a9 = a0, a10 = a0, a11 = a0;
    __m128 x = _mm_setzero_ps();
    for (int64_t i = 0; i < kRounds; ++i) {
        asm volatile(
            "mulps %12, %0\n\taddps %12, %1\n\tmulps %12, %2\n\taddps %12, %3\n\tmulps %12, %4\n\taddps %12, "
            "%5\n\t"
            "mulps %12, %6\n\taddps %12, %7\n\tmulps %12, %8\n\taddps %12, %9\n\tmulps %12, %10\n\taddps "
            "%12, %11"
            : "+x"(a0), "+x"(a1), "+x"(a2), "+x"(a3), "+x"(a4), "+x"(a5), "+x"(a6), "+x"(a7), "+x"(a8),
              "+x"(a9), "+x"(a10), "+x"(a11)
            : "x"(x));
    }
}

}  // namespace

FmaProbe::FmaProbe() : FmaProbe(nullptr, nullptr, 0) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        *this = {"avx512", rounds_avx512, 32};
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        *this = {"avx2", rounds_avx2, 16};
    } else {
        *this = {"sse2", rounds_sse2, 4};
    }
}

FmaProbe FmaProbe::of_target(const std::string& target) {
    const VectorUnit unit = vector_unit(target);
    if (unit.lanes == 16) return {"avx512", rounds_avx512, 32};
    if (unit.fma) return {"avx2", rounds_avx2, 16};
    return {"sse2", rounds_sse2, 4};
}

void FmaProbe::run(int64_t pieces) const {
    for (int64_t i = 0; i < pieces; ++i) rounds_();
}

double FmaProbe::operations() const {
    return instruction_operations_ * kChains * static_cast<double>(kRounds);
}

}  // namespace attnc
