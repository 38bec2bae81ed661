// An item of the batch as the tasks see it: its lengths, its diagonal, and where its rows lie in the
// workspace, where only valid rows have a place.
#pragma once

#include <cstdint>

namespace attnc {

struct Item {
    int64_t q_row, kv_row;  // first rows in the workspace
    int32_t q_length;
    int32_t kv_length;
    int32_t kv_used;   // keys that some query may see; those after it are not even projected
    int32_t last_key;  // query i sees keys j < i + last_key; kNoLastKey: all
    int64_t number;    // in the batch
};

inline constexpr int32_t kNoFirstKey = -(1 << 30);
inline constexpr int32_t kNoLastKey = 1 << 30;

}  // namespace attnc
