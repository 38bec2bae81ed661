// Block masks as kernels take them: for a range of queries and a block of keys, which granules of 16 keys x 16 queries
// are dropped whole. They come from a block mask of the call, and from what its other masks happen to drop.
#pragma once

#include "runtime/attend.h"
#include "runtime/stage.h"

namespace attnc {

inline constexpr int64_t kGranule = 16;

struct KeyBlockMap {
    const uint8_t* data =
        nullptr;  // granule (jb, ib) at ib * columns + jb, 0: dropped; null: kernels are given none
    int64_t columns = 0;
    bool empty = false;  // every granule is dropped

    // The same from a later row of the range on, a multiple of kGranule.
    KeyBlockMap from(int64_t row) const {
        return {data != nullptr ? data + row / kGranule * columns : nullptr, columns, empty};
    }
};

// Of queries of a range and keys first .. first + count, in the worker's memory until the next call.
KeyBlockMap map_key_blocks(const Wave& wave, Worker& worker, const QueryRange& range, int64_t first,
                           int64_t count);

// Rows, at most `rows`, of which every range lies in granules of its own.
int64_t whole_granules(int64_t rows);

}  // namespace attnc
