// A layer's weights as the caller gives them, checked, with in_proj_weight taken apart.
#pragma once

#include "runtime/attnc.h"
#include "runtime/kernel_abi.h"

namespace attnc {

// A matrix [rows, columns] with inner stride 1, or null where the layer has none.
struct Matrix {
    const float* data = nullptr;
    int64_t rows = 0, columns = 0, row_stride = 0;
};

struct LayerWeights {
    Matrix wq, wk, wv, wo;
    const float *bq = nullptr, *bk = nullptr, *bv = nullptr, *bo = nullptr;  // null: none
    const float *bias_k = nullptr, *bias_v = nullptr;
    const float* sink = nullptr;
    const float* alibi_slopes = nullptr;
};

attnc_status check_weights(attnc_error* error, const attnc_config& config, const attnc_weights* weights,
                           LayerWeights* result);

}  // namespace attnc
