// attnc db: files of records joined, listed, thinned out, checked; each answer by its text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/files.h"
#include "tests/command/run_attnc.h"
#include "tests/command/tuned_records.h"

namespace attnc::test {
namespace {

using Strings = std::vector<std::string>;
using testing::ElementsAre;

TuningRecord of_target(TuningRecord record, const std::string& target) {
    record.target = target;
    record.schedule = default_schedule(record.config, target);
    return record;
}

TEST(DbMerge, JoinsFilesWhateverTheirOrder) {
    const TestFolder folder;
    TuningRecord faster = small_record(64);
    faster.calls["b1_q40_kv40"].ms = 0.2;
    const TuningRecord other = of_target(small_record(32), "x86-64-linux-avx2-fma-f16c");
    write_file(folder / "a", line_of(small_record(32)) + line_of(other));
    write_file(folder / "b", line_of(faster));
    EXPECT_EQ(run_attnc({"db", "merge", folder / "a", folder / "b", "-o", folder / "ab"}).output,
              folder / "ab: 2 records added, 1 replaced by better ones, 0 left as they were\n");
    EXPECT_EQ(run_attnc({"db", "merge", folder / "b", folder / "a", "-o", folder / "ba"}).output,
              folder / "ba: 2 records added, 0 replaced by better ones, 1 left as they were\n");
    EXPECT_EQ(contents(folder / "ab"), line_of(faster) + line_of(other));
    EXPECT_EQ(contents(folder / "ab"), contents(folder / "ba"));
    // And into what is there.
    EXPECT_EQ(run_attnc({"db", "merge", folder / "b", "-o", folder / "a"}).output,
              folder / "a: 0 records added, 1 replaced by better ones, 0 left as they were\n");
    EXPECT_EQ(contents(folder / "a"), contents(folder / "ab"));
    EXPECT_THAT(names_in(folder.path()), ElementsAre("a", "ab", "b", "ba"));
}

TEST(DbMerge, WritesNothingWhereAFileIsDamaged) {
    const TestFolder folder;
    const std::string line = line_of(small_record(32));
    write_file(folder / "good", line);
    write_file(folder / "bad", line + line.substr(0, 100));
    const CommandResult result =
        run_attnc({"db", "merge", folder / "good", folder / "bad", "-o", folder / "x"});
    EXPECT_EQ(result.output, "attnc: " + (folder / "bad:2: it ends early\n"));
    EXPECT_EQ(result.exit_code, 1);
    // Nor to a damaged one.
    const std::string before = contents(folder / "bad");
    EXPECT_EQ(run_attnc({"db", "merge", folder / "good", "-o", folder / "bad"}).output,
              "attnc: " + (folder / "bad:2: it ends early\n"));
    EXPECT_EQ(contents(folder / "bad"), before);
    EXPECT_THAT(names_in(folder.path()), ElementsAre("bad", "good"));
}

// Runs the command with at most so many bytes in a file, which is how a full disk looks.
int run_with_file_limit(const Strings& arguments, rlim_t bytes, const std::string& log) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        Strings command = Strings{attnc_command().string()} + arguments;
        std::vector<char*> words;
        for (std::string& word : command) words.push_back(word.data());
        words.push_back(nullptr);
        if (std::freopen(log.c_str(), "w", stderr) == nullptr) ::_exit(126);
        const rlimit limit = {bytes, bytes};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        ::execv(words[0], words.data());
        ::_exit(127);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(DbMerge, LeavesEverythingAsItWasOnAFullDisk) {
    const TestFolder folder;
    const std::string before = line_of(small_record(32));
    write_file(folder / "db", before);
    write_file(folder / "more", line_of(of_target(small_record(32), "x86-64-linux-avx2-fma-f16c")));
    for (const std::string to : {"db", "new"}) {
        const Strings merge = {"db", "merge", folder / "db", folder / "more", "-o", folder / to};
        EXPECT_EQ(run_with_file_limit(merge, 2000, folder / "log"), 1);
        EXPECT_EQ(contents(folder / "log"), "attnc: cannot write " + (folder / to) + ": File too large\n");
        EXPECT_EQ(contents(folder / "db"), before);
        EXPECT_THAT(names_in(folder.path()), ElementsAre("db", "log", "more"));
    }
}

TEST(DbList, ShowsWhatWasMeasured) {
    const TestFolder folder;
    TuningRecord untimed = small_record(32);
    untimed.sizes.push_back(parse_sizes("b2_q40_kv40"));
    write_file(folder / "db", line_of(untimed));
    const std::string text =
        folder /
        "db: 1 record\n"
        "d32_h2_f32_nomask_noprobs  x86-64-linux  1 thread  measure  2026-03-01  attnc 0.1.0  Test CPU\n"
        "  b1_q40_kv40         0.25 ms +-1.0 % (probe 20 GFLOP/s)\n"
        "  b2_q40_kv40         not timed\n";
    EXPECT_EQ(run_attnc({"db", "list", folder / "db"}).output, text);
    EXPECT_EQ(run_attnc({"db", "list", folder / "db", "--config", "d32_h2_f32_nomask_noprobs", "--target",
                         "x86-64-linux"})
                  .output,
              text);
    EXPECT_EQ(run_attnc({"db", "list", folder / "db", "--config", "d512_h8_f32"}).output,
              folder / "db: 1 record\n");
}

TEST(DbCheck, ComparesKernelsWithWhatWasMeasured) {
    const TestFolder folder;
    const std::string record =
        " d32_h2_f32_nomask_noprobs at b1_q40_kv40 on Test CPU, 1 thread, measure, 2026-03-01 "
        "for x86-64-linux";
    const auto check = [&](const TuningRecord& of) {
        write_file(folder / "db", line_of(of));
        return run_attnc({"db", "check", folder / "db"});
    };
    const TuningRecord good = compiled_record(32);
    EXPECT_GE(good.kernels.size(), 6U);
    const std::string file = folder / "db: 1 record\n";
    EXPECT_EQ(check(good).output, file + "  ok        " + record + "\n1 ok, 0 unverified, 0 invalid\n");

    TuningRecord other = good;
    other.kernels.at("attend").object_hash = std::string(32, '0');
    other.kernels.at("project_out").object_hash = std::string(32, '0');
    const CommandResult unverified = check(other);
    EXPECT_EQ(unverified.output, file + "  unverified" + record +
                                     ": measured with other code of attend, project_out\n"
                                     "0 ok, 1 unverified, 0 invalid\n");
    EXPECT_EQ(unverified.exit_code, 0);
    EXPECT_EQ(check(small_record(32)).output, file + "  unverified" + record +
                                                  ": it has no hash of a kernel to compare\n"
                                                  "0 ok, 1 unverified, 0 invalid\n");

    TuningRecord refused = good;
    refused.schedule.params.project_out.rows = 30;
    const CommandResult invalid = check(refused);
    EXPECT_EQ(invalid.output,
              file + "  invalid   " + record +
                  ": project_out: the tile of 30 x 16 floats needs 126 vector registers, 16 are there\n"
                  "0 ok, 0 unverified, 1 invalid\n");
    EXPECT_EQ(invalid.exit_code, 1);

    TuningRecord strange = good;
    strange.kernels["attend_narrow"] = strange.kernels.at("attend");
    EXPECT_EQ(check(strange).output, file + "  invalid   " + record +
                                         ": its layer has no kernel attend_narrow\n"
                                         "0 ok, 0 unverified, 1 invalid\n");
}

TEST(DbPrune, RemovesWhatIsRefusedAndMoreIfAsked) {
    const TestFolder folder;
    const TuningRecord good = compiled_record(32);
    TuningRecord refused = small_record(24);
    refused.threads = 2;
    TuningRecord wider = compiled_record(32);
    wider.sizes.push_back(parse_sizes("b2_q40_kv40"));
    wider.calls["b2_q40_kv40"] = wider.calls["b1_q40_kv40"];
    TuningRecord unverified = small_record(64);
    unverified.threads = 3;
    const std::string all = line_of(wider) + line_of(good) + line_of(refused) + line_of(unverified);
    write_file(folder / "unsorted", all);
    run_attnc({"db", "merge", folder / "unsorted", "-o", folder / "db"});

    const std::string of = " d32_h2_f32_nomask_noprobs at b1_q40_kv40 on Test CPU, ";
    const std::string rest = ", measure, 2026-03-01 for x86-64-linux: ";
    const std::string before = contents(folder / "db");
    const std::string reason =
        "tile_kv 24 is not a multiple of 16, which is what keeps blocks on whole vectors\n";
    EXPECT_EQ(
        run_attnc({"db", "prune", folder / "db", "--dry-run"}).output,
        "would go " + of + "2 threads" + rest + reason + (folder / "db: 1 of 4 records would be removed\n"));
    EXPECT_EQ(contents(folder / "db"), before);
    EXPECT_EQ(run_attnc({"db", "prune", folder / "db"}).output,
              "gone " + of + "2 threads" + rest + reason + (folder / "db: 1 of 4 records removed\n"));
    EXPECT_EQ(run_attnc({"db", "prune", folder / "db", "--covered"}).output,
              "gone " + of + "1 thread" + rest + "another one is tuned for b1_q40_kv40 b2_q40_kv40\n" +
                  (folder / "db: 1 of 3 records removed\n"));
    EXPECT_EQ(run_attnc({"db", "prune", folder / "db", "--unverified"}).output,
              "gone " + of + "3 threads" + rest + "it has no hash of a kernel to compare\n" +
                  (folder / "db: 1 of 2 records removed\n"));
    EXPECT_EQ(contents(folder / "db"), line_of(wider));
    EXPECT_EQ(run_attnc({"db", "prune", folder / "db"}).output, folder / "db: 0 of 1 record removed\n");
}

}  // namespace
}  // namespace attnc::test
