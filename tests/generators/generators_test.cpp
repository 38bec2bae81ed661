// Every generator runs through Halide's own driver, with no warning, for every instruction set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/kernel_abi.h"
#include "schedules/cpu_params.h"
#include "stages/config.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

std::vector<std::string> generators() {
    std::vector<std::string> names = {"projection", "attention", "scaled_tanh"};
    for (int kernel = 0; kernel < ATTNC_KERNEL_COUNT; ++kernel) names.emplace_back(kernel_name(kernel));
    return names;
}

// Whether the default schedule of the target has the kernel; generators of stages alone are always there.
bool is_there(const std::string& generator, const char* target) {
    const CpuSchedule schedule = default_schedule(parse_config("d64_h2_hd32_vhd48_f32"), target);
    for (int kernel = 0; kernel < ATTNC_KERNEL_COUNT; ++kernel) {
        if (generator == kernel_name(kernel)) return has_kernel(schedule, kernel);
    }
    return true;
}

class EveryGenerator : public ::testing::TestWithParam<std::tuple<std::string, const char*>> {};

TEST_P(EveryGenerator, RunsThroughHalidesDriver) {
    const auto& [generator, target] = GetParam();
    const TestFolder folder;
    const CommandResult result = run_attnc(
        {"generate", "-g", generator, "-f", generator, "-e", "stmt,assembly", "-o", folder.path().string(),
         std::string("target=") + target + "-no_runtime", "config=hd32_vhd48"});
    if (!is_there(generator, target)) {
        EXPECT_NE(result.exit_code, 0);
        EXPECT_THAT(result.output,
                    testing::HasSubstr("this target does without this kernel: its rows are 0"));
        return;
    }
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{generator + ".s", generator + ".stmt"}));
    EXPECT_NE(contents(folder / (generator + ".s")).find(generator + ":"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, EveryGenerator,
                         ::testing::Combine(::testing::ValuesIn(generators()),
                                            ::testing::ValuesIn(kCpuTargets)));

// Steps of scores that reach a third granule of a block mask, and tiles of queries that begin inside of one.
TEST(AttendMasked, TakesSchedulesThatGranulesDoNotDivide) {
    const std::string tile = "attend_masked.q_vectors:1,attend_masked.rows:12,attend_masked.context_rows:4,";
    for (const auto& [key_rows, tail_rows] : {std::pair(24, 3), std::pair(18, 18), std::pair(6, 2)}) {
        const std::string text = "schedule=" + tile + "attend_masked.key_rows:" + std::to_string(key_rows) +
                                 ",attend_masked.tail_rows:" + std::to_string(tail_rows);
        const TestFolder folder;
        const CommandResult result =
            run_attnc({"generate", "-g", "attend_masked", "-f", "attend_masked", "-e", "stmt", "-o",
                       folder.path().string(), "target=x86-64-linux-avx512_skylake-no_runtime",
                       "config=hd32_vhd48_softcap_alibi", text});
        EXPECT_EQ(result.exit_code, 0) << text;
        EXPECT_EQ(result.output, "");
    }
}

}  // namespace
}  // namespace attnc::test
