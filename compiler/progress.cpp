#include "compiler/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace attnc {

Progress::Progress(std::string what)
    : what_(std::move(what)),
      started_(std::chrono::steady_clock::now()),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::show(int done, int all) {
    if (!terminal_ || std::chrono::steady_clock::now() - started_ < std::chrono::seconds(2)) return;
    fmt::print(stderr, "\r\033[K{}: {} of {}", what_, done, all);
    std::fflush(stderr);
    shown_ = true;
}

}  // namespace attnc
