// Which form of attend takes which queries of a range.
#pragma once

#include "runtime/attend.h"

namespace attnc {

// A call of a kernel: how many queries it takes, from the first of those that are left.
struct QueryTiles {
    int kernel;  // ATTNC_KERNEL_ATTEND, _NARROW or _SINGLE
    int64_t rows;
};

// The first call for the queries of `range`, for its keys `first` to `end`. Bits are the same whatever is chosen.
QueryTiles next_query_tiles(const attnc_layer& layer, const QueryRange& range, int64_t first, int64_t end);

}  // namespace attnc
