#include "bench/plain_read.h"

#include <immintrin.h>

namespace attnc::bench {

namespace {

// Eight accumulators hide the latency of an addition; the loads of 512 bytes at a time run ahead of them.
__attribute__((target("avx512f"))) float read_avx512(const float* from, size_t count) {
    __m512 sums[8];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    size_t i = 0;
    for (; i + 128 <= count; i += 128) {
#pragma GCC unroll 8
        for (size_t n = 0; n < 8; ++n) sums[n] = _mm512_add_ps(sums[n], _mm512_loadu_ps(from + i + 16 * n));
    }
    for (; i + 16 <= count; i += 16) sums[0] = _mm512_add_ps(sums[0], _mm512_loadu_ps(from + i));
    float all = 0;
    for (const __m512& sum : sums) {
        for (int lane = 0; lane < 16; ++lane) all += sum[lane];
    }
    return all;
}

__attribute__((target("avx2"))) float read_avx2(const float* from, size_t count) {
    __m256 sums[8];
    for (__m256& sum : sums) sum = _mm256_setzero_ps();
    for (size_t i = 0; i + 64 <= count; i += 64) {
#pragma GCC unroll 8
        for (size_t n = 0; n < 8; ++n) sums[n] = _mm256_add_ps(sums[n], _mm256_loadu_ps(from + i + 8 * n));
    }
    float all = 0;
    for (const __m256& sum : sums)
        all += sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    return all;
}

float read_sse2(const float* from, size_t count) {
    __m128 sums[8];
    for (__m128& sum : sums) sum = _mm_setzero_ps();
    for (size_t i = 0; i + 32 <= count; i += 32) {
#pragma GCC unroll 8
        for (size_t n = 0; n < 8; ++n) sums[n] = _mm_add_ps(sums[n], _mm_loadu_ps(from + i + 4 * n));
    }
    float all = 0;
    for (const __m128& sum : sums) all += sum[0] + sum[1] + sum[2] + sum[3];
    return all;
}

}  // namespace

float read_plainly(std::span<const float> numbers) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return read_avx512(numbers.data(), numbers.size());
    if (__builtin_cpu_supports("avx2")) return read_avx2(numbers.data(), numbers.size());
    return read_sse2(numbers.data(), numbers.size());
}

}  // namespace attnc::bench
