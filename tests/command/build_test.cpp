// What `attnc build` writes, and that it writes the same every time, whole or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;

void expect_same_files(const fs::path& a, const fs::path& b) {
    ASSERT_EQ(names_in(a), names_in(b));
    for (const std::string& name : names_in(a)) EXPECT_TRUE(contents(a / name) == contents(b / name)) << name;
}

TEST(Build, WritesLibraryHeaderManifestAndPackageFiles) {
    const TestFolder folder;
    const CommandResult result = run_attnc(kSmallBuild + Strings{"--name", "small", "-o", folder / "a/b"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, "");
    EXPECT_THAT(names_in(folder / "a/b"),
                ElementsAre("attnc.h", "attnc.hpp", "libattnc_runtime.a", "libsmall.a", "small.h",
                            "small.json", "small.pc", "smallConfig.cmake"));
}

TEST(Build, NamesALibraryByItsProblem) {
    const TestFolder folder;
    run_attnc(kSmallBuild + Strings{"-o", folder / "out"});
    EXPECT_TRUE(fs::exists(folder / "out/libattnc_d32_h2_f32_nomask_noprobs.a"));
    EXPECT_THAT(contents(folder / "out/attnc_d32_h2_f32_nomask_noprobs.h"),
                HasSubstr("#define ATTNC_D32_H2_F32_NOMASK_NOPROBS_HEAD_DIM 16\n"));
}

TEST(Build, NamesALibraryOfManyOptionsByTheFirstOnesAndAHash) {
    const TestFolder folder;
    const std::string problem = "d32_h2_f32_noout_causal_nomask_noprobs_biaskv_zeroattn_sink_softcap";
    const Strings options = {"--target", "x86-64-linux", "-o", folder / "out"};
    const CommandResult result = run_attnc(Strings{"build", problem} + options);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(names_in(folder / "out"),
                Contains(MatchesRegex("libattnc_d32_h2_f32_noout_causal_nomask_noprobs_[0-9a-f]{16}\\.a")));
    // Another layer that begins alike gets another name.
    EXPECT_EQ(run_attnc(Strings{"build", problem + "_alibi"} + options).exit_code, 0);
    EXPECT_THAT(names_in(folder / "out"), Contains(EndsWith(".a")).Times(3));  // and the runtime
}

// Options and problem string are two ways to say one thing.
TEST(Build, TakesOptionsAndProblemStringAlike) {
    const TestFolder folder;
    const Strings rest = {"--target", "x86-64-linux", "--name", "x"};
    run_attnc(Strings{"build",
                      "d64_h4_kv2_hd24_vhd8_kdim32_vdim48_f32_causal_nomask_noprobs_biaskv_zeroattn_sink",
                      "-o", folder / "a"} +
              rest);
    const CommandResult result = run_attnc(Strings{"build",
                                                   "--d-model",
                                                   "64",
                                                   "--num-heads",
                                                   "4",
                                                   "--num-kv-heads",
                                                   "2",
                                                   "--head-dim",
                                                   "24",
                                                   "--v-head-dim",
                                                   "8",
                                                   "--k-dim",
                                                   "32",
                                                   "--v-dim",
                                                   "48",
                                                   "--causal",
                                                   "--no-masks",
                                                   "--no-probs",
                                                   "--add-bias-kv",
                                                   "--add-zero-attn",
                                                   "--sink",
                                                   "-o",
                                                   folder / "b"} +
                                           rest);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    expect_same_files(folder / "a", folder / "b");
}

TEST(Build, GivesTheSameBytesInAnyFolderWithAnyJobsAndFromTheCache) {
    const TestFolder folder;
    const Strings build = {"build", "d32_h2_f32_nomask_noprobs", "--target",
                           "x86-64-linux,x86-64-linux-avx2-fma-f16c"};
    const std::string cache = folder / "cache";
    run_attnc(build + Strings{"-o", folder / "one", "-j", "1"}, {{"ATTNC_KERNEL_CACHE", ""}});
    run_attnc(build + Strings{"-o", folder / "two/deep", "-j", "4", "--kernel-cache", cache});
    run_attnc(build + Strings{"-o", folder / "three", "--kernel-cache", cache});
    expect_same_files(folder / "one", folder / "two/deep");
    expect_same_files(folder / "one", folder / "three");
    EXPECT_FALSE(names_in(cache).empty());
}

TEST(Build, CompilesADamagedCacheEntryAgain) {
    const TestFolder folder;
    const std::string cache = folder / "cache";
    run_attnc(kSmallBuild + Strings{"-o", folder / "one", "--kernel-cache", cache});
    for (const std::string& name : names_in(cache)) {
        const fs::path entry = fs::path(cache) / name;
        fs::resize_file(entry, fs::file_size(entry) / 2);
    }
    const CommandResult result =
        run_attnc(kSmallBuild + Strings{"-o", folder / "two", "--kernel-cache", cache});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    expect_same_files(folder / "one", folder / "two");
}

// What a schedule says must reach the kernels and the table.
TEST(Build, OverridesTheSchedule) {
    const TestFolder folder;
    run_attnc(kSmallBuild + Strings{"--name", "a", "-o", folder / "out"});
    run_attnc(kSmallBuild + Strings{"--name", "b", "--schedule", "tile_kv:64", "-o", folder / "out"});
    const auto manifest = nlohmann::json::parse(contents(folder / "out/b.json"));
    EXPECT_EQ(manifest.at("targets").at(0).at("layout").at("tile_kv"), 64);
    EXPECT_EQ(manifest.at("targets").at(0).at("schedule_origin"),
              "built-in default, then --schedule tile_kv:64");
    EXPECT_NE(contents(folder / "out/a.h"), contents(folder / "out/b.h"));
}

TEST(Build, EmitsAssemblyStatementsAndLlvm) {
    const TestFolder folder;
    const CommandResult result =
        run_attnc(kSmallBuild + Strings{"--name", "small", "--emit", "asm,stmt,llvm", "-o", folder / "out"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    for (const char* suffix : {".s", ".stmt", ".ll"}) {
        EXPECT_TRUE(fs::exists(folder / ("out/small.attend.x86-64-linux" + std::string(suffix)))) << suffix;
    }
}

TEST(Build, ReplacesItsOwnFilesAndLeavesOthers) {
    const TestFolder folder;
    run_attnc(kSmallBuild + Strings{"--name", "small", "-o", folder.path().string()});
    const std::string before = contents(folder / "libsmall.a");
    EXPECT_EQ(run_attnc(kSmallBuild + Strings{"--name", "other", "-o", folder.path().string()}).exit_code, 0);
    EXPECT_EQ(run_attnc(kSmallBuild + Strings{"--name", "small", "-o", folder.path().string()}).exit_code, 0);
    EXPECT_TRUE(contents(folder / "libsmall.a") == before);
    EXPECT_TRUE(fs::exists(folder / "libother.a"));
}

TEST(Build, RefusesAFolderItCannotWriteIn) {
    if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
    const TestFolder folder;
    ASSERT_EQ(::chmod(folder.path().c_str(), 0500), 0);
    const CommandResult result = run_attnc(kSmallBuild + Strings{"-o", folder.path().string()});
    ::chmod(folder.path().c_str(), 0700);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output,
                testing::StartsWith("attnc: cannot write in folder " + folder.path().string()));
    EXPECT_THAT(result.output, testing::EndsWith(": Permission denied\n"));
    EXPECT_TRUE(names_in(folder.path()).empty());
}

// /proc takes no files, from root either.
TEST(Build, RefusesAFolderThatTakesNoFiles) {
    const CommandResult result = run_attnc(kSmallBuild + Strings{"-o", "/proc"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.output, "attnc: cannot write in folder /proc: No such file or directory\n");
}

TEST(Build, RefusesAFolderInTheWayOfAFile) {
    const TestFolder folder;
    fs::create_directories(folder / "out/small.h");
    const CommandResult result = run_attnc(kSmallBuild + Strings{"--name", "small", "-o", folder / "out"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.output, "attnc: cannot write " + (folder / "out/small.h") + ": it is a folder\n");
    EXPECT_THAT(names_in(folder / "out"), ElementsAre("small.h"));
}

}  // namespace
}  // namespace attnc::test
