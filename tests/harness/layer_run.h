// Runs a call through a library and holds the result against the float64 reference.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/comparison.h"
#include "tests/harness/guarded_memory.h"
#include "tests/harness/layer_call.h"

namespace attnc::test {

enum class Executor {
    kNone,        // none given
    kSequential,  // one that runs its tasks one after another, the last one first
    kPool         // attnc_pool
};

struct RunOptions {
    std::string target;
    Executor executor = Executor::kNone;
    int64_t concurrency = 1;
    Placement placement = Placement::kAtEnd;  // of every buffer between its guard pages
    std::string schedule;                     // of the library, laid over the default
    bool only_target = false;                 // the library has no other one
};

// Which outputs a call asks for beside out.
struct Wanted {
    bool probs = false, probs_averaged = false, lse = false;
    attnc_scores_stage scores_stage = ATTNC_SCORES_NOT_GIVEN;
};

struct RunResult {
    attnc_status status = ATTNC_OK;
    std::string error;
    bool out_per_head = false;  // out is [batch, num_heads, seq_q, v_head_dim], as for tokens of rank 4
    std::vector<float> out, probs, probs_averaged, lse, scores;

    // Sizes and values as the reference has them (out of tokens of rank 4 is `context` there).
    Reference as_reference(const Reference& sizes) const;
};

// Keeps in `result` what a function of the API returned and wrote to `error`, and says whether it failed.
inline auto keeping_status(RunResult& result, const attnc_error& error) {
    return [&](attnc_status status) {
        result.status = status;
        result.error = error.text;
        return status != ATTNC_OK;
    };
}

// Every tensor is copied between guard pages of its own, weights too, as is the workspace of exactly the
// bytes that attnc_layer_workspace names. A failure of the API is in the result; a workspace bound that is
// smaller than the workspace is a test failure.
RunResult run_layer(const Config& config, const attnc_weights& weights, const attnc_inputs& inputs,
                    attnc_empty_rows empty_rows, float qk_scale, const Wanted& wanted,
                    const RunOptions& options);
// The same with all options of the layer; target and allocator are not looked at.
RunResult run_layer(const Config& config, const attnc_weights& weights, const attnc_inputs& inputs,
                    const attnc_layer_options& layer_options, const Wanted& wanted,
                    const RunOptions& options);
RunResult run_call(const LayerCall& call, const RunOptions& options);
RunResult run_call(const LayerCall& call, const std::string& target);

// Success, and every output within its bound. `want` is call.reference() where not given.
::testing::AssertionResult matches_reference(const LayerCall& call, const RunResult& got,
                                             const RunOptions& options, const Reference* want = nullptr);
// Runs and compares.
::testing::AssertionResult matches_reference(const LayerCall& call, const RunOptions& options);
::testing::AssertionResult matches_reference(const LayerCall& call, const std::string& target);

// Bit for bit; a failure names the first element that differs.
::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b);
::testing::AssertionResult same_bits(const RunResult& a, const RunResult& b);  // all outputs that both have

// What a failure needs to be repeated: problem, target, seed, and a command for the running test.
std::string repeat_line(const std::string& problem, const std::string& target, uint64_t seed);

}  // namespace attnc::test
