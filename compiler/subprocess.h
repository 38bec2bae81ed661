// Runs another program and waits for it.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace attnc {

struct ProcessResult {
    int exit_code = 0;       // when it ended by itself
    int signal = 0;          // when a signal ended it
    bool timed_out = false;  // when it was killed for taking too long
    std::string output;      // standard output and error together; the first 64 MiB
    bool succeeded() const { return exit_code == 0 && signal == 0 && !timed_out; }
};

// Runs command[0] (a path) with its arguments and no input. Throws Interrupted, having killed it, when this process is
// interrupted, and std::runtime_error when the program can't be started. `meanwhile`, if there is one, is called some
// twenty times a second at the least; what it throws ends the program too.
ProcessResult run_process(const std::vector<std::string>& command, std::chrono::seconds time_limit,
                          const std::function<void()>& meanwhile = {});

// For a process that is of no use without the one that started it, which may be killed: it is killed then too, at once if
// that has happened already.
void end_with_parent();

// The command as a shell reads it.
std::string quoted(const std::vector<std::string>& command);

// What happened, in words: "exit code 3", "signal 11 (Segmentation fault)", "no end after 300 s".
std::string describe_failure(const ProcessResult& result, std::chrono::seconds time_limit);

// The same of a wait status.
std::string describe_signal(int number);

// The last line of `output` that says something; "" if none does.
std::string last_line(const std::string& output);

// The program's path by PATH; "" if it isn't there.
std::string find_program(const std::string& name);

}  // namespace attnc
