// Calls that must succeed, for each instruction set.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {

class CallTest : public TargetTest {
protected:
    RunResult run(const LayerCall& call) const {
        RunResult result = run_call(call, target());
        EXPECT_EQ(result.status, ATTNC_OK) << result.error;
        return result;
    }
    static std::vector<float> row(const RunResult& result, int64_t n, int64_t width) {
        return {result.out.begin() + n * width, result.out.begin() + (n + 1) * width};
    }
};

}  // namespace attnc::test
