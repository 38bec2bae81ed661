// A build that ends early leaves nothing: stopped by a signal, killed, or out of room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/command/attnc_process.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using testing::ElementsAre;
using testing::StartsWith;

// A build without a kernel cache; `prepare` runs in its process first.
pid_t start_build(const std::string& output, const std::string& log, void (*prepare)()) {
    return start_attnc({"build", "d512_h8_f32", "--target", "x86-64-linux", "-o", output}, log, [&] {
        ::unsetenv("ATTNC_KERNEL_CACHE");
        prepare();
    });
}

void nothing() {}

// Until the build has begun to compile.
void wait_for_work(const std::string& output) {
    for (int i = 0; i < 1000; ++i) {
        std::error_code ignored;
        for (const auto& entry : fs::directory_iterator(output, ignored)) {
            if (fs::exists(entry.path() / "work")) return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "the build did not begin";
}

class Signal : public testing::TestWithParam<int> {};

TEST_P(Signal, EndsABuildThatLeavesNothing) {
    const TestFolder folder;
    const pid_t pid = start_build(folder / "out", folder / "log", nothing);
    wait_for_work(folder / "out");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::kill(pid, GetParam());
    const int status = wait_for(pid);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + GetParam());
    EXPECT_EQ(contents(folder / "log"), "attnc: interrupted\n");
    EXPECT_THAT(names_in(folder.path()), ElementsAre("log"));
}

INSTANTIATE_TEST_SUITE_P(AndNothingIsLeft, Signal, testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(Interruption, KilledBuildIsCleanedUpByTheNext) {
    const TestFolder folder;
    const pid_t pid = start_build(folder / "out", folder / "log", nothing);
    wait_for_work(folder / "out");
    ::kill(pid, SIGKILL);
    wait_for(pid);
    ASSERT_THAT(names_in(folder / "out"), ElementsAre(StartsWith(".attnc-tmp-")));
    EXPECT_EQ(run_attnc(kSmallBuild + Strings{"--name", "small", "-o", folder / "out"}).exit_code, 0);
    EXPECT_THAT(names_in(folder / "out"),
                ElementsAre("attnc.h", "attnc.hpp", "libattnc_runtime.a", "libsmall.a", "small.h",
                            "small.json", "small.pc", "smallConfig.cmake"));
}

// A limit on the size of files stands for a full disk: writing fails in the middle.
TEST(Interruption, FullDiskLeavesNothing) {
    const TestFolder folder;
    const pid_t pid = start_build(folder / "out", folder / "log", [] {
        const rlimit limit = {10000, 10000};  // smaller than one kernel
        ::setrlimit(RLIMIT_FSIZE, &limit);
    });
    const int status = wait_for(pid);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1);
    const std::string log = contents(folder / "log");
    EXPECT_THAT(log, StartsWith("attnc: cannot compile "));
    EXPECT_THAT(log, testing::HasSubstr(": File too large; to repeat: "));
    EXPECT_EQ(log.find('\n'), log.size() - 1);
    EXPECT_THAT(names_in(folder.path()), ElementsAre("log"));
}

}  // namespace
}  // namespace attnc::test
