#include "compiler/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "compiler/interrupt.h"

extern char** environ;

namespace attnc {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOutput = size_t{64} << 20;
constexpr int kPollMilliseconds = 50;  // how late an interrupt or a time-out is seen

class Descriptor {
public:
    explicit Descriptor(int value) : value_(value) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() { close(); }
    int get() const { return value_; }
    void close() {
        if (value_ >= 0) ::close(value_);
        value_ = -1;
    }

private:
    int value_;
};

// Starts the program with `output` as its standard output and error.
pid_t start(const std::vector<std::string>& command, int output) {
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    pid_t pid = -1;
    int error = ::posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
        throw std::runtime_error(fmt::format("cannot run {}: {}", command[0], std::strerror(error)));
    return pid;
}

// A started process that is killed and waited for if it is left before its end.
class Child {
public:
    explicit Child(pid_t pid) : pid_(pid) {}
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (pid_ > 0) kill_and_wait();
    }
    int kill_and_wait() {
        ::kill(pid_, SIGKILL);
        return wait();
    }
    int wait() {
        int status = 0;
        while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        pid_ = -1;
        return status;
    }

private:
    pid_t pid_;
};

}  // namespace

ProcessResult run_process(const std::vector<std::string>& command, std::chrono::seconds time_limit,
                          const std::function<void()>& meanwhile) {
    check_interrupt();
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
        throw std::runtime_error(fmt::format("cannot run {}: {}", command[0], std::strerror(errno)));
    }
    Descriptor from(ends[0]);
    Descriptor to(ends[1]);
    Child child(start(command, to.get()));
    to.close();

    ProcessResult result;
    const Clock::time_point deadline = Clock::now() + time_limit;
    for (;;) {  // until the pipe's other end is closed, which the program's end does
        check_interrupt();
        if (meanwhile) meanwhile();
        if (Clock::now() > deadline) {
            child.kill_and_wait();
            result.timed_out = true;
            return result;
        }
        pollfd waiting = {from.get(), POLLIN, 0};
        if (::poll(&waiting, 1, kPollMilliseconds) <= 0) continue;
        std::array<char, 4096> buffer;
        ssize_t count = ::read(from.get(), buffer.data(), buffer.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        size_t room = kMaxOutput - result.output.size();
        result.output.append(buffer.data(), std::min(room, static_cast<size_t>(count)));
    }
    int status = child.wait();
    check_interrupt();
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
    return result;
}

void end_with_parent() {
    const pid_t parent = ::getppid();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::raise(SIGKILL);
}

std::string quoted(const std::vector<std::string>& command) {
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+@%";
    std::string text;
    for (const std::string& argument : command) {
        if (!text.empty()) text += ' ';
        if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) {
            text += argument;
            continue;
        }
        text += '\'';
        for (char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
        text += '\'';
    }
    return text;
}

std::string describe_signal(int number) {
    const char* name = ::strsignal(number);
    return fmt::format("signal {} ({})", number, name != nullptr ? name : "unknown");
}

std::string describe_failure(const ProcessResult& result, std::chrono::seconds time_limit) {
    if (result.timed_out) return fmt::format("no end after {} s", time_limit.count());
    if (result.signal != 0) return describe_signal(result.signal);
    return fmt::format("exit code {}", result.exit_code);
}

std::string last_line(const std::string& output) {
    size_t end = output.find_last_not_of(" \t\r\n");
    if (end == std::string::npos) return "";
    size_t begin = output.find_last_of('\n', end);
    begin = begin == std::string::npos ? 0 : begin + 1;
    return output.substr(begin, end + 1 - begin);
}

std::string find_program(const std::string& name) {
    const char* value = std::getenv("PATH");
    std::string path = value != nullptr ? value : "/usr/local/bin:/usr/bin:/bin";
    for (size_t begin = 0; begin <= path.size();) {
        size_t end = std::min(path.find(':', begin), path.size());
        std::string folder = path.substr(begin, end - begin);
        std::string candidate = (folder.empty() ? std::string(".") : folder) + "/" + name;
        if (::access(candidate.c_str(), X_OK) == 0) return candidate;
        begin = end + 1;
    }
    return "";
}

}  // namespace attnc
