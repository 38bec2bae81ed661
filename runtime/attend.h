// Attention of a wave: one piece of work is a range of queries of one head of one item.
#pragma once

#include "runtime/call.h"
#include "runtime/row_stats.h"
#include "runtime/stage.h"

namespace attnc {

// Queries row .. row + rows of one head of one item.
struct QueryRange {
    const Item* item;
    int64_t head;
    int64_t row, rows;
    int64_t last() const { return row + rows; }
};

// Writes context, lse and probs, as far as asked for, of items with more than a few queries.
WorkList attend_work(const Wave& wave);

// Attention of a range over parts of its keys, one after another: contexts and statistics, each this far from the one before.
struct PartialResults {
    int64_t count;
    float* context;
    int64_t row_stride, context_stride;
    RowStats stats;
    int64_t stats_stride;
};
// Joins them, adds what isn't among a call's keys, and writes what attend_work writes.
bool finish_partial(const Wave& wave, Worker& worker, const QueryRange& range, const PartialResults& parts,
                    const char** refused);

// Rows past the items' query lengths: zeros, and -inf for lse.
WorkList empty_tails_work(const Wave& wave);

KeyInterval visible_keys(const QueryRange& range);

// Whether every query of the range sees every key of first .. end.
bool sees_all(const QueryRange& range, int64_t first, int64_t end);

// Heads as attention reads them, wherever they lie.
struct HeadRows {
    const float* data;
    int64_t row_stride;
};
HeadRows query_rows(const Wave& wave, const QueryRange& range);

// Where they are kept for averaged probabilities (Plan::keeps_row_stats).
RowStats kept_row_stats(const Wave& wave, const QueryRange& range);

// The head of K and V that a head of Q attends.
int64_t kv_head_of(const attnc_layer& layer, int64_t head);

// first_key and last_key of the kernels for queries from `row` and keys from `key`.
struct KernelInterval {
    int32_t first_key, last_key;
};
KernelInterval kernel_interval(const Item& item, int64_t row, int64_t key);
// own_key of the kernels, the same way.
int32_t kernel_own_key(const Item& item, int64_t row, int64_t key);
inline constexpr KernelInterval kAllKeys = {kNoFirstKey, kNoLastKey};

}  // namespace attnc
