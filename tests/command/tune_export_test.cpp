// attnc tune --export and --import: the runner is run here, and what comes back is what a build makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "compiler/database_file.h"
#include "compiler/files.h"
#include "compiler/installation.h"
#include "compiler/machine.h"
#include "compiler/subprocess.h"
#include "compiler/targets.h"
#include "compiler/tree.h"
#include "compiler/tune_results.h"
#include "runtime/cpu.h"
#include "tests/command/run_attnc.h"
#include "tests/command/tuned_records.h"

namespace attnc::test {
namespace {

using Strings = std::vector<std::string>;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kConfig = "d32_h2_f32_nomask_noprobs";

Strings export_to(const TestFolder& folder, const Strings& more, const std::string& target = "x86-64-linux") {
    return Strings{"tune",
                   kConfig + ":b1_q20_kv20",
                   "--target",
                   target,
                   "--export",
                   folder / "runner",
                   "--export-candidates",
                   "3",
                   "--effort",
                   "quick",
                   "--db",
                   folder / "db"} +
           more;
}

ProcessResult run_runner(const TestFolder& folder, const Strings& arguments) {
    return run_process(Strings{folder / "runner/attnc-runner"} + arguments, std::chrono::seconds(300));
}

#define SKIP_WITHOUT_RUNNER()                                              \
    if (!std::filesystem::exists(installation_of(attnc_command()).runner)) \
    GTEST_SKIP() << "a build with a sanitizer has no runner"

TEST(TuneExport, WhatTheRunnerFindsIsWhatABuildMakes) {
    SKIP_WITHOUT_RUNNER();
    const TestFolder folder;
    // From a bad start, so that there is something to find.
    const CommandResult exported =
        run_attnc(export_to(folder, {"--schedule", "project_out.rows:1,project_out_tail.rows:0"}));
    ASSERT_EQ(exported.exit_code, 0) << exported.output;
    EXPECT_THAT(exported.output, HasSubstr("  project_out: 3 candidates\n"));
    EXPECT_THAT(names_in(folder.path() / "runner"), testing::ElementsAre("attnc-runner"));
    EXPECT_FALSE(std::filesystem::exists(folder / "db")) << "nothing was found yet";

    const ProcessResult tuned = run_runner(folder, {folder / "results"});
    ASSERT_TRUE(tuned.succeeded()) << tuned.output;
    EXPECT_THAT(tuned.output, HasSubstr("whole calls take "));
    EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("results", "runner"));
    const CommandResult imported = run_attnc({"tune", "--import", folder / "results", "--db", folder / "db"});
    ASSERT_EQ(imported.exit_code, 0) << imported.output;
    EXPECT_THAT(imported.output, HasSubstr("1 new, 0 better than what was there, 0 not; kept in "));

    const std::vector<TuningRecord> records = load_database(folder / "db").records();
    ASSERT_EQ(records.size(), 1U);
    const TuningRecord& record = records.front();
    EXPECT_EQ(to_string(record.config), kConfig);
    EXPECT_EQ(record.machine, this_machine());
    EXPECT_EQ(record.effort, "quick");
    EXPECT_EQ(record.attnc, kVersion);
    EXPECT_GT(record.calls.at("b1_q20_kv20").ms, 0);
    EXPECT_GT(record.kernels.at("project_out").samples, 0);
    // The objects that were measured are those that this attnc compiles from the record, and a build takes it.
    EXPECT_THAT(run_attnc({"db", "check", folder / "db"}).output, HasSubstr("ok"));
    const CommandResult explained =
        run_attnc({"explain", kConfig, "--target", "x86-64-linux", "--db", folder / "db"});
    EXPECT_THAT(explained.output, HasSubstr("-> --db db: "));
    EXPECT_THAT(explained.output, testing::Not(HasSubstr("unverified")));
    // Again it is no news.
    const CommandResult again = run_attnc({"tune", "--import", folder / "results", "--db", folder / "db"});
    EXPECT_THAT(again.output, HasSubstr("0 new, 0 better than what was there, 1 not; kept in "));
}

TEST(TuneExport, TheRunnerNeedsNoOtherFile) {
    SKIP_WITHOUT_RUNNER();
    const TestFolder folder;
    const CommandResult exported = run_attnc(export_to(folder, {"--kernel", "project_out"}));
    ASSERT_EQ(exported.exit_code, 0) << exported.output;
    const ProcessResult needed = run_process(
        {"/usr/bin/env", "readelf", "-d", folder / "runner/attnc-runner"}, std::chrono::seconds(60));
    EXPECT_THAT(needed.output, testing::Not(HasSubstr("libstdc++"))) << "at most the C library";
    const ProcessResult help = run_runner(folder, {"--help"});
    EXPECT_THAT(help.output, StartsWith("usage: attnc-runner [RESULTS]\n"));
    const ProcessResult wrong = run_runner(folder, {"--frob"});
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_EQ(wrong.output, "attnc-runner: wrong use; attnc-runner --help says more\n");
    const ProcessResult nowhere = run_runner(folder, {"/nowhere/results"});
    EXPECT_EQ(nowhere.exit_code, 1);
    EXPECT_EQ(nowhere.output, "attnc-runner: cannot write /nowhere/results: No such file or directory\n");
}

// A CPU without the instruction set says so before it runs a single instruction of it. Every CPU here may have all of them:
// then the runner is asked on one that is made up.
TEST(TuneExport, ACpuWithoutTheInstructionSetSaysSo) {
    SKIP_WITHOUT_RUNNER();
    const TestFolder folder;
    std::string target;
    for (const char* name : kCpuTargets) {
        if ((cpu_features(name) & ~detect_cpu_features()) != 0) target = name;
    }
    Strings emulator;
    if (target.empty()) {
        target = kCpuTargets[0];
        const std::string valgrind = find_program("valgrind");
        if (valgrind.empty())
            GTEST_SKIP() << "this CPU runs every target, and there is no valgrind to play a lesser one";
        emulator = {valgrind, "-q", "--tool=none"};  // a CPU without AVX-512
    }
    const CommandResult exported = run_attnc(export_to(folder, {"--kernel", "project_out"}, target));
    ASSERT_EQ(exported.exit_code, 0) << exported.output;
    const ProcessResult ran = run_process(
        emulator + Strings{folder / "runner/attnc-runner", folder / "results"}, std::chrono::seconds(300));
    EXPECT_EQ(ran.exit_code, 1) << ran.output;
    EXPECT_THAT(ran.output, testing::MatchesRegex("attnc-runner: this machine cannot run " + target +
                                                  ": it lacks [a-z0-9_]+\n"));
    EXPECT_FALSE(std::filesystem::exists(folder / "results"));
}

// ---- Files that come back

std::string good_results() { return results_text({compiled_record(64), compiled_record(128)}); }

std::string refusal(const std::string& text) {
    try {
        parse_results(text, "r");
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

TEST(TuneResults, OfACutFileNothingIsTaken) {
    const std::string good = good_results();
    ASSERT_EQ(refusal(good), "");
    for (size_t length = 0; length < good.size(); ++length) {
        const std::string reason = refusal(good.substr(0, length));
        ASSERT_THAT(reason, StartsWith("r:")) << length;
        ASSERT_EQ(reason.find('\n'), std::string::npos) << length;
    }
}

TEST(TuneResults, AChangedByteIsSeen) {
    const std::string good = good_results();
    for (size_t at = 0; at < good.size(); at += 7) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 1);
        ASSERT_THAT(refusal(bad), StartsWith("r:")) << at;
    }
}

TEST(TuneResults, WhatNoRunnerWritesIsRefusedByName) {
    EXPECT_EQ(refusal(""), "r:1: not what a runner of attnc writes");
    EXPECT_EQ(refusal(std::string(1000, '\0')), "r:1: not what a runner of attnc writes");
    EXPECT_EQ(refusal("attnc tuning results 1\n"), "r:2: it ends early");
    EXPECT_EQ(refusal("attnc tuning results 1\n\n"), "r:2: it was changed after the runner wrote it");
    EXPECT_EQ(refusal("attnc tuning results 1\n{\"format\":1}\n"), "r:2: config is missing");
    EXPECT_EQ(refusal("attnc tuning results 1\n" + std::string(100, '[') + "\n"),
              "r:2: it was changed after the runner wrote it");
    EXPECT_EQ(refusal(good_results() + "x"), "r:5: there is more behind the last line");
    EXPECT_EQ(refusal(results_text({small_record(64)})), "r:2: kernels.project_heads is missing");
    TuningRecord untimed = compiled_record(64);
    untimed.calls.clear();
    EXPECT_EQ(refusal(results_text({untimed})), "r:2: not all of its sizes were timed");
    TuningRecord refused = compiled_record(64);
    refused.schedule.layout.panel = 17;
    EXPECT_THAT(refusal(results_text({refused})), StartsWith("r:2: "));
    TuningRecord more = compiled_record(64);
    more.kernels["attend_masked"] = more.kernels["attend"];
    EXPECT_EQ(refusal(results_text({more})), "r:2: it has kernels that its schedule does without");
}

TEST(TuneResults, AWrongFileLeavesTheDatabaseAsItIs) {
    const TestFolder folder;
    TuningRecord slow = small_record(64);
    slow.calls.begin()->second.ms *= 10;
    write_file(folder / "db", line_of(slow));
    const std::string before = contents(folder / "db");
    const std::string good = good_results();
    write_file(folder / "cut", good.substr(0, good.size() / 2));
    const CommandResult cut = run_attnc({"tune", "--import", folder / "cut", "--db", folder / "db"});
    EXPECT_EQ(cut.exit_code, 1);
    EXPECT_THAT(cut.output, testing::MatchesRegex("attnc: [^\n]*cut:[0-9]: it ends early\n"));
    const CommandResult none = run_attnc({"tune", "--import", folder / "none", "--db", folder / "db"});
    EXPECT_EQ(none.output, "attnc: cannot read " + (folder / "none") + ": No such file or directory\n");
    const CommandResult place =
        run_attnc({"tune", "--import", folder.path().string(), "--db", folder / "db"});
    EXPECT_EQ(place.output, "attnc: cannot read " + folder.path().string() + ": it is not a plain file\n");
    EXPECT_EQ(contents(folder / "db"), before);
    write_file(folder / "good", good);
    EXPECT_EQ(run_attnc({"tune", "--import", folder / "good", "--db", folder / "db"}).exit_code, 0);
    EXPECT_NE(contents(folder / "db"), before);
}

}  // namespace
}  // namespace attnc::test
