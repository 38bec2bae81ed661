// A build that ends early leaves nothing: stopped by a signal, killed, or out of room.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using testing::ElementsAre;
using testing::StartsWith;

// A build without a kernel cache, in a process of its own; `prepare` runs in it first.
pid_t start_build(const std::string& output, const std::string& log, void (*prepare)()) {
    const Strings command = Strings{attnc_command().string()} +
                            Strings{"build", "d512_h8_f32", "--target", "x86-64-linux", "-o", output};
    std::vector<char*> arguments;
    for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    const int to = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(to, STDOUT_FILENO);
    ::dup2(to, STDERR_FILENO);
    ::unsetenv("ATTNC_KERNEL_CACHE");
    prepare();
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
}

int wait_for(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
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
