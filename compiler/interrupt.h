// Ctrl-C and its kin as an exception: the handler only notes the signal, and whoever waits for something looks here.
// Destructors then remove what is unfinished.
#pragma once

#include <exception>

namespace attnc {

struct Interrupted : std::exception {
    explicit Interrupted(int number) : signal(number) {}
    const char* what() const noexcept override { return "interrupted"; }
    int signal;
};

// Notes SIGINT, SIGTERM and SIGHUP from now on, and turns SIGPIPE and SIGXFSZ into failing writes.
void handle_interrupts();

// Throws Interrupted if a signal was noted.
void check_interrupt();

}  // namespace attnc
