// Names of a library's archive: it defines one, hidden, and needs what the runtime and the C library have. Read with
// nm, not with the reader that the command itself uses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <sstream>

#include "compiler/subprocess.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

using Strings = std::vector<std::string>;

// Names of the archive's members by nm: defined or undefined, global.
std::set<std::string> names(const std::string& archive, const char* which) {
    const std::string nm = find_program("nm");
    EXPECT_FALSE(nm.empty()) << "nm is part of binutils, which the C compiler needs";
    const ProcessResult result =
        run_process({nm, "--extern-only", which, "--format=posix", archive}, std::chrono::seconds(60));
    EXPECT_TRUE(result.succeeded()) << result.output;
    std::set<std::string> found;
    std::istringstream text(result.output);
    for (std::string line; std::getline(text, line);) {
        const size_t space = line.find(' ');
        if (space != std::string::npos) found.insert(line.substr(0, space));
    }
    return found;
}

class ArchiveNames : public testing::Test {
protected:
    static void SetUpTestSuite() {
        folder_ = new TestFolder;
        const CommandResult result =
            run_attnc({"build", "d64_h4_f32_biaskv_zeroattn", "--name", "x", "-o", folder_->path().string()});
        ASSERT_EQ(result.exit_code, 0) << result.output;
    }
    static void TearDownTestSuite() { delete folder_; }

    static inline TestFolder* folder_ = nullptr;
};

TEST_F(ArchiveNames, OneIsDefined) {
    EXPECT_THAT(names(*folder_ / "libx.a", "--defined-only"),
                testing::ElementsAre(testing::MatchesRegex("attnc_lib_x_[0-9a-f]+")));
}

TEST_F(ArchiveNames, NeededOnesAreTheRuntimesAndMemoryFunctions) {
    const std::set<std::string> runtime = names(*folder_ / "libattnc_runtime.a", "--defined-only");
    const std::set<std::string> memory = {"memcpy", "memmove", "memset", "memcmp"};
    for (const std::string& name : names(*folder_ / "libx.a", "--undefined-only")) {
        EXPECT_TRUE(memory.contains(name) || (name.starts_with("attnc_abi1_") && runtime.contains(name)))
            << name;
    }
}

TEST_F(ArchiveNames, AreNeverHalides) {
    for (const char* archive : {"libx.a", "libattnc_runtime.a"}) {
        for (const char* which : {"--defined-only", "--undefined-only"}) {
            for (const std::string& name : names(*folder_ / archive, which)) {
                EXPECT_FALSE(name.starts_with("halide")) << archive << " " << name;
            }
        }
    }
}

TEST(ArchiveSize, ThreeTargetsFitInOneAndAHalfMegabytes) {
    const TestFolder folder;
    const CommandResult result = run_attnc({"build", "--d-model", "512", "--num-heads", "8", "--no-records",
                                            "--name", "x", "-o", folder.path().string()});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_LE(std::filesystem::file_size(folder / "libx.a"), 1'500'000U);
}

}  // namespace
}  // namespace attnc::test
