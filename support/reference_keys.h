// Parts of the float64 reference: which keys a query may attend, and what is added to their scores.
#pragma once

#include <cstdint>

#include "runtime/attnc.h"
#include "stages/config.h"
#include "support/reference.h"

namespace attnc {

// A query and a key of a call: rows of the call, keys counted with those of the past.
struct QueryKey {
    int64_t item = 0, head = 0, row = 0, key = 0;
    int64_t queries = 0, keys = 0;  // of the item
};

struct KeyPermission {
    bool allowed = false;  // by diagonal, window, masks and biases; false: nothing of the key counts
    double bias = 0;       // ALiBi, bias and key_bias
    double bias_size = 0;  // |ALiBi| + |bias| + |key_bias|
};

// By the call's diagonal, the layer's window and slopes, and the call's masks and biases.
KeyPermission key_permission(const Config& config, const attnc_weights& weights,
                             const ReferenceOptions& options, const attnc_inputs& inputs, const QueryKey& at);

}  // namespace attnc
