// Every generator runs through Halide's own driver, with no warning, for every instruction set.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
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

class EveryGenerator : public ::testing::TestWithParam<std::tuple<std::string, const char*>> {};

TEST_P(EveryGenerator, RunsThroughHalidesDriver) {
    const auto& [generator, target] = GetParam();
    const TestFolder folder;
    const CommandResult result = run_attnc(
        {"generate", "-g", generator, "-f", generator, "-e", "stmt,assembly", "-o", folder.path().string(),
         std::string("target=") + target + "-no_runtime", "config=hd32_vhd48"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{generator + ".s", generator + ".stmt"}));
    EXPECT_NE(contents(folder / (generator + ".s")).find(generator + ":"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, EveryGenerator,
                         ::testing::Combine(::testing::ValuesIn(generators()),
                                            ::testing::ValuesIn(kCpuTargets)));

}  // namespace
}  // namespace attnc::test
