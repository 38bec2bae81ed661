// Valid rows of a wave, counted through all items, in chunks and in stretches that one kernel call can take.
#pragma once

#include <cstdint>

#include "runtime/item.h"

namespace attnc {

// Appended: the keys that a call puts into its cache. Keys: those that a call without a cache attends.
enum class RowKind { kQueries, kKeys, kAppended };

// The rows of queries, or of keys, of a wave. Memory of the caller has `batch_stride` from item to item.
struct Rows {
    const Item* items;
    int64_t item_count;
    RowKind kind;
    int64_t total;                     // valid ones
    int64_t chunks;                    // of about equal size, each a piece of work
    int64_t batch_stride, row_stride;  // of the caller's tensor, in elements
    int64_t call_rows;                 // at most, for one kernel call
    int64_t first_query = 0;           // of queries, where the rows of a single item begin

    bool queries() const { return kind == RowKind::kQueries; }
    int64_t first(int64_t i) const { return queries() ? items[i].q_row : items[i].new_row; }
    int64_t length(int64_t i) const {
        if (queries()) return items[i].q_length - first_query;
        return kind == RowKind::kKeys ? items[i].kv_used() : items[i].new_keys;
    }
    int64_t origin(int64_t i) const { return queries() ? items[i].q_origin : items[i].kv_origin; }
    // Rows of the item that come before its first one here.
    int64_t skipped(int64_t i) const {
        if (queries()) return first_query;
        return kind == RowKind::kKeys ? items[i].kv_first : 0;
    }
};

// Rows that lie one after another in the caller's tensor and in the workspace.
struct Stretch {
    int64_t item;      // of the wave, where it begins
    int64_t item_row;  // row within that item
    int64_t row;       // row within the wave
    int64_t count;
};

// First row of a chunk; chunk == chunks gives the end. Borders grow with the chunk. Where items don't join, a
// border moves to that of an item when one is near, so that short items are not cut.
int64_t chunk_begin(const Rows& rows, int64_t chunk);

// The stretch that begins at `row` and ends before `end`.
Stretch stretch_at(const Rows& rows, int64_t row, int64_t end);

// Rows, in this order, that go to a kernel with steps of `tile` rows, to its tail kernel in steps of `tail`, and to that in its
// one step of ATTNC_FEW_ROWS; and how many are made with those that steps overhang.
struct RowSteps {
    int64_t whole, tails, few, made;
};
// With the fewest made. tail 0: all go to the first.
RowSteps row_steps(int64_t rows, int64_t tile, int64_t tail);

}  // namespace attnc
