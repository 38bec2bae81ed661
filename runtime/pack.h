// Lays weights out as the kernels read them. Plain loops: a layer is made once.
#pragma once

#include "runtime/check_rotary.h"
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

// q_norm or k_norm [features] to `width` of them, zeros beyond; times sqrt(features), since the kernel divides by a sum
// of squares instead of their mean.
void pack_norm(const float* weight, int64_t features, int64_t width, float* to);

// Frequencies of all pairs as fractions of a turn.
void pack_turns(const RotarySource& source, uint64_t* to);

// The caller's cosines and sines as rows of angles.
void pack_angles(const RotarySource& source, int64_t stride, float* to);

}  // namespace attnc
