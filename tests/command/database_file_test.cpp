// Files of tuning records: whole at any moment, whoever writes and whatever stops it.
#include "compiler/database_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <stdexcept>
#include <thread>

#include "compiler/files.h"
#include "support/random.h"
#include "tests/command/run_attnc.h"
#include "tests/command/tuned_records.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

std::string failure(const std::function<void()>& action) {
    try {
        action();
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "no failure";
}

// One of many, told apart by its number of threads.
TuningRecord numbered(int64_t number) {
    TuningRecord record = small_record(32);
    record.threads = number;
    return record;
}

pid_t start(const std::function<void()>& work) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    try {
        work();
        ::_exit(0);
    } catch (...) {
        ::_exit(1);
    }
}

int end_of(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
}

TEST(DatabaseFile, IsMadeAndAddedTo) {
    const TestFolder folder;
    const fs::path file = folder.path() / "db";
    EXPECT_EQ(add_records(file, {numbered(2)}).added, 1);
    const AddedRecords second = add_records(file, {numbered(2), numbered(1)});
    EXPECT_EQ(second.added, 1);
    EXPECT_EQ(second.kept, 1);
    EXPECT_EQ(contents(file), line_of(numbered(1)) + line_of(numbered(2)));
    EXPECT_THAT(names_in(folder.path()), ElementsAre("db"));
}

TEST(DatabaseFile, KeepsEveryRecordOfWritersAtTheSameTime) {
    const TestFolder folder;
    const fs::path file = folder.path() / "db";
    constexpr int kWriters = 4, kEach = 12;
    std::vector<pid_t> writers;
    for (int writer = 0; writer < kWriters; ++writer) {
        writers.push_back(start([&] {
            for (int i = 0; i < kEach; ++i) add_records(file, {numbered(1 + writer * kEach + i)});
        }));
    }
    for (const pid_t writer : writers) EXPECT_EQ(end_of(writer), 0);
    EXPECT_EQ(load_database(file).size(), size_t{kWriters * kEach});
    EXPECT_THAT(names_in(folder.path()), ElementsAre("db"));
}

TEST(DatabaseFile, IsWholeAfterItsWriterIsKilledAtAnyMoment) {
    const TestFolder folder;
    const fs::path file = folder.path() / "db";
    Random random(3);
    size_t before = 0;
    int64_t next = 1;
    for (int round = 0; round < 20; ++round) {
        const pid_t writer = start([&] {
            for (int64_t number = next;; ++number) add_records(file, {numbered(number)});
        });
        std::this_thread::sleep_for(std::chrono::microseconds(random.between(0, 30000)));
        ::kill(writer, SIGKILL);
        end_of(writer);
        const size_t now = fs::exists(file) ? load_database(file).size() : 0;
        EXPECT_GE(now, before) << round;  // what was there stays
        before = now;
        next = static_cast<int64_t>(now) + 1;
    }
    EXPECT_GT(before, 5U);  // it did write
    add_records(file, {numbered(next)});
    EXPECT_EQ(load_database(file).size(), before + 1);
    EXPECT_THAT(names_in(folder.path()), ElementsAre("db"));  // nothing left behind after the next writer
}

TEST(DatabaseFile, StaysAsItWasWhenAChangeFails) {
    const TestFolder folder;
    const fs::path file = folder.path() / "db", none = folder.path() / "none";
    add_records(file, {numbered(1)});
    const auto throws = [](TuningDatabase& database) {
        database.add(numbered(2));
        throw std::runtime_error("no");
    };
    EXPECT_EQ(failure([&] { change_database(file, throws); }), "no");
    EXPECT_EQ(failure([&] { change_database(none, throws); }), "no");
    EXPECT_EQ(contents(file), line_of(numbered(1)));
    EXPECT_THAT(names_in(folder.path()), ElementsAre("db"));
}

TEST(DatabaseFile, IsNotTouchedWhereNothingChanges) {
    const TestFolder folder;
    const fs::path file = folder.path() / "db";
    add_records(file, {numbered(1)});
    struct stat before, after;
    ::stat(file.c_str(), &before);
    add_records(file, {numbered(1)});
    ::stat(file.c_str(), &after);
    EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST(DatabaseFile, KeepsItsModeAndTheLinkToIt) {
    const TestFolder folder;
    const fs::path file = folder.path() / "db", link = folder.path() / "link";
    add_records(file, {numbered(1)});
    fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
    fs::create_symlink("db", link);
    add_records(link, {numbered(2)});
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(load_database(file).size(), 2U);
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(DatabaseFile, NamesWhatItCannotReadOrWrite) {
    const TestFolder folder;
    const auto add_to = [](const fs::path& file) {
        return failure([&] { add_records(file, {numbered(1)}); });
    };
    EXPECT_EQ(add_to("/nowhere/db"), "cannot write /nowhere/db: No such file or directory");
    EXPECT_EQ(add_to(folder.path()), "cannot write " + folder.path().string() + ": Is a directory");
    EXPECT_EQ(add_to("/dev/full"), "cannot write /dev/full: it is not a plain file");
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_EQ(add_to(folder / "pipe"), "cannot write " + (folder / "pipe") + ": it is not a plain file");
    EXPECT_EQ(failure([&] { load_database(folder / "pipe"); }),
              "cannot read " + (folder / "pipe") + ": it is not a plain file");
    EXPECT_EQ(failure([&] { load_database("/nowhere/db"); }),
              "cannot read /nowhere/db: No such file or directory");
    write_file(folder / "huge", "");
    fs::resize_file(folder / "huge", kLargestDatabase + 1);  // a hole
    EXPECT_EQ(
        failure([&] { load_database(folder / "huge"); }),
        "cannot read " + (folder / "huge") + ": it has 67108865 bytes, a database has at most 67108864");
}

}  // namespace
}  // namespace attnc::test
