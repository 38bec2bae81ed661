// The manifest: in the archive as beside it, for people and for programs; files of any other kind are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler/files.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

using Strings = std::vector<std::string>;
using testing::HasSubstr;

class Show : public testing::Test {
protected:
    void SetUp() override {
        run_attnc(kSmallBuild + Strings{"--name", "small", "-o", folder_.path().string()});
    }

    TestFolder folder_;
};

TEST_F(Show, FindsTheSameManifestInTheArchiveAndBesideIt) {
    const CommandResult inside = run_attnc({"show", "--json", folder_ / "libsmall.a"});
    EXPECT_EQ(inside.exit_code, 0);
    EXPECT_EQ(inside.output, contents(folder_ / "small.json"));
    EXPECT_EQ(run_attnc({"show", "--json", folder_ / "small.json"}).output, inside.output);
}

TEST_F(Show, TellsConfigurationVersionsTargetsAndKernels) {
    const auto manifest = nlohmann::json::parse(contents(folder_ / "small.json"));
    EXPECT_EQ(manifest.at("problem"), "d32_h2_f32_nomask_noprobs");
    EXPECT_EQ(manifest.at("config").at("head_dim"), 16);
    EXPECT_EQ(manifest.at("halide"), "21.0.0");
    const auto& target = manifest.at("targets").at(0);
    EXPECT_EQ(target.at("name"), "x86-64-linux");
    EXPECT_EQ(target.at("schedule_origin"), "built-in default");
    for (const auto& kernel : target.at("kernels")) {
        EXPECT_GT(kernel.at("code_bytes"), 100) << kernel;
        EXPECT_LE(kernel.at("stack_bytes"), 64 * 1024) << kernel;
        EXPECT_EQ(kernel.at("arguments").at(0), "__user_context") << kernel;
    }
}

TEST_F(Show, IsReadable) {
    const std::string output = run_attnc({"show", folder_ / "libsmall.a"}).output;
    EXPECT_THAT(output, HasSubstr("small: d32_h2_f32_nomask_noprobs\n"));
    EXPECT_THAT(output, HasSubstr("  attend  "));
    EXPECT_THAT(output, HasSubstr("(built-in default)"));
}

TEST_F(Show, RefusesOtherLibraries) {
    const std::string runtime = folder_ / "libattnc_runtime.a";
    EXPECT_EQ(run_attnc({"show", runtime}).output,
              "attnc: " + runtime + " is neither a library nor a manifest of attnc\n");
}

// Cut anywhere, or with bytes changed: an answer or a refusal in one line, never a crash.
TEST_F(Show, SurvivesDamagedLibraries) {
    const std::string whole = contents(folder_ / "libsmall.a");
    const std::string damaged = folder_ / "damaged.a";
    for (size_t step = 1; step < 24; ++step) {
        std::string bytes = whole.substr(0, whole.size() * step / 24);
        write_file(damaged, bytes);
        EXPECT_EQ(run_attnc({"show", damaged}).exit_code, 1) << step;
    }
    for (size_t step = 0; step < 48; ++step) {
        std::string bytes = whole;
        for (size_t at = step; at < bytes.size(); at += 97 + step)
            bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
        write_file(damaged, bytes);
        const CommandResult result = run_attnc({"show", damaged});
        EXPECT_EQ(result.signal, 0) << step;
        EXPECT_EQ(result.exit_code, 1) << step;
    }
}

}  // namespace
}  // namespace attnc::test
