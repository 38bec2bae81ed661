#include "runtime/empty_rows.h"

#include <cstring>

#include "runtime/cache_rows.h"
#include "runtime/nonfinite.h"

namespace attnc {
namespace {

// Mean over the item's keys, all of which are there, in double so that the number of keys costs no exactness. Features 64
// at a time.
void mean_of_values(const Wave& wave, const Item& item, int64_t kv_head, float* mean) {
    constexpr int64_t kFeatures = 64;
    const KvPool pool = kv_pool(wave, item, kv_head);
    const int64_t width = wave.layer.v_width, keys = item.kv_length;
    for (int64_t first = 0; first < width; first += kFeatures) {
        const int64_t count = width - first < kFeatures ? width - first : kFeatures;
        double sums[kFeatures] = {};
        for (int64_t j = 0; j < keys; ++j) {
            const float* row = pool.v.data + pool.row_of(j) * pool.v.row_stride + first;
            for (int64_t d = 0; d < count; ++d) sums[d] += static_cast<double>(row[d]);
        }
        for (int64_t d = 0; d < count; ++d) {
            mean[first + d] = keys > 0 ? static_cast<float>(sums[d] / static_cast<double>(keys)) : 0.0F;
        }
    }
}

// Kernels write zeros.
bool needs_filling(const attnc_layer& layer) { return layer.empty_rows != ATTNC_EMPTY_ROWS_ZERO; }

}  // namespace

void fill_empty_context(const Wave& wave, const QueryRange& range, const RowStats& stats, float* context,
                        int64_t row_stride) {
    const attnc_layer& layer = wave.layer;
    if (!needs_filling(layer)) return;
    const int64_t width = layer.v_width;
    const float* filled = nullptr;
    for (int64_t i = 0; i < range.rows; ++i) {
        if (!stats.is_empty(i)) continue;
        float* row = context + i * row_stride;
        if (filled != nullptr) {
            memcpy(row, filled, static_cast<size_t>(width) * sizeof(float));
        } else if (layer.empty_rows == ATTNC_EMPTY_ROWS_NAN) {
            for (int64_t d = 0; d < width; ++d) row[d] = quiet_nan();
        } else {
            mean_of_values(wave, *range.item, kv_head_of(layer, range.head), row);
        }
        filled = row;
    }
}

void fill_empty_probs(const Wave& wave, const QueryRange& range, const RowStats& stats, int64_t first,
                      int64_t last, float* to, int64_t row_stride) {
    if (!needs_filling(wave.layer)) return;
    const int64_t keys = range.item->kv_length;
    const bool is_nan = wave.layer.empty_rows == ATTNC_EMPTY_ROWS_NAN;
    const float uniform = keys > 0 ? 1.0F / static_cast<float>(keys) : 0.0F;
    for (int64_t i = 0; i < range.rows; ++i) {
        if (!stats.is_empty(i)) continue;
        float* row = to + i * row_stride;
        for (int64_t j = first; j < last; ++j)
            row[j - first] = is_nan ? quiet_nan() : j < keys ? uniform : 0.0F;
    }
}

}  // namespace attnc
