// Instruction sets and schedules as parameters of tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tuple>

#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {

// A test for each instruction set and each schedule, "" or "tile_kv:N": one block of keys, or blocks of N. Skipped, with
// the reason, where this CPU lacks the instruction set.
class ScheduledTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
protected:
    void SetUp() override {
        if (!cpu_runs(target())) GTEST_SKIP() << "this CPU does not run " << target();
    }
    const std::string& target() const { return std::get<0>(GetParam()); }
    RunOptions options() const { return {.target = target(), .schedule = std::get<1>(GetParam())}; }
    RunResult run(const LayerCall& call) const {
        RunResult result = run_call(call, options());
        EXPECT_EQ(result.status, ATTNC_OK) << result.error;
        return result;
    }
};

// "avx512_skylake_one_block", "baseline_blocks_of_64".
inline std::string scheduled_test_name(
    const ::testing::TestParamInfo<std::tuple<std::string, std::string>>& info) {
    const auto& [target, schedule] = info.param;
    constexpr std::string_view kBlocks = "tile_kv:";
    return short_name(target) +
           (schedule.empty() ? "_one_block" : "_blocks_of_" + schedule.substr(kBlocks.size()));
}

}  // namespace attnc::test

#define ATTNC_FOR_EACH_SCHEDULE(suite, ...)                                                        \
    INSTANTIATE_TEST_SUITE_P(Cpu, suite,                                                           \
                             ::testing::Combine(::testing::ValuesIn(::attnc::test::all_targets()), \
                                                ::testing::Values(__VA_ARGS__)),                   \
                             ::attnc::test::scheduled_test_name)
