// attnc verify --cases: what it does with cases that pass, fail, can't run, can't be read, or crash.
#include "compiler/verify_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "support/safetensors.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kTarget = "x86-64-linux";

// A case file of one query and two keys of weight 1/2 each; `out` is right with 2.
void write_case(const std::string& path, double out, const std::map<std::string, std::string>& more = {}) {
    std::map<std::string, std::string> attributes = {
        {"op", "attention"}, {"heads", "1"},  {"head_dim", "1"}, {"batch", "1"},
        {"q_len", "1"},      {"kv_len", "2"}, {"scale", "1"},    {"atol.out", "1e-6"}};
    attributes.insert(more.begin(), more.end());
    const std::vector<float> q = {1}, k = {0, 0}, v = {1, 3};
    const std::vector<TensorToStore> tensors = {{"q", StoredType::kF32, {1, 1, 1, 1}, q.data()},
                                                {"k", StoredType::kF32, {1, 1, 2, 1}, k.data()},
                                                {"v", StoredType::kF32, {1, 1, 2, 1}, v.data()},
                                                {"out", StoredType::kF64, {1, 1, 1, 1}, &out}};
    write_safetensors(path, attributes, tensors);
}

CommandResult verify(const Strings& more) { return run_attnc(Strings{"verify", "--target", kTarget} + more); }

TEST(VerifyCases, PassesWhatIsRight) {
    const TestFolder folder;
    write_case(folder / "a.safetensors", 2);
    write_case(folder / "b.safetensors", 2);
    const CommandResult result = verify({"--cases", folder.path().string()});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, "2 passed, 0 failed, 0 skipped\n");
}

TEST(VerifyCases, TellsWhatIsWrongAndHowToRepeatIt) {
    const TestFolder folder;
    write_case(folder / "right.safetensors", 2);
    write_case(folder / "wrong.safetensors", 2.5);
    const std::string command =
        "attnc verify --cases " + folder.path().string() + " --case wrong --target x86-64-linux";
    const CommandResult result = verify({"--cases", folder.path().string()});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.output,
              "wrong on x86-64-linux: out: 1 of 1 outside; worst at 0: got 2, want 2.5, allowed 1e-06\n"
              "  to repeat: " +
                  command + "\n1 passed, 1 failed, 0 skipped\n");
    const CommandResult again = verify({"--cases", folder.path().string(), "--case", "wrong"});
    EXPECT_THAT(again.output, EndsWith("0 passed, 1 failed, 0 skipped\n"));
}

TEST(VerifyCases, GoOnAfterAFileThatIsNotUnderstood) {
    const TestFolder folder;
    write_case(folder / "a.safetensors", 2, {{"dropout", "0.1"}});
    write_case(folder / "b.safetensors", 2);
    const CommandResult result = verify({"--cases", folder.path().string()});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output,
                HasSubstr("a: " + folder / "a.safetensors" + ": unknown attribute 'dropout'\n"));
    EXPECT_THAT(result.output, EndsWith("1 passed, 1 failed, 0 skipped\n"));
}

TEST(VerifyCases, NameWhatIsSkippedWithItsReason) {
    const TestFolder folder;
    write_case(folder / "half.safetensors", 2, {{"dtype", "float16"}});
    const CommandResult result = verify({"--cases", folder.path().string()});
    EXPECT_EQ(result.exit_code, 1) << "nothing was compared";
    EXPECT_EQ(result.output,
              "half: skipped, dtype float16 is not supported\n0 passed, 0 failed, 1 skipped\n");
}

TEST(VerifyCases, WriteAllOutcomesAsJson) {
    const TestFolder folder;
    write_case(folder / "a.safetensors", 2);
    write_case(folder / "b.safetensors", 3);
    write_case(folder / "c.safetensors", 2, {{"dtype", "float16"}});
    const std::string json = folder / "outcomes.json";
    verify({"--cases", folder.path().string(), "--json", json});
    const auto report = nlohmann::json::parse(contents(json));
    EXPECT_EQ(report.at("passed"), 1);
    EXPECT_EQ(report.at("failed"), 1);
    EXPECT_EQ(report.at("skipped"), 1);
    const auto& outcomes = report.at("outcomes");
    ASSERT_EQ(outcomes.size(), 3U);
    EXPECT_EQ(outcomes[0], (nlohmann::json{{"case", "a"}, {"target", kTarget}, {"outcome", "passed"}}));
    EXPECT_EQ(outcomes[1].at("outcome"), "failed");
    EXPECT_THAT(outcomes[1].at("repeat"), EndsWith("--case b --target x86-64-linux"));
    EXPECT_EQ(outcomes[2].at("reason"), "dtype float16 is not supported");
}

TEST(VerifyCases, NeedCasesOfTheGivenNames) {
    const TestFolder folder;
    write_case(folder / "a.safetensors", 2);
    CommandResult result = verify({"--cases", folder.path().string(), "--case", "b"});
    EXPECT_EQ(result.output, "attnc: there is no case b\n");
    result = verify({"--cases", folder / "a.safetensors"});  // a file instead of a folder
    EXPECT_EQ(result.output, "1 passed, 0 failed, 0 skipped\n");
}

TEST(VerifyCases, OutliveACrash) {
    const TestFolder folder, scratch;
    for (const char* name : {"a", "b", "c"}) write_case(folder / (std::string(name) + ".safetensors"), 2);
    CaseRequest request;
    request.folders = {folder.path().string()};
    request.targets = {kTarget};
    request.kernel_cache = test_kernel_cache();
    request.installation = installation_of(attnc_command());
    int checked = 0;
    request.check = [&](const CaseFile& file, const attnc_library* library, const std::string& target) {
        if (++checked == 2) std::raise(SIGKILL);
        return check_case(file, library, target);
    };
    testing::internal::CaptureStdout();
    const std::vector<Outcome> outcomes = verify_cases(request, scratch.path());
    EXPECT_THAT(testing::internal::GetCapturedStdout(),
                HasSubstr("b on x86-64-linux: running it crashed: signal 9 (Killed)\n"));
    ASSERT_EQ(outcomes.size(), 3U);
    EXPECT_EQ(outcomes[0].kind, Outcome::Kind::kPassed);
    EXPECT_EQ(outcomes[1].kind, Outcome::Kind::kFailed);
    EXPECT_EQ(outcomes[1].name, "b");
    EXPECT_EQ(outcomes[2].kind, Outcome::Kind::kPassed);
}

TEST(ShellQuoted, IsOneWord) {
    EXPECT_EQ(shell_quoted("cases/a-b_c.d"), "cases/a-b_c.d");
    EXPECT_EQ(shell_quoted("my cases"), "'my cases'");
    EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
    EXPECT_EQ(shell_quoted(""), "''");
}

}  // namespace
}  // namespace attnc::test
