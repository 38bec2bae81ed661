#include "runtime/cpu.h"

#include <cpuid.h>

#include "runtime/kernel_abi.h"

namespace attnc {
namespace {

// The register states that the operating system saves, XCR0. Only where CPUID reports OSXSAVE.
uint64_t saved_states() {
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (static_cast<uint64_t>(high) << 32) | low;
}

}  // namespace

int64_t detect_cpu_features() {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return 0;
    int64_t features = 0;
    if ((ecx & bit_SSE4_1) != 0) features |= ATTNC_CPU_SSE41;
    if ((ecx & bit_OSXSAVE) == 0 || (ecx & bit_AVX) == 0) return features;

    const uint64_t states = saved_states();
    constexpr uint64_t kYmm = 0x6;          // xmm and ymm
    constexpr uint64_t kZmm = kYmm | 0xe0;  // mask registers, upper halves of zmm0-15, zmm16-31
    if ((states & kYmm) != kYmm) return features;
    features |= ATTNC_CPU_AVX;
    if ((ecx & bit_F16C) != 0) features |= ATTNC_CPU_F16C;
    if ((ecx & bit_FMA) != 0) features |= ATTNC_CPU_FMA;

    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return features;
    if ((ebx & bit_AVX2) != 0) features |= ATTNC_CPU_AVX2;
    constexpr uint32_t kSkylake = bit_AVX512F | bit_AVX512CD | bit_AVX512VL | bit_AVX512BW | bit_AVX512DQ;
    if ((states & kZmm) == kZmm && (ebx & kSkylake) == kSkylake) features |= ATTNC_CPU_AVX512_SKYLAKE;
    return features;
}

}  // namespace attnc
