// Queries that may attend no key, by the layer's policy.
#pragma once

#include "runtime/attend.h"

namespace attnc {

// Rewrites the context of the range's empty rows.
void fill_empty_context(const Wave& wave, const QueryRange& range, const RowStats& stats, float* context,
                        int64_t row_stride);

// The same for columns first .. last of their probabilities; `to` is column `first` of the first row.
void fill_empty_probs(const Wave& wave, const QueryRange& range, const RowStats& stats, int64_t first,
                      int64_t last, float* to, int64_t row_stride);

}  // namespace attnc
