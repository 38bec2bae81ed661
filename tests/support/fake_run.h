// Runs a call through the runtime over a FakeLibrary, on guarded memory, and holds it against the reference.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/attnc.h"
#include "support/comparison.h"
#include "tests/harness/layer_call.h"
#include "tests/support/fake_library.h"

namespace attnc::test {

// Several threads that all take tasks, in an order of their own; without memory of earlier calls.
enum class FakeExecutor { kNone, kInOrder, kBackwards, kThreads };

struct FakeOptions {
    FakeLayout layout;
    FakeExecutor executor = FakeExecutor::kNone;
    int64_t concurrency = 1;
    // Elements that are put between rows, and between items, of every tensor that may have strides.
    int64_t row_gap = 0, item_gap = 0;
    bool rank4 = false;        // tokens, and out, split into heads; for libraries without projections
    bool wide_lengths = true;  // false: 32-bit lengths
    bool device = false;       // on the device of the library; a driver is there
    void* stream = nullptr;    // of the device
};

struct FakeResult {
    attnc_status status = ATTNC_OK;
    std::string error;
    std::vector<float> out, probs, probs_averaged, lse, scores;  // dense; out as [batch, seq_q, features]
    size_t workspace_bytes = 0;
};

FakeResult run_fake(const LayerCall& call, const FakeOptions& options = {});

// Success, no memory touched between rows, every output within its bound.
::testing::AssertionResult matches(const LayerCall& call, const FakeOptions& options = {});
::testing::AssertionResult matches(const LayerCall& call, const FakeResult& got, const KeyBlocks& blocks);

::testing::AssertionResult equal_bits(const FakeResult& a, const FakeResult& b);

struct LayerDelete {
    void operator()(attnc_layer* layer) const { attnc_layer_destroy(layer); }
};
using LayerPointer = std::unique_ptr<attnc_layer, LayerDelete>;
LayerPointer make_layer(const FakeLibrary& library, const LayerCall& call, attnc_error* error = nullptr,
                        const char* target = nullptr);

}  // namespace attnc::test
