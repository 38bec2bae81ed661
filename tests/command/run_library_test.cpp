// Commands that run what they have built: verify and bench.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

using Strings = std::vector<std::string>;
using testing::EndsWith;
using testing::HasSubstr;

TEST(Verify, HoldsALibraryAgainstFloat64OnEveryInstructionSet) {
    const TestFolder folder;
    ASSERT_EQ(run_attnc({"build", "d32_h2_f32", "--name", "x", "-o", folder.path().string()}).exit_code, 0);
    const CommandResult result = run_attnc({"verify", folder / "libx.a", "--count", "4"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("x86-64-linux: 4 passed, 0 failed\n"));
    EXPECT_THAT(result.output, testing::AnyOf(EndsWith("12 passed, 0 failed, 0 skipped\n"),
                                              EndsWith("8 passed, 0 failed, 4 skipped\n"),
                                              EndsWith("4 passed, 0 failed, 8 skipped\n")));
}

TEST(Verify, RefusesATargetThatTheLibraryLacks) {
    const TestFolder folder;
    ASSERT_EQ(run_attnc(kSmallBuild + Strings{"--name", "x", "-o", folder.path().string()}).exit_code, 0);
    const CommandResult result = run_attnc({"verify", folder / "libx.a", "--target", "x86-64-linux-avx"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.output, "attnc: the library has no target x86-64-linux-avx\n");
}

TEST(Verify, NeedsACompilerToLink) {
    const TestFolder folder;
    ASSERT_EQ(run_attnc(kSmallBuild + Strings{"--name", "x", "-o", folder.path().string()}).exit_code, 0);
    const CommandResult result = run_attnc({"verify", folder / "libx.a"}, {{"PATH", "/nowhere"}});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.output,
              "attnc: cc not found on PATH: running a library needs a C compiler to link it\n");
}

TEST(Bench, ReportsSpeedAsAFractionOfTheProbe) {
    const TestFolder folder;
    const std::string json = folder / "bench.json";
    const CommandResult result = run_attnc({"bench", "d32_h2_f32_nomask_noprobs:b2_q8_kv8", "--target",
                                            "x86-64-linux", "--seconds", "0.01", "--json", json});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output,
                HasSubstr("d32_h2_f32_nomask_noprobs:b2_q8_kv8  x86-64-linux, 1 thread; probe ("));
    const auto report = nlohmann::json::parse(contents(json));
    ASSERT_EQ(report.at("results").size(), 2U);  // the layer, and its attention alone
    const auto& layer = report.at("results").at(0);
    EXPECT_EQ(layer.at("part"), "layer");
    EXPECT_EQ(layer.at("operations"), 2.0 * 2 * 8 * (4 * 32 * 32 + 2 * 8 * 32));
    EXPECT_GT(layer.at("ms_best"), 0.0);
    EXPECT_LE(layer.at("ms_best"), layer.at("ms_median"));
    EXPECT_GT(layer.at("peak_fraction_best"), 0.0);
    EXPECT_LT(layer.at("peak_fraction_best"), 1.0);
}

TEST(Bench, RefusesATargetThatTheMachineLacks) {
    if (__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "this machine runs every target";
    const CommandResult result =
        run_attnc({"bench", "d32_h2_f32:b1_q1_kv1", "--target", "x86-64-linux-avx512_skylake"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("this machine cannot run x86-64-linux-avx512_skylake: it lacks "));
}

}  // namespace
}  // namespace attnc::test
