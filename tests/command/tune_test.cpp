// attnc tune on the smallest layer, for seconds: what it keeps, how it goes on, what it refuses. How well it searches is for
// the tests of kind unit, on machines that are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <set>
#include <sstream>
#include <thread>

#include "compiler/database_file.h"
#include "compiler/files.h"
#include "compiler/tree.h"
#include "support/random.h"
#include "tests/command/attnc_process.h"
#include "tests/command/run_attnc.h"
#include "tests/command/tuned_records.h"
#include "tuner/journal.h"

namespace attnc::test {
namespace {

using Strings = std::vector<std::string>;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kConfig = "d32_h2_f32_nomask_noprobs";
const std::string kProblem = kConfig + ":b1_q20_kv20";

Strings tune_in(const TestFolder& folder, const Strings& more, const std::string& problem = kProblem) {
    return Strings{"tune", problem, "--target", "x86-64-linux", "--db", folder / "db"} + more;
}

Strings lines_of(const std::string& text) {
    std::istringstream stream(text);
    Strings lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

std::string trial_of(const std::string& line) {
    const size_t begin = line.find("\"trial\":\"");
    return line.substr(begin, line.find('"', begin + 9) - begin);
}

TEST(Tune, KeepsARecordThatABuildTakes) {
    const TestFolder folder;
    const CommandResult result =
        run_attnc(tune_in(folder, {"--effort", "quick", "--kernel", "project_out", "--no-records", "--report",
                                   folder / "report.html"}));
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output,
                StartsWith(kConfig + " at b1_q20_kv20 on x86-64-linux, 1 thread, quick\n"
                                     "  start: built-in default\n  project_out from out_panel:16,"));
    EXPECT_THAT(result.output, ContainsRegex("\n  whole calls take [0-9.]+ of the start's time"));
    const std::vector<TuningRecord> records = load_database(folder / "db").records();
    ASSERT_EQ(records.size(), 1U);
    const TuningRecord& record = records.front();
    EXPECT_EQ(to_string(record.config), kConfig);
    EXPECT_EQ(record.effort, "quick");
    EXPECT_EQ(record.attnc, kVersion);
    EXPECT_GT(record.calls.at("b1_q20_kv20").ms, 0);
    EXPECT_GT(record.calls.at("b1_q20_kv20").probe_gflops, 0.1);
    EXPECT_GT(record.kernels.at("project_out").samples, 0);
    EXPECT_EQ(record.kernels.at("attend").object_hash.size(), 32U);
    EXPECT_NO_THROW(check_schedule(record.schedule, record.config, record.target));
    EXPECT_THAT(contents(folder / "report.html"), HasSubstr("<svg id=\"part0-0-trials\""));
    // What a build makes of it are the objects that were measured.
    EXPECT_THAT(run_attnc({"db", "check", folder / "db"}).output, HasSubstr("ok"));
    const CommandResult explained =
        run_attnc({"explain", kConfig, "--target", "x86-64-linux", "--db", folder / "db"});
    EXPECT_THAT(explained.output, HasSubstr("-> --db db: "));
}

TEST(Tune, MeasuresNothingAgain) {
    const TestFolder folder;
    const Strings command = tune_in(folder, {"--effort", "quick", "--kernel", "project_out", "--schedule",
                                             "project_out.rows:1,project_out_tail.rows:0"});
    ASSERT_EQ(run_attnc(command).exit_code, 0);
    const std::string before = contents(folder / "db.journal");
    const Strings lines = lines_of(before);
    EXPECT_FALSE(lines.empty());
    const CommandResult again = run_attnc(command);
    ASSERT_EQ(again.exit_code, 0) << again.output;
    EXPECT_THAT(again.output, HasSubstr(std::to_string(lines.size()) + " of them measured before"));
    EXPECT_EQ(contents(folder / "db.journal"), before);
    std::set<std::string> trials;
    for (const std::string& line : lines) {
        EXPECT_TRUE(trials.insert(trial_of(line)).second) << line;
    }
    // More effort goes on from there.
    Strings more = command;
    *std::find(more.begin(), more.end(), "quick") = "measure";
    EXPECT_THAT(run_attnc(more).output, HasSubstr(" of them measured before"));
}

TEST(Tune, GetsAwayFromABadStart) {
    const TestFolder folder;
    const CommandResult result =
        run_attnc(tune_in(folder,
                          {"--effort", "quick", "--kernel", "project_heads", "--schedule",
                           "project_heads.rows:1,project_heads_tail.rows:0"},
                          "d64_h2_f32_nomask_noprobs:b1_q64_kv64"));
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, ContainsRegex("of the time, [0-9.]+ of peak: panel:"));
    const TuningRecord record = load_database(folder / "db").records().front();
    EXPECT_GT(record.schedule.params.project_heads.rows, 1);
}

TEST(Tune, ByEstimateRunsNothing) {
    const TestFolder folder;
    const CommandResult result = run_attnc(tune_in(
        folder, {"--effort", "estimate", "--schedule", "project_heads.rows:1,project_heads_tail.rows:0"}));
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("  estimated, nothing timed; kept in "));
    const TuningRecord record = load_database(folder / "db").records().front();
    EXPECT_EQ(record.effort, "estimate");
    EXPECT_TRUE(record.calls.empty());
    EXPECT_GT(record.schedule.params.project_heads.rows, 1);
    for (const std::string& line : lines_of(contents(folder / "db.journal")))
        EXPECT_THAT(line, StartsWith("{\"loops\":"));
}

TEST(Tune, LookupOnlySearchesNothing) {
    const TestFolder folder;
    // Heads of a width that no layer of the grid has, so that no record is near.
    const std::string odd = "d96_h2_f32_nomask_noprobs";
    const CommandResult none = run_attnc(tune_in(folder, {"--lookup-only"}, odd + ":b1_q20_kv20"));
    EXPECT_EQ(none.exit_code, 1);
    EXPECT_THAT(none.output, HasSubstr("\nattnc: no record of " + odd +
                                       " for x86-64-linux, and --lookup-only searches none\n"));
    EXPECT_THAT(names_in(folder.path()), testing::IsEmpty());
    write_file(folder / "db", line_of(small_record(64)));
    const CommandResult found = run_attnc(tune_in(folder, {"--lookup-only"}));
    EXPECT_EQ(found.exit_code, 0) << found.output;
    EXPECT_THAT(found.output, HasSubstr("tile_kv:64"));
    EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("db"));
}

TEST(Tune, ShardsAreThePartsOfTheList) {
    const TestFolder folder;
    const Strings problems = {"d16_h1_f32:b1_q8_kv8", "d32_h1_f32:b1_q8_kv8", "d48_h1_f32:b1_q8_kv8",
                              "d32_h1_f32:b2_q9_kv9", "d64_h1_f32:b1_q8_kv8", "d80_h1_f32:b1_q8_kv8"};
    const auto layers = [&](const std::string& shard) {
        std::set<std::string> names;
        Strings shuffled = problems;
        if (shard == "2/3") std::reverse(shuffled.begin(), shuffled.end());
        const CommandResult result =
            run_attnc(Strings{"tune", "--effort", "estimate", "--kernel", "project_out", "--target",
                              "x86-64-linux", "--db", folder / "db", "--shard", shard} +
                      shuffled);
        EXPECT_EQ(result.exit_code, 0) << result.output;
        for (const std::string& line : lines_of(result.output)) {
            if (!line.starts_with(" ")) names.insert(line.substr(0, line.find(" on ")));
        }
        return names;
    };
    EXPECT_EQ(layers("1/3"), (std::set<std::string>{"d16_h1_f32 at b1_q8_kv8", "d64_h1_f32 at b1_q8_kv8"}));
    EXPECT_EQ(layers("2/3"),
              (std::set<std::string>{"d32_h1_f32 at b1_q8_kv8 b2_q9_kv9", "d80_h1_f32 at b1_q8_kv8"}));
    EXPECT_EQ(layers("3/3"), (std::set<std::string>{"d48_h1_f32 at b1_q8_kv8"}));
    EXPECT_EQ(load_database(folder / "db").size(), 5U);
}

TEST(Tune, DamagedFilesEndItAtOnceAndStayAsTheyAre) {
    const TestFolder folder;
    write_file(folder / "db", "{\"format\":1,");
    const CommandResult damaged = run_attnc(tune_in(folder, {"--time-limit", "1s"}));
    EXPECT_EQ(damaged.output, "attnc: " + (folder / "db:1: it ends early\n"));
    EXPECT_EQ(damaged.exit_code, 1);
    EXPECT_EQ(contents(folder / "db"), "{\"format\":1,");
    write_file(folder / "db", "");
    write_file(folder / "db.journal", "no journal\n");
    const CommandResult journal = run_attnc(tune_in(folder, {"--time-limit", "1s"}));
    EXPECT_THAT(journal.output, StartsWith("attnc: " + (folder / "db.journal:1: not a line of a journal (")));
    EXPECT_EQ(contents(folder / "db.journal"), "no journal\n");
}

// ---- Controls

TEST(Tune, HoldsTheRecordAgainstRandomPointsAndKeepsNothing) {
    const TestFolder folder;
    write_file(folder / "db", line_of(small_record(64)));
    const std::string before = contents(folder / "db");
    const Strings command =
        tune_in(folder, {"--random", "6", "--kernel", "attend", "--json", folder / "random.json"});
    const CommandResult result = run_attnc(command);
    EXPECT_THAT(result.output,
                StartsWith(kConfig +
                           " at b1_q20_kv20 on x86-64-linux, 1 thread, beside 6 random points\n"
                           "  incumbent: record of db: " +
                           kConfig));
    EXPECT_THAT(result.output, ContainsRegex("\n  attend: 6 points in [0-9:]+; the best takes [0-9.]+ of the "
                                             "incumbent's time \\([0-9.]+ to [0-9.]+\\): tile_kv:"));
    EXPECT_THAT(result.output, HasSubstr("\nlayer  "));
    const std::string json = contents(folder / "random.json");
    EXPECT_THAT(json, HasSubstr("\"tried\": 6,"));
    // Which is the faster is the machine's affair; whether the exit code says so is not.
    const bool other = json.find("\"faster\": \"other\"") != std::string::npos;
    EXPECT_EQ(result.exit_code, other ? 1 : 0) << result.output;
    EXPECT_EQ(result.output.ends_with("attnc: of 1 kernel a point drawn at random is faster than what builds "
                                      "take\n"),
              other);
    EXPECT_EQ(contents(folder / "db"), before);
    EXPECT_FALSE(std::filesystem::exists(folder / "db.journal"));
    // The same again measures nothing.
    const std::string journal = contents(folder / "db.random.journal");
    const std::string trials = std::to_string(lines_of(journal).size());
    EXPECT_THAT(run_attnc(command).output, ContainsRegex("attend: 6 points in 0:0[0-9], " + trials + " of " +
                                                         trials + " measurements made before"));
    EXPECT_EQ(contents(folder / "db.random.journal"), journal);
}

TEST(Tune, HoldsTheDefaultAgainstASearchFromADetunedStart) {
    const TestFolder folder;
    const CommandResult result =
        run_attnc(tune_in(folder, {"--detuned", "--effort", "quick", "--no-records", "--kernel",
                                   "project_out", "--json", folder / "json"}));
    EXPECT_THAT(result.output, StartsWith(kConfig + " at b1_q20_kv20 on x86-64-linux, 1 thread, quick from a "
                                                    "detuned start\n  incumbent: built-in default\n"));
    EXPECT_THAT(contents(folder / "json"), HasSubstr("\"allowed\": 1.05,"));
    EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("json"));
}

TEST(Tune, ControlsAreOneOfTwoAndHaveNoRecord) {
    const TestFolder folder;
    const auto error = [&](const Strings& more) {
        const CommandResult result = run_attnc(tune_in(folder, more));
        EXPECT_NE(result.exit_code, 0);
        return lines_of(result.output).front();
    };
    EXPECT_EQ(error({"--json", "x"}), "attnc: --json needs --random or --detuned, of which it tells");
    EXPECT_EQ(error({"--detuned", "--effort", "estimate"}),
              "attnc: effort estimate measures nothing that --detuned could be for");
    EXPECT_EQ(error({"--random", "5", "--detuned"}), "attnc: --random excludes --detuned");
    EXPECT_EQ(error({"--random", "0"}), "attnc: --random: value 0 not in range 1 to 1000000");
    EXPECT_EQ(error({"--random", "5", "--effort", "quick"}), "attnc: --effort excludes --random");
    EXPECT_EQ(error({"--no-records", "--schedule", "panel:16"}), "attnc: --schedule excludes --no-records");
}

TEST(Tune, WithoutRecordsStartsFromTheDefault) {
    const TestFolder folder;
    write_file(folder / "db", line_of(small_record(64)));
    const CommandResult result =
        run_attnc(tune_in(folder, {"--effort", "estimate", "--no-records", "--kernel", "project_out"}));
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.output, HasSubstr("\n  start: built-in default\n"));
}

// ---- Ends that nobody announced

pid_t start_tuning(const TestFolder& folder, const std::string& log) {
    const Strings tuning = tune_in(
        folder,
        {"--effort", "quick", "--kernel", "project_heads,project_out", "--schedule",
         "project_heads.rows:1,project_heads_tail.rows:0,project_out.rows:1,project_out_tail.rows:0"});
    return start_attnc(tuning, log, [] { ::setenv("ATTNC_KERNEL_CACHE", test_kernel_cache().c_str(), 1); });
}

size_t journal_bytes(const TestFolder& folder) {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(folder / "db.journal", none);
    return none ? 0 : static_cast<size_t>(bytes);
}

// By default few times, as this takes seconds each; ATTNC_TEST_KILLS says how many. Some of them before anything is
// measured, the others a while after the next trial came to an end.
TEST(Tune, KilledAtAnyMomentLeavesWhatItHad) {
    const TestFolder folder;
    const char* kills = std::getenv("ATTNC_TEST_KILLS");
    const int count = kills != nullptr ? std::atoi(kills) : 3;
    Random random(static_cast<uint64_t>(::getpid()));
    size_t trials = 0;
    for (int i = 0; i < count; ++i) {
        const size_t before = journal_bytes(folder);
        const pid_t pid = start_tuning(folder, folder / "log");
        bool ended = false;  // by itself: there is nothing left to measure
        for (int wait = 0; i % 4 != 3 && wait < 6000 && journal_bytes(folder) == before && !ended; ++wait) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            ended = ::waitpid(pid, nullptr, WNOHANG) == pid;
        }
        if (ended) break;
        const int64_t moment = random.between(0, 1500);
        std::this_thread::sleep_for(std::chrono::milliseconds(moment));
        ::kill(pid, SIGKILL);
        wait_for(pid);
        SCOPED_TRACE("killed after " + std::to_string(moment) + " ms");
        if (std::filesystem::exists(folder / "db")) {
            EXPECT_NO_THROW(load_database(folder / "db"));
        }
        if (!std::filesystem::exists(folder / "db.journal")) continue;
        const Journal journal(folder / "db.journal");
        EXPECT_GE(journal.size(), trials);
        trials = journal.size();
    }
    const Strings lines = lines_of(contents(folder / "db.journal"));
    std::set<std::string> keys;
    for (const std::string& line : lines)
        EXPECT_TRUE(keys.insert(trial_of(line)).second) << "measured twice: " << line;
    EXPECT_GT(trials, 0U);
}

TEST(Tune, InterruptedItEndsWithoutARemainder) {
    const TestFolder folder;
    const pid_t pid = start_tuning(folder, folder / "log");
    for (int i = 0; i < 1000 && !(std::filesystem::exists(folder / "db.journal") &&
                                  std::filesystem::file_size(folder / "db.journal") > 0);
         ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ::kill(pid, SIGINT);
    const int status = wait_for(pid);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
    EXPECT_THAT(contents(folder / "log"), testing::EndsWith("attnc: interrupted\n"));
    EXPECT_GT(Journal(folder / "db.journal").size(), 0U);
    EXPECT_THAT(names_in(folder.path()), Not(testing::Contains(StartsWith(".attnc-tmp"))));
}

}  // namespace
}  // namespace attnc::test
