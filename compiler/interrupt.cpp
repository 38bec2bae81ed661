#include "compiler/interrupt.h"

#include <csignal>
#include <initializer_list>

namespace attnc {

namespace {

volatile std::sig_atomic_t noted_signal = 0;

void note(int number) { noted_signal = number; }

}  // namespace

void handle_interrupts() {
    struct sigaction action = {};
    action.sa_handler = note;  // without SA_RESTART: a wait ends when the signal comes
    sigemptyset(&action.sa_mask);
    for (int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
    action.sa_handler = SIG_IGN;
    for (int number : {SIGPIPE, SIGXFSZ}) sigaction(number, &action, nullptr);
}

void check_interrupt() {
    if (noted_signal != 0) throw Interrupted(noted_signal);
}

}  // namespace attnc
