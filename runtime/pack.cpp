#include "runtime/pack.h"

#include <cstring>
#include <initializer_list>

#include "runtime/rotary_frequencies.h"

namespace attnc {

void pack_heads(const Matrix& weights, const float* bias, int64_t features, const HeadPanels& heads,
                int64_t panel, float* panels, float* packed_bias) {
    const int64_t inner = weights.columns;
    const int64_t real_heads = weights.rows / features;
    for (int64_t p = 0; p < heads.panels(); ++p) {
        const int64_t group = p / heads.panels_per_head;
        const int64_t first_feature = p % heads.panels_per_head * panel;
        for (int64_t n = 0; n < panel; ++n) {
            const int64_t head = group * heads.heads_per_panel + n / heads.columns;
            const int64_t feature = first_feature + n % heads.columns;
            float* column = panels + p * inner * panel + n;
            const bool padding = head >= real_heads || feature >= features;
            const int64_t row = head * features + feature;
            for (int64_t k = 0; k < inner; ++k) {
                column[k * panel] = padding ? 0.0F : weights.data[row * weights.row_stride + k];
            }
            packed_bias[p * panel + n] = padding || bias == nullptr ? 0.0F : bias[row];
        }
    }
}

void pack_out(const Matrix& weights, const float* bias, int64_t features, int64_t width, int64_t panel,
              float* panels, float* packed_bias) {
    const int64_t heads = weights.columns / features;
    const int64_t inner = heads * width;
    const int64_t count = (weights.rows + panel - 1) / panel;
    for (int64_t column = 0; column < count * panel; ++column) {
        float* to = panels + column / panel * inner * panel + column % panel;
        const bool padding = column >= weights.rows;
        for (int64_t head = 0; head < heads; ++head) {
            for (int64_t d = 0; d < width; ++d) {
                to[(head * width + d) * panel] =
                    padding || d >= features
                        ? 0.0F
                        : weights.data[column * weights.row_stride + head * features + d];
            }
        }
        packed_bias[column] = padding || bias == nullptr ? 0.0F : bias[column];
    }
}

void pack_appended(const float* bias, int64_t heads, int64_t features, int64_t width, int64_t appended,
                   float* to) {
    memset(to, 0, static_cast<size_t>(heads * appended * width) * sizeof(float));
    if (bias == nullptr) return;
    for (int64_t head = 0; head < heads; ++head) {
        memcpy(to + head * appended * width, bias + head * features,
               static_cast<size_t>(features) * sizeof(float));
    }
}

void pack_norm(const float* weight, int64_t features, int64_t width, float* to) {
    const double root = __builtin_sqrt(static_cast<double>(features));
    for (int64_t d = 0; d < width; ++d)
        to[d] = d < features ? static_cast<float>(static_cast<double>(weight[d]) * root) : 0.0F;
}

void pack_turns(const RotarySource& source, uint64_t* to) {
    const attnc_tensor& given = source.frequencies;
    for (int64_t i = 0; i < source.pairs; ++i) {
        double radians = 0;
        if (given.rank == 0) {
            radians = scaled_frequency(inverse_power(source.rotary.base, i, source.pairs), source.rotary);
        } else if (given.dtype == ATTNC_F64) {
            radians = static_cast<const double*>(given.data)[i];
        } else {
            radians = static_cast<double>(static_cast<const float*>(given.data)[i]);
        }
        to[i] = turns_of(radians);
    }
}

void pack_angles(const RotarySource& source, int64_t stride, float* to) {
    const int64_t rows = source.cos.extent[0];
    memset(to, 0, static_cast<size_t>(rows * 2 * stride) * sizeof(float));
    for (int64_t row = 0; row < rows; ++row) {
        for (const attnc_tensor* t : {&source.cos, &source.sin}) {
            memcpy(to, static_cast<const float*>(t->data) + row * t->stride[0],
                   static_cast<size_t>(source.pairs) * sizeof(float));
            to += stride;
        }
    }
}

}  // namespace attnc
