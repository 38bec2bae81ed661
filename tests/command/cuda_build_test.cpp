// `attnc build` for a device: what --target takes, where its code lies, and cubins by an assembler that may not be there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler/subprocess.h"
#include "tests/command/run_attnc.h"
#include "tests/command/tool_folder.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Strings = std::vector<std::string>;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kProblem = "d32_h2_f32_nomask_noprobs";

Strings build_for(const std::string& targets) {
    return {"build", kProblem, "--name", "small", "--no-records", "--target", targets};
}

void expect_same_files(const fs::path& a, const fs::path& b) {
    ASSERT_EQ(names_in(a), names_in(b));
    for (const std::string& name : names_in(a)) EXPECT_TRUE(contents(a / name) == contents(b / name)) << name;
}

size_t count_of(const std::string& what, const std::string& text) {
    size_t count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
    return count;
}

Json manifest_in(const std::string& folder) { return Json::parse(contents(folder + "/small.json")); }

TEST(CudaBuild, PutsThePtxOfEveryKernelIntoTheTableOnce) {
    const TestFolder folder;
    const CommandResult result = run_attnc(build_for("x86-64-linux,cuda") + Strings{"-o", folder / "out"});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(result.output, "");
    const Json manifest = manifest_in(folder / "out");
    EXPECT_EQ(manifest.at("targets").size(), 1U);
    const Json& device = manifest.at("device");
    EXPECT_EQ(device.at("name"), "cuda");
    EXPECT_EQ(device.at("schedule_origin"), "built-in default");
    Strings names;
    for (const Json& kernel : device.at("kernels")) {
        names.push_back(kernel.at("name"));
        EXPECT_GT(kernel.at("ptx_bytes"), 0);
        EXPECT_TRUE(kernel.at("cubin_bytes").empty());
    }
    EXPECT_THAT(names, ElementsAre("fill_items", "project_heads", "project_out", "attend", "attend_suspects",
                                   "attend_guarded", "attend_decode", "attend_merge", "fill_empty",
                                   "attend_lse", "clear_rows"));
    EXPECT_EQ(count_of(".address_size 64", contents(folder / "out/libsmall.a")), names.size());
    EXPECT_THAT(contents(folder / "out/small.h"), HasSubstr(" *   x86-64-linux\n *   cuda\n"));
    EXPECT_THAT(contents(folder / "out/small.pc"), HasSubstr("-lattnc_runtime -pthread -ldl\n"));
    EXPECT_THAT(contents(folder / "out/smallConfig.cmake"), HasSubstr("Threads::Threads;${CMAKE_DL_LIBS}"));
}

// Nothing of a device is in a library without one.
TEST(CudaBuild, LeavesOtherLibrariesAlone) {
    const TestFolder folder;
    ASSERT_EQ(run_attnc(build_for("x86-64-linux") + Strings{"-o", folder / "out"}).exit_code, 0);
    EXPECT_THAT(contents(folder / "out/libsmall.a"), Not(HasSubstr("cuda")));
    EXPECT_FALSE(manifest_in(folder / "out").contains("device"));
    EXPECT_THAT(contents(folder / "out/small.pc"), HasSubstr("-lattnc_runtime -pthread\n"));
}

TEST(CudaBuild, MakesLibrariesForADeviceAlone) {
    const TestFolder folder;
    const CommandResult result = run_attnc(build_for("cuda") + Strings{"-o", folder / "out"});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_TRUE(manifest_in(folder / "out").at("targets").empty());
    const CommandResult shown = run_attnc({"show", folder / "out/libsmall.a"});
    EXPECT_EQ(shown.exit_code, 0);
    EXPECT_THAT(shown.output, AllOf(HasSubstr("\ncuda\n  schedule  panel:128,"),
                                    HasSubstr("  code      PTX\n"), HasSubstr("\n  attend_decode ")));
}

TEST(CudaBuild, CpuIsTheUsualSet) {
    const TestFolder folder;
    const CommandResult result = run_attnc(build_for("cpu") + Strings{"-o", folder / "out"});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(manifest_in(folder / "out").at("targets").size(), 3U);
}

TEST(CudaBuild, GivesTheSameBytesInAnyFolderWithAnyJobsAndFromTheCache) {
    const TestFolder folder;
    const Strings build = build_for("cuda");
    const std::string cache = folder / "cache";
    run_attnc(build + Strings{"-o", folder / "one", "-j", "1"}, {{"ATTNC_KERNEL_CACHE", ""}});
    run_attnc(build + Strings{"-o", folder / "two/deep", "-j", "4", "--kernel-cache", cache});
    run_attnc(build + Strings{"-o", folder / "three", "--kernel-cache", cache});
    expect_same_files(folder / "one", folder / "two/deep");
    expect_same_files(folder / "one", folder / "three");
}

TEST(CudaBuild, OverridesTheSchedule) {
    const TestFolder folder;
    const CommandResult result =
        run_attnc(build_for("cuda") +
                  Strings{"--cuda-schedule", "split_kv:1024,project_heads.unroll:16", "-o", folder / "out"});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const Json device = manifest_in(folder / "out").at("device");
    EXPECT_EQ(device.at("layout").at("split_kv"), 1024);
    EXPECT_EQ(device.at("schedule_origin"),
              "built-in default, then --cuda-schedule split_kv:1024,project_heads.unroll:16");
}

TEST(CudaBuild, EmitsPtx) {
    const TestFolder folder;
    const CommandResult result =
        run_attnc(build_for("cuda") + Strings{"--emit", "asm,stmt", "-o", folder / "out"});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    for (const char* suffix : {".s", ".stmt", ".ptx"})
        EXPECT_TRUE(fs::exists(folder / ("out/small.attend.cuda" + std::string(suffix)))) << suffix;
    // Registers are limited in the text, so that whoever assembles it keeps to what a block may take.
    EXPECT_THAT(contents(folder / "out/small.attend.cuda.ptx"), HasSubstr("\n.maxnreg "));
}

// ---- Cubins

TEST(CudaBuild, ExplainsTheScheduleByEachArchitecture) {
    const CommandResult by_default = run_attnc({"explain", "d512_h8_f32", "--target", "cuda"});
    ASSERT_EQ(by_default.exit_code, 0) << by_default.output;
    EXPECT_THAT(by_default.output,
                ::testing::ContainsRegex("kernel .*shared +peak of sm_80 +peak of sm_90\n"));
    const CommandResult asked_for = run_attnc({"explain", "d512_h8_f32", "--target", "cuda-sm_75"});
    ASSERT_EQ(asked_for.exit_code, 0) << asked_for.output;
    EXPECT_THAT(asked_for.output, ::testing::ContainsRegex("kernel .*shared +peak of sm_75\n"));
    EXPECT_THAT(asked_for.output, ::testing::ContainsRegex("  attend +64 +192 +25600 +[0-9]+%\n"));
}

TEST(CudaBuild, ExplainsWhatLaunchesAreExpectedOfASize) {
    const CommandResult result =
        run_attnc({"explain", "d512_h8_f32:b1_q128_kv128", "--target", "cuda-sm_90", "--no-records"});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output,
                ::testing::ContainsRegex("\n  at b1_q128_kv128 on sm_90 \\(NVIDIA H100\\), by the model:\n"
                                         "    launch +blocks +waves +cycles +peak  limited by\n"
                                         "    project_heads +24 +1 +[0-9]+ +[0-9.]+%  idle multiprocessors\n"
                                         "    attend +32 +1 +[0-9]+ +[0-9.]+%  idle multiprocessors\n"
                                         "    project_out +8 +1 +[0-9]+ +[0-9.]+%  idle multiprocessors\n"));
}

TEST(CudaBuild, SaysWhatCubinsAreMissing) {
    const TestFolder folder;
    const ToolFolder tools;
    const CommandResult result =
        run_attnc(build_for("cuda-sm_80") + Strings{"-o", folder / "out"}, tools.environment());
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(
        result.output,
        "attnc: ptxas not found on PATH: cubins are assembled by it (CUDA toolkit); target cuda without an "
        "architecture does without\n");
    EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(CudaBuild, HasACubinForEachArchitectureBesideThePtx) {
    const TestFolder folder;
    const ToolFolder tools;
    tools.add_ptxas("echo \"cubin $1 of $(/usr/bin/basename $2)\" > $4");
    const CommandResult result = run_attnc(
        build_for("cuda-sm_90,cuda-sm_80,cuda") + Strings{"-o", folder / "out"}, tools.environment());
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const Json device = manifest_in(folder / "out").at("device");
    EXPECT_EQ(device.at("cubins"), (Json{"sm_80", "sm_90"}));
    EXPECT_EQ(device.at("ptxas"), "1.2.3");
    const std::string archive = contents(folder / "out/libsmall.a");
    for (const Json& kernel : device.at("kernels")) {
        for (const std::string architecture : {"sm_80", "sm_90"}) {
            const std::string cubin = "cubin -arch=" + architecture + " of attnc_device_" +
                                      kernel.at("name").get<std::string>() + ".ptx\n";
            EXPECT_EQ(count_of(cubin, archive), 1U) << cubin;
            EXPECT_EQ(kernel.at("cubin_bytes").at(architecture), cubin.size());
        }
    }
    EXPECT_EQ(count_of(".address_size 64", archive), device.at("kernels").size());
    EXPECT_THAT(run_attnc({"show", folder / "out/libsmall.a"}).output,
                HasSubstr("  code      PTX; cubins for sm_80 sm_90\n"));
}

TEST(CudaBuild, SaysWhatTheAssemblerSaid) {
    const TestFolder folder;
    const ToolFolder tools;
    tools.add_ptxas("echo 'ptxas fatal   : Value sm_70 is not defined for option gpu-name'; exit 255");
    const CommandResult result =
        run_attnc(build_for("cuda-sm_70") + Strings{"-o", folder / "out", "-j", "1"}, tools.environment());
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output,
                testing::MatchesRegex(
                    "attnc: ptxas makes no cubin for sm_70 of attnc_device_[a-z_]+: ptxas fatal   : "
                    "Value sm_70 is not defined for option gpu-name\n"));
    EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(CudaBuild, AssemblesTheSameCubinsEveryTime) {
    if (find_program("ptxas").empty()) GTEST_SKIP() << "ptxas is not on PATH";
    const TestFolder folder;
    for (const char* out : {"one", "two"}) {
        const CommandResult result =
            run_attnc(build_for("cuda-sm_90") + Strings{"-o", folder / out}, {{"ATTNC_KERNEL_CACHE", ""}});
        ASSERT_EQ(result.exit_code, 0) << result.output;
    }
    expect_same_files(folder / "one", folder / "two");
    const Json device = manifest_in(folder / "one").at("device");
    for (const Json& kernel : device.at("kernels")) EXPECT_GT(kernel.at("cubin_bytes").at("sm_90"), 0);
}

}  // namespace
}  // namespace attnc::test
