// Lays weights out as the kernels read them. Plain loops: a layer is made once.
#pragma once

#include "runtime/layer.h"
#include "runtime/weights.h"

namespace attnc {

// wq, wk or wv [heads * features, inner] and its bias into panels (n, k, p); columns of padding become 0.
void pack_heads(const Matrix& weights, const float* bias, int64_t features, const HeadPanels& heads,
                int64_t panel, float* panels, float* packed_bias);

// wo [d_model, heads * features] and its bias; rows (k) of padding, `width` to a head, and columns past
// d_model become 0.
void pack_out(const Matrix& weights, const float* bias, int64_t features, int64_t width, int64_t panel,
              float* panels, float* packed_bias);

// bias_k or bias_v [heads * features], then the key of zeros, to [heads][appended][width]. bias null: only
// the zeros.
void pack_appended(const float* bias, int64_t heads, int64_t features, int64_t width, int64_t appended,
                   float* to);

}  // namespace attnc
