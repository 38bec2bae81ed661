// Files and folders: failures name the file and the reason, and unfinished work goes away.
#include "compiler/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>

#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;

std::string failure(const auto& action) {
    try {
        action();
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "no failure";
}

TEST(Files, WriteAndReadBack) {
    const TestFolder folder;
    const std::string bytes("a\0b\n", 4);
    write_file(folder / "x", bytes);
    EXPECT_EQ(read_file(folder / "x"), bytes);
    write_file(folder / "x", "");
    EXPECT_EQ(read_file(folder / "x"), "");
}

TEST(Files, NameTheFileAndTheReason) {
    EXPECT_EQ(failure([] { read_file("/nowhere/x"); }), "cannot read /nowhere/x: No such file or directory");
    EXPECT_EQ(failure([] { read_file("/"); }), "cannot read /: Is a directory");
    EXPECT_EQ(failure([] { write_file("/nowhere/x", ""); }),
              "cannot write /nowhere/x: No such file or directory");
    EXPECT_EQ(failure([] { write_file("/dev/full", "x"); }),
              "cannot write /dev/full: No space left on device");
    EXPECT_EQ(failure([] { make_folder("/dev/null/x"); }), "cannot make folder /dev/null/x: Not a directory");
}

TEST(TemporaryFolder, GoesAwayWithItsContents) {
    const TestFolder folder;
    {
        const TemporaryFolder temporary(folder.path());
        make_folder(temporary.path() / "deep/er");
        write_file(temporary.path() / "deep/er/x", "x");
        EXPECT_EQ(names_in(folder.path()).size(), 1U);
    }
    EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(TemporaryFolder, LeavesThoseInUseAndRemovesAbandonedOnes) {
    const TestFolder folder;
    const TemporaryFolder in_use(folder.path());
    make_folder(folder / ".attnc-tmp-gone");
    write_file(folder / ".attnc-tmp-gone/lock", "");
    const TemporaryFolder next(folder.path());
    EXPECT_THAT(names_in(folder.path()), testing::UnorderedElementsAre(in_use.path().filename().string(),
                                                                       next.path().filename().string()));
}

}  // namespace
}  // namespace attnc::test
