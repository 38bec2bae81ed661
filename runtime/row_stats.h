// What attention knows of each row beside its context: it joins blocks of keys, and lse and probabilities come from it.
#pragma once

#include "runtime/call.h"

namespace attnc {

// As kernels take row_stats: of row i the largest score at data[i], the sum of exp(score - largest) at
// data[stride + i]. Kept apart, because lse itself loses the sum where the largest score is huge.
struct RowStats {
    float* data;
    int64_t stride;

    // Whether the row's query sees no key. A sum that is NaN is not empty.
    bool is_empty(int64_t row) const { return data[stride + row] == 0; }
    RowStats from(int64_t row) const { return {data + row, stride}; }
    Buffer<2> buffer(int64_t rows) const { return {data, kFloat32, {{rows, 1}, {2, stride}}}; }
};

}  // namespace attnc
