// Builds whose schedule is a record's: they take it, say so, and are the same bytes as the same schedule given otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "compiler/files.h"
#include "compiler/tuning_sources.h"
#include "tests/command/run_attnc.h"
#include "tests/command/tuned_records.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Strings = std::vector<std::string>;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const Strings kNamed = {"build", "d32_h2_f32_nomask_noprobs", "--target", "x86-64-linux", "--name", "tuned"};

constexpr const char* kDescription =
    "d32_h2_f32_nomask_noprobs at b1_q40_kv40 on Test CPU, 1 thread, measure, 2026-03-01";

Json manifest_in(const std::string& folder) { return Json::parse(contents(fs::path(folder) / "tuned.json")); }

TEST(TunedBuild, TakesTheRecordAndSaysSo) {
    const TestFolder folder;
    write_file(folder / "my.jsonl", line_of(compiled_record(32)));
    const CommandResult result = run_attnc(kNamed + Strings{"--db", folder / "my.jsonl", "--tuned-for",
                                                            "b1_q40_kv40,b1_q3_kv9", "-o", folder / "out"});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const Json manifest = manifest_in(folder / "out");
    EXPECT_EQ(manifest.at("tuned_for"), (Json{"b1_q3_kv9", "b1_q40_kv40"}));
    const Json& target = manifest.at("targets").at(0);
    EXPECT_EQ(target.at("layout").at("tile_kv"), 32);
    EXPECT_EQ(target.at("schedule_origin"), std::string("record of my.jsonl: ") + kDescription);
    const Json expected = {{"origin", "--db"},
                           {"file", "my.jsonl"},
                           {"config", "d32_h2_f32_nomask_noprobs"},
                           {"tuned_for", {"b1_q40_kv40"}},
                           {"cpu", "Test CPU"},
                           {"threads", 1},
                           {"effort", "measure"},
                           {"date", "2026-03-01T12:00:00Z"},
                           {"attnc", "0.1.0"},
                           {"state", "ok"},
                           {"reason", ""}};
    EXPECT_EQ(target.at("record"), expected);
    EXPECT_EQ(target.at("forms").at("attention_at"),
              (Json{{"b1_q3_kv9", {"attend"}}, {"b1_q40_kv40", {"attend"}}}));
    EXPECT_THAT(run_attnc({"show", folder / "out/libtuned.a"}).output,
                HasSubstr("(record of my.jsonl: " + std::string(kDescription) + ")\n  record    ok\n"));
}

TEST(TunedBuild, HasTheCodeOfTheSameScheduleGivenByHand) {
    const TestFolder folder;
    write_file(folder / "my.jsonl", line_of(compiled_record(32)));
    run_attnc(kNamed + Strings{"--db", folder / "my.jsonl", "-o", folder / "a"});
    run_attnc(kNamed + Strings{"--schedule", "tile_kv:32", "-o", folder / "b"});
    EXPECT_EQ(contents(folder / "a/tuned.h"), contents(folder / "b/tuned.h"));  // the library's hash is in it
    EXPECT_NE(contents(folder / "a/tuned.json"), contents(folder / "b/tuned.json"));
    run_attnc(kNamed + Strings{"--no-records", "-o", folder / "c"});
    EXPECT_NE(contents(folder / "a/tuned.h"), contents(folder / "c/tuned.h"));
    EXPECT_EQ(manifest_in(folder / "c").at("targets").at(0).at("record"), Json());
}

TEST(TunedBuild, IsTheSameBytesWhereverTheDatabaseLies) {
    const TestFolder folder;
    fs::create_directories(folder / "deep/er");
    write_file(folder / "my.jsonl", line_of(compiled_record(32)));
    fs::copy(folder / "my.jsonl", folder / "deep/er/my.jsonl");
    run_attnc(kNamed + Strings{"--db", folder / "my.jsonl", "-o", folder / "a"});
    run_attnc(kNamed + Strings{"--db", folder / "deep/er/my.jsonl", "-o", folder / "b"});
    ASSERT_EQ(names_in(folder / "a"), names_in(folder / "b"));
    for (const std::string& name : names_in(folder / "a")) {
        EXPECT_TRUE(contents(folder / ("a/" + name)) == contents(folder / ("b/" + name))) << name;
    }
}

TEST(TunedBuild, MarksARecordOfOtherCodeAndUsesIt) {
    const TestFolder folder;
    TuningRecord record = compiled_record(32);
    record.kernels.at("attend").object_hash = std::string(32, '0');
    write_file(folder / "my.jsonl", line_of(record));
    run_attnc(kNamed + Strings{"--db", folder / "my.jsonl", "-o", folder / "a"});
    const Json target = manifest_in(folder / "a").at("targets").at(0);
    EXPECT_EQ(target.at("record").at("state"), "unverified");
    EXPECT_EQ(target.at("record").at("reason"), "measured with other code of attend");
    EXPECT_EQ(target.at("layout").at("tile_kv"), 32);
}

TEST(TunedBuild, RefusesADamagedDatabaseAndLeavesNothing) {
    const TestFolder folder;
    write_file(folder / "my.jsonl", "{\"format\":2}\n");
    const CommandResult result =
        run_attnc(kNamed + Strings{"--db", folder / "my.jsonl", "-o", folder / "out"});
    EXPECT_EQ(result.output,
              "attnc: " + (folder / "my.jsonl:1: it has format 2, this attnc reads format 1\n"));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(TunedBuild, PassesOverARecordThatTheRulesRefuse) {
    const TestFolder folder;
    write_file(folder / "my.jsonl", line_of(small_record(24)));
    run_attnc(kNamed + Strings{"--db", folder / "my.jsonl", "-o", folder / "a"});
    EXPECT_THAT(std::string(manifest_in(folder / "a").at("targets").at(0).at("schedule_origin")),
                Not(HasSubstr("my.jsonl")));
}

// Runs the command in a folder.
class InFolder {
public:
    explicit InFolder(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
    InFolder(const InFolder&) = delete;
    InFolder& operator=(const InFolder&) = delete;
    ~InFolder() { fs::current_path(before_); }

private:
    fs::path before_;
};

TEST(TunedBuild, FindsTheProjectsFile) {
    const TestFolder folder;
    fs::create_directories(folder / "project/.git");
    fs::create_directories(folder / "project/src/deep");
    write_file(folder / "project/attnc.tuning.jsonl", line_of(compiled_record(32)));
    const InFolder there(folder / "project/src/deep");
    run_attnc(kNamed + Strings{"-o", folder / "out"});
    EXPECT_EQ(manifest_in(folder / "out").at("targets").at(0).at("record").at("origin"), "project");
    EXPECT_THAT(run_attnc({"db", "check"}).output, HasSubstr("\n1 ok, 0 unverified, 0 invalid\n"));
}

TEST(Explain, PrintsEveryStepOfTheLookup) {
    const TestFolder folder;
    write_file(folder / "bad.jsonl", line_of(small_record(24)));
    write_file(folder / "good.jsonl", line_of(compiled_record(32)));
    const InFolder outside("/");  // no project
    const Strings explain = {"explain", "d32_h2_f32_nomask_noprobs:b1_q40_kv40", "--target", "x86-64-linux"};
    const std::string description = kDescription;
    EXPECT_THAT(
        run_attnc(explain + Strings{"--db", folder / "bad.jsonl", "--db", folder / "good.jsonl"}).output,
        StartsWith("d32_h2_f32_nomask_noprobs for b1_q40_kv40\n\n"
                   "x86-64-linux: record of good.jsonl: " +
                   description +
                   "\n"
                   "     --db bad.jsonl: refused: " +
                   description +
                   " (tile_kv 24 is not a multiple of 16, which is what keeps blocks on whole vectors)\n"
                   "  -> --db good.jsonl: " +
                   description +
                   "\n"
                   "  record ok\n"));
    EXPECT_THAT(
        run_attnc(explain + Strings{"--db", folder / "bad.jsonl"}).output,
        HasSubstr("\n     --db bad.jsonl: refused: " + description +
                  " (tile_kv 24 is not a multiple of 16, which is what keeps blocks on whole vectors)\n"
                  "     project: it has none\n"
                  "     shipped, this machine: no record of d32_h2_f32_nomask_noprobs\n"));
}

TEST(Explain, MarksARecordOfOtherCode) {
    const TestFolder folder;
    TuningRecord record = compiled_record(32);
    record.kernels.at("attend").object_hash = std::string(32, '0');
    write_file(folder / "my.jsonl", line_of(record));
    EXPECT_THAT(run_attnc({"explain", "d32_h2_f32_nomask_noprobs", "--target", "x86-64-linux", "--db",
                           folder / "my.jsonl"})
                    .output,
                HasSubstr("\n  record unverified: measured with other code of attend\n"));
}

}  // namespace
}  // namespace attnc::test
