// Attention of items with few queries: one piece of work is a split of an item's keys, for all heads that share one head of
// K and V. What the splits give is joined afterwards, in their order, so that it doesn't matter who made which.
#pragma once

#include "runtime/attend.h"

namespace attnc {

// Splits of Layout::split_kv keys, at absolute multiples, that hold keys which some query of the item sees.
struct KeySplits {
    int64_t first, count;
};
KeySplits splits_of(const attnc_layer& layer, const Item& item);

// The splits' contexts and row statistics.
WorkList decode_work(const Wave& wave);

// What attend_work writes, from those.
WorkList join_splits_work(const Wave& wave);

}  // namespace attnc
