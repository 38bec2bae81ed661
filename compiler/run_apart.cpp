#include "compiler/run_apart.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "compiler/interrupt.h"
#include "compiler/subprocess.h"

namespace attnc {

namespace {

constexpr int kThrew = 125;  // exit code of a child whose work threw; the reason is in the pipe

[[noreturn]] void work_in_child(int reason, const std::function<int()>& work) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_DFL);
    int code = kThrew;
    try {
        code = work();
    } catch (const std::exception& error) {
        const std::string text = error.what();
        // A reason that can't be told is a failure all the same.
        [[maybe_unused]] const ssize_t written = ::write(reason, text.data(), text.size());
    }
    std::fflush(stdout);
    std::fflush(stderr);
    ::_exit(code);
}

std::string read_all(int from) {
    std::string text;
    char buffer[512];
    for (;;) {
        const ssize_t count = ::read(from, buffer, sizeof buffer);
        if (count < 0 && errno == EINTR) return text;  // the interrupt is noticed after this
        if (count <= 0) return text;
        text.append(buffer, static_cast<size_t>(count));
    }
}

}  // namespace

int run_apart(const std::string& what, const std::function<int()>& work) {
    check_interrupt();
    std::fflush(stdout);
    std::fflush(stderr);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        throw std::runtime_error(fmt::format("cannot fork: {}", std::strerror(errno)));
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error(fmt::format("cannot fork: {}", std::strerror(errno)));
    if (pid == 0) work_in_child(ends[1], work);

    ::close(ends[1]);
    const std::string reason = read_all(ends[0]);
    ::close(ends[0]);
    int status = 0;
    for (;;) {
        const pid_t waited = ::waitpid(pid, &status, 0);
        if (waited == pid) break;
        try {
            check_interrupt();
        } catch (const Interrupted&) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, &status, 0);
            throw;
        }
    }
    check_interrupt();
    if (WIFSIGNALED(status)) {
        throw std::runtime_error(fmt::format("{} crashed: {}", what, describe_signal(WTERMSIG(status))));
    }
    if (WEXITSTATUS(status) == kThrew) throw std::runtime_error(reason);
    return WEXITSTATUS(status);
}

}  // namespace attnc
