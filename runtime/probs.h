// Probabilities, written from the row statistics after attention.
#pragma once

#include "runtime/attend.h"

namespace attnc {

// Columns first .. last of the call's keys, for the queries of a range with these row statistics, to `to`, where queries
// are row_stride apart. False when the kernel refused.
bool write_probs(const Wave& wave, Worker& worker, const QueryRange& range, const RowStats& stats,
                 int64_t first, int64_t last, float* to, int64_t row_stride);

// The columns of appended keys.
bool write_appended_probs(const Wave& wave, Worker& worker, const QueryRange& range, const RowStats& stats,
                          float* to, int64_t row_stride);

// The mean over heads, from probs where those are asked for too, else head by head through the worker's
// memory.
WorkList average_probs_work(const Wave& wave);

}  // namespace attnc
