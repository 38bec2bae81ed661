// Runs a call as a packed batch: the valid rows of its items one after another.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/attnc.h"
#include "tests/harness/layer_run.h"

namespace attnc::test {

struct Packing {
    int64_t gap = 0;  // rows of NaN at the end of each item, which then comes with lengths
    bool split =
        false;  // tokens [heads, rows, features] instead of [rows, features]; for libraries without projections
    const char* target = nullptr;              // null: the library's choice
    const attnc_executor* executor = nullptr;  // null: the calling thread
};

// `call` is padded, with tokens of rank 3; key and value given or not. The result is that of the padded call: out is
// [batch, seq_q, features], 0 past the query lengths. All tokens lie between guard pages, the workspace has exactly the
// bytes that attnc_layer_workspace names, and rows of out that belong to no item must be left as they are.
RunResult run_packed(const attnc_library* library, const LayerCall& call, const Packing& packing = {});

// The same of a layer, which may be on a device; place(inputs) puts the call's cache there, whose items then attend up to
// sizes.seq_kv keys. Of a device rows that belong to no item may be anything.
RunResult run_packed(const attnc_layer* layer, const LayerCall& call, const Packing& packing,
                     const std::function<void(attnc_inputs&)>& place);

}  // namespace attnc::test
