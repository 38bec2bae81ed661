// An item of the batch as the tasks see it: its lengths, its diagonal, and where its rows lie in the
// workspace, where only valid rows have a place.
#pragma once

#include <cstdint>

namespace attnc {

struct Item {
    int64_t q_row, kv_row;  // rows in the workspace, of query 0 and of key kv_first
    int32_t q_length;
    int32_t kv_length;
    int32_t kv_first, kv_end;  // blocks of keys that some query may see; the others are not even projected
    // Query i sees keys i + first_key <= j < i + last_key; kNoFirstKey and kNoLastKey: all on that side.
    int32_t first_key, last_key;
    int64_t number;  // in the batch
    // Where the item begins in the caller's tokens, in strides from item to item: its number, or in packed tokens its
    // first row.
    int64_t q_origin, kv_origin;

    int64_t kv_used() const { return int64_t{kv_end} - kv_first; }
};

inline constexpr int32_t kNoFirstKey = -(1 << 30);
inline constexpr int32_t kNoLastKey = 1 << 30;

}  // namespace attnc
