#include "compiler/tuning_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/files.h"
#include "tests/command/run_attnc.h"
#include "tests/command/tuned_records.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

TEST(ProjectDatabase, LiesInTheFolderOrAboveItInTheRepository) {
    const TestFolder folder;  // which is in a repository itself, maybe
    const fs::path root = folder.path() / "root", deep = root / "a/b";
    fs::create_directories(deep);
    fs::create_directories(root / ".git");
    EXPECT_EQ(project_database(deep), std::nullopt);
    write_file(folder.path() / kProjectDatabase, "");  // above the repository's root
    EXPECT_EQ(project_database(deep), std::nullopt);
    write_file(root / kProjectDatabase, "");
    EXPECT_EQ(project_database(deep), root / kProjectDatabase);
    EXPECT_EQ(project_database(root), root / kProjectDatabase);
    write_file(root / "a" / kProjectDatabase, "");
    EXPECT_EQ(project_database(deep), root / "a" / kProjectDatabase);
    write_file(deep / kProjectDatabase, "");
    EXPECT_EQ(project_database(deep), deep / kProjectDatabase);
}

TEST(TuningSources, ComeInTheOrderInWhichTheyAreAsked) {
    const TestFolder folder;
    Installation installation;
    installation.records_folder = folder.path() / "db";
    fs::create_directories(folder.path() / "db");
    fs::create_directories(folder.path() / ".git");
    for (const char* name : {"named.jsonl", kProjectDatabase, "db/b.jsonl", "db/a.jsonl", "db/README.md"})
        write_file(folder / name, fs::path(name).extension() == ".md" ? "text" : line_of(small_record(32)));
    std::vector<std::string> names;
    for (const RecordSource& source : tuning_sources({folder / "named.jsonl"}, folder.path(), installation)) {
        names.push_back(std::to_string(static_cast<int>(source.origin)) + " " + source.file);
        EXPECT_EQ(source.records.size(), 1U);
    }
    EXPECT_THAT(names, ElementsAre("0 named.jsonl", "1 attnc.tuning.jsonl", "2 a.jsonl", "2 b.jsonl"));
}

TEST(TuningSources, DoWithoutShippedRecords) {
    const TestFolder folder;
    fs::create_directories(folder.path() / ".git");
    Installation installation;
    installation.records_folder = folder.path() / "nowhere";
    installation.shapes_folder = folder.path() / "nowhere";
    EXPECT_TRUE(tuning_sources({}, folder.path(), installation).empty());
    EXPECT_TRUE(grid_sizes(parse_config("d512_h8_f32"), installation).empty());
}

TEST(GridSizes, AreThoseOfTheConfigurationInTheBenchmarksShapes) {
    const Installation installation = installation_of(attnc_command());
    EXPECT_EQ(describe_sizes(grid_sizes(parse_config("d512_h8_f32"), installation)),
              "b1_q128_kv128 b1_q512_kv512 b1_q2048_kv2048 b32_q50_kv50");
    EXPECT_EQ(describe_sizes(grid_sizes(parse_config("d768_h12_f32_causal_cache"), installation)),
              "b1_q1_kv128 b1_q1_kv1024");
    EXPECT_EQ(describe_sizes(grid_sizes(parse_config("d512_h16_f32"), installation)), "");
}

TEST(GridSizes, NameTheFileOfALineThatIsNoProblem) {
    const TestFolder folder;
    Installation installation;
    installation.shapes_folder = folder.path();
    write_file(folder / "x.txt", "\n# a comment\nd512_h8_f32:b1_q1_kv1 decode  # a model\nd512\n");
    try {
        grid_sizes(parse_config("d512_h8_f32"), installation);
        FAIL();
    } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(),
                  (folder / "x.txt") +
                      ": problem 'd512' has no sizes after a colon, as in d512_h8_f32:b32_q50_kv50");
    }
}

}  // namespace
}  // namespace attnc::test
