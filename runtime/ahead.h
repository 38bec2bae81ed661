// Memory that a kernel is told of before its turn, so that it comes into the cache meanwhile.
#pragma once

#include "runtime/attend.h"

namespace attnc {

// Addresses of rows; 0: nothing is known of them.
struct Ahead {
    uint64_t q = 0, k = 0, k_bytes = 0, v = 0, v_bytes = 0, context = 0;  // bytes: from a row to the next
};

// Rows of Q, and of K and V from the first block on, that attention of `next` will read; not `context`. Nothing of keys that
// would not stay in L2 beside those of the range before, or whose rows don't follow one another.
Ahead rows_ahead(const Wave& wave, const QueryRange& next);

// Whether keys and values of a call, with the weights that it reads besides, are more than L2 keeps from call to call.
bool keys_come_from_afar(const Wave& wave);

}  // namespace attnc
