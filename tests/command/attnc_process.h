// The command in a process of its own, to be ended from outside.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/command/run_attnc.h"

namespace attnc::test {

// Output and errors go to the file `log`; `prepare` runs in the process first.
template <typename Prepare>
pid_t start_program(std::vector<std::string> command, const std::string& log, Prepare prepare) {
    std::vector<char*> argv;
    argv.reserve(command.size() + 1);
    for (std::string& argument : command) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    const int to = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(to, STDOUT_FILENO);
    ::dup2(to, STDERR_FILENO);
    prepare();
    ::execv(argv[0], argv.data());
    ::_exit(127);
}

template <typename Prepare>
pid_t start_attnc(const std::vector<std::string>& arguments, const std::string& log, Prepare prepare) {
    return start_program(std::vector<std::string>{attnc_command().string()} + arguments, log, prepare);
}

// Its status.
inline int wait_for(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
}

}  // namespace attnc::test
