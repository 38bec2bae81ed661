// Help on every level, with an example; what there is to choose from; why a schedule is chosen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

using testing::HasSubstr;

class Help : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Help, HasAnExample) {
    const CommandResult result = run_attnc(GetParam() + std::vector<std::string>{"--help"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.output, HasSubstr("Usage: attnc"));
    EXPECT_THAT(result.output, HasSubstr("Example:\n  attnc "));
}

INSTANTIATE_TEST_SUITE_P(
    EveryLevel, Help,
    testing::Values(std::vector<std::string>{}, std::vector<std::string>{"build"},
                    std::vector<std::string>{"show"}, std::vector<std::string>{"verify"},
                    std::vector<std::string>{"bench"}, std::vector<std::string>{"weights"},
                    std::vector<std::string>{"explain"}, std::vector<std::string>{"list"},
                    std::vector<std::string>{"db"}, std::vector<std::string>{"db", "merge"},
                    std::vector<std::string>{"db", "list"}, std::vector<std::string>{"db", "prune"},
                    std::vector<std::string>{"db", "check"}, std::vector<std::string>{"generate"},
                    std::vector<std::string>{"compile-kernel"}));

TEST(List, NamesTheTargetsBestFirst) {
    const std::string output = run_attnc({"list", "--targets"}).output;
    const size_t best = output.find("x86-64-linux-avx512_skylake");
    const size_t middle = output.find("x86-64-linux-avx2-fma-f16c");
    EXPECT_LT(best, middle);
    EXPECT_LT(middle, output.find("any x86-64 CPU"));
}

TEST(List, NamesTheKernels) {
    EXPECT_THAT(run_attnc({"list", "--kernels"}).output, HasSubstr("attend_masked\n"));
}

TEST(List, ShowsTheSchedules) {
    EXPECT_THAT(run_attnc({"list", "--schedules"}).output, HasSubstr("tile_kv:"));
}

TEST(Explain, SaysWhyAndWithWhichParameters) {
    const CommandResult result = run_attnc(
        {"explain", "d512_h8_f32:b32_q50_kv50", "--target", "x86-64-linux-avx512_skylake", "--no-records"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.output,
                HasSubstr("d512_h8_f32 for b32_q50_kv50\n\nx86-64-linux-avx512_skylake: built-in default\n"));
    EXPECT_THAT(result.output, HasSubstr("  attend_single       1 to 16 queries of an item\n"
                                         "  attend_narrow       17 to 48 queries of an item\n"
                                         "  attend              49 and more queries of an item\n"));
    EXPECT_THAT(result.output, HasSubstr("  at b32_q50_kv50: attend\n  panel:64\n"));
}

TEST(Generate, RunsHalidesOwnDriver) {
    const TestFolder folder;
    const CommandResult result =
        run_attnc({"generate", "-g", "attend_merge", "-f", "attend_merge", "-e", "stmt,assembly", "-o",
                   folder.path().string(), "target=x86-64-linux-avx2-fma-no_runtime", "config=hd32_vhd32"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("attend_merge.s", "attend_merge.stmt"));
}

}  // namespace
}  // namespace attnc::test
