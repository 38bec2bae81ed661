#include "compiler/tune_display.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace attnc {

namespace {

// A line that wraps can't be taken away again.
size_t columns_of_terminal() {
    winsize size = {};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string progress_text(const TuneEvent& event, double peak) {
    std::string text = fmt::format("{}: best {:.3f}, {:.2f} of peak, trial {} of about {}", event.part,
                                   event.best_ratio, peak, event.trial, event.trial + event.expected);
    if (std::isfinite(event.seconds_left))
        text += fmt::format(", {} left", duration_text(event.seconds_left));
    return text;
}

TuneDisplay::TuneDisplay() : terminal_(::isatty(STDERR_FILENO) == 1) {}

TuneDisplay::~TuneDisplay() { clear(); }

void TuneDisplay::clear() {
    if (shown_) std::fputs("\r\033[K", stderr);
    shown_ = false;
}

void TuneDisplay::show(const std::string& text) {
    if (!terminal_) return;
    fmt::print(stderr, "\r\033[K{}", text.substr(0, columns_of_terminal() - 1));
    std::fflush(stderr);
    shown_ = true;
}

void TuneDisplay::line(const std::string& text) {
    clear();
    fmt::print("{}\n", text);
    std::fflush(stdout);
}

void TuneDisplay::begin(const TunedPart& part, const std::string& start) {
    trials_ = failed_ = known_ = 0;
    peak_ = 0;
    line(fmt::format("  {} from {}", part.part.name, start));
    show(part.part.name + ": looking for candidates");
}

void TuneDisplay::skip(const TunedPart& part, const std::string& why) {
    line(fmt::format("  {} stays as it is: {}", part.part.name, why));
}

void TuneDisplay::trial(const TuneEvent& event) {
    ++trials_;
    failed_ += event.result.fault.empty() ? 0 : 1;
    known_ += event.from_journal ? 1 : 0;
    const CallTime& best = event.improved ? event.result.candidate : event.result.incumbent;
    if (best.peak > 0) peak_ = best.peak;
    if (!event.result.fault.empty()) line(fmt::format("    {}: {}", event.candidate, event.result.fault));
    if (event.improved)
        line(fmt::format("    {:.3f} of the time, {:.2f} of peak: {}", event.best_ratio, peak_,
                         event.candidate));
    if (!event.from_journal) show(progress_text(event, peak_));
}

void TuneDisplay::end(const TunedPart& part, const std::string& best, double ratio, bool finished) {
    std::string what = fmt::format("  {}: {:.3f} of the time, {} trials", part.part.name, ratio, trials_);
    if (known_ > 0) what += fmt::format(", {} of them measured before", known_);
    if (failed_ > 0) what += fmt::format(", {} failed", failed_);
    if (!finished) what += ", time is up";
    line(what + ": " + best);
}

}  // namespace attnc
