// Rows that lie apart, copied to stand one after another.
#pragma once

#include "runtime/attend.h"

namespace attnc {

// `count` rows of `width` floats, a multiple of ATTNC_HEAD_ALIGN. `features`: the ATTNC_CPU_* that may be used.
void copy_rows(const HeadRows& from, float* to, int64_t width, int64_t count, int64_t features);

}  // namespace attnc
