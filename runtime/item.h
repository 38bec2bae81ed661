// An item of the batch as the tasks see it: its lengths, its diagonal, and where its rows lie in the
// workspace, where only valid rows have a place.
#pragma once

#include <cstdint>

#include "runtime/layer.h"
#include "runtime/request.h"

namespace attnc {

struct Item {
    int64_t q_row, kv_row;  // rows in the workspace, of query 0 and of key kv_first
    int64_t new_row;        // of the first projected key: kv_row, with a cache that of the first appended key
    int64_t split_row;      // of the results of its first split of keys, where it has few queries
    int64_t run_row;        // of the run of keys that begins with kv_first, in tables of runs
    int32_t new_keys;       // keys kv_length - new_keys .. are appended to a cache
    int32_t q_length;
    int32_t kv_length;
    int32_t kv_first, kv_end;  // blocks of keys that some query may see; the others are not even projected
    // Query i sees keys i + first_key <= j < i + last_key; kNoFirstKey and kNoLastKey: all on that side.
    int32_t first_key, last_key;
    int32_t own_key;  // query i's own key is i + own_key, on the diagonal
    int64_t number;   // in the batch
    // Where the item begins in the caller's tokens, in strides from item to item: its number, or in packed tokens its
    // first row.
    int64_t q_origin, kv_origin;

    int64_t kv_used() const { return int64_t{kv_end} - kv_first; }
    int64_t held() const { return int64_t{kv_length} - new_keys; }
};

// Whether attend_decode makes its attention. By the number of its queries alone, so that bits don't depend on the batch.
inline bool has_few_queries(const attnc_layer& layer, const Item& item) {
    return layer.has(ATTNC_CONFIG_CACHE) && item.q_length > 0 && item.q_length <= ATTNC_DECODE_QUERIES;
}

// Everything but its rows in the workspace.
Item make_item(const attnc_layer& layer, const Request& request, int64_t number);

// The keys that some of queries row .. last see, but for those that masks drop; 0 to 0: none.
struct KeyInterval {
    int64_t first, end;
};
KeyInterval visible_keys(const Item& item, int64_t row, int64_t last);

inline constexpr int32_t kNoFirstKey = -(1 << 30);
inline constexpr int32_t kNoLastKey = 1 << 30;

}  // namespace attnc
