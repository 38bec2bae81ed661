#include "runtime/copy_rows.h"

#include <cstring>

#include "runtime/kernel_abi.h"

namespace attnc {
namespace {

// Compiled for the instruction set of the function that it stands in. A row is some 4 to 16 lines: a call for each would take
// longer than its copy.
[[gnu::always_inline]] inline void copy(const HeadRows& from, float* to, int64_t width, int64_t count) {
    const float* row = from.data;
    for (int64_t n = 0; n < count; ++n, row += from.row_stride, to += width) {
        for (int64_t i = 0; i < width; i += ATTNC_HEAD_ALIGN)
            memcpy(to + i, row + i, ATTNC_HEAD_ALIGN * sizeof(float));
    }
}

[[gnu::target("avx2")]] void copy_avx2(const HeadRows& from, float* to, int64_t width, int64_t count) {
    copy(from, to, width, count);
}
[[gnu::target("avx512f")]] void copy_avx512(const HeadRows& from, float* to, int64_t width, int64_t count) {
    copy(from, to, width, count);
}

}  // namespace

void copy_rows(const HeadRows& from, float* to, int64_t width, int64_t count, int64_t features) {
    if ((features & ATTNC_CPU_AVX512_SKYLAKE) != 0) return copy_avx512(from, to, width, count);
    if ((features & ATTNC_CPU_AVX2) != 0) return copy_avx2(from, to, width, count);
    copy(from, to, width, count);
}

}  // namespace attnc
