// What a device computes: the stored calls with right answers, and random calls of layers of many options, through the
// command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler/device_there.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

std::string name_of(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

using Strings = std::vector<std::string>;

#define ATTNC_SKIP_WITHOUT_DEVICE()                                                                  \
    do {                                                                                             \
        if (!device_is_there()) GTEST_SKIP() << "this machine has no CUDA driver or no CUDA device"; \
    } while (false)

class StoredCalls : public testing::TestWithParam<const char*> {};

// Those that are skipped are so on a CPU too.
TEST_P(StoredCalls, AreAnswered) {
    ATTNC_SKIP_WITHOUT_DEVICE();
    const TestFolder folder;
    const CommandResult result =
        run_attnc({"verify", "--cases", ATTNC_TEST_DATA "/vectors/" + std::string(GetParam()), "--target",
                   "cuda", "--json", folder / "outcomes.json"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    const auto report = nlohmann::json::parse(contents(folder / "outcomes.json"));
    EXPECT_EQ(report.at("failed"), 0);
    EXPECT_GT(report.at("passed"), 0);
    for (const auto& outcome : report.at("outcomes"))
        EXPECT_EQ(outcome.value("reason", "").find("on a device"), std::string::npos) << outcome;
}

INSTANTIATE_TEST_SUITE_P(Folders, StoredCalls, testing::Values("torch", "minilm", "onnx"), name_of);

class Layers : public testing::TestWithParam<const char*> {};

TEST_P(Layers, AreWithinTheirBounds) {
    ATTNC_SKIP_WITHOUT_DEVICE();
    const TestFolder folder;
    const CommandResult built =
        run_attnc({"build", GetParam(), "--name", "layer", "--target", "cuda", "-o", folder / "out"});
    ASSERT_EQ(built.exit_code, 0) << built.output;
    const CommandResult result =
        run_attnc({"verify", folder / "out/liblayer.a", "--target", "cuda", "--count", "50"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
}

INSTANTIATE_TEST_SUITE_P(Grid, Layers,
                         testing::Values("d512_h8_f32", "d384_h12_f32_causal", "d1024_h16_kv4_f32_noprobs",
                                         "d512_h4_f32_nomask", "d256_h4_f32_qknorm_rope",
                                         "d128_h2_f32_alibi_softcap_sink_scores", "d512_h8_f32_noin_noout",
                                         "d512_h8_kv2_f32_causal_rope_cache_page16"),
                         name_of);

TEST(Bench, TimesALayer) {
    ATTNC_SKIP_WITHOUT_DEVICE();
    const CommandResult result =
        run_attnc({"bench", "d512_h8_f32:b32_q50_kv50", "--target", "cuda", "--seconds", "0.5"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, testing::HasSubstr("layer"));
}

// Where there is none, every command says so in a line and builds nothing.
TEST(WithoutADevice, CommandsSaySo) {
    if (device_is_there()) GTEST_SKIP() << "this machine has a CUDA device";
    const CommandResult bench = run_attnc({"bench", "d512_h8_f32:b1_q5", "--target", "cuda"});
    EXPECT_EQ(bench.exit_code, 1);
    EXPECT_EQ(bench.output, "attnc: this machine cannot run cuda: it has no driver or no device\n");
    const CommandResult verify =
        run_attnc({"verify", "--cases", ATTNC_TEST_DATA "/vectors/minilm", "--target", "cuda"});
    EXPECT_EQ(verify.exit_code, 1);
    EXPECT_EQ(verify.output,
              "layer0: skipped, this machine has no CUDA device\n"
              "layer5: skipped, this machine has no CUDA device\n"
              "0 passed, 0 failed, 2 skipped\n");
}

}  // namespace
}  // namespace attnc::test
