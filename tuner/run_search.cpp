#include "tuner/run_search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <utility>

namespace attnc {

namespace {
constexpr size_t kAhead = 4;  // candidates that are made ready
}

double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Deadline::Deadline(std::function<double()> clock, double seconds)
    : clock_(std::move(clock)), limit_(seconds), last_(clock_()) {}

void Deadline::look() {
    const double now = clock_();
    if (now > last_) passed_ += now - last_;
    last_ = now;
}

bool Deadline::passed() {
    look();
    return limit_ >= 0 && passed_ >= limit_;
}

double Deadline::left() {
    look();
    return limit_ < 0 ? std::numeric_limits<double>::infinity() : std::max(limit_ - passed_, 0.0);
}

bool run_search(Search& search, Journal& journal, const SearchDriver& driver, Deadline& deadline) {
    while (!search.finished()) {
        const SearchPoint before = search.best();
        const std::optional<Trial> trial = search.next();
        if (!trial) throw std::logic_error("a search that waits for nobody");
        const std::string key = driver.key(*trial);
        std::optional<TrialResult> result = journal.find(key);
        const bool known = result.has_value();
        if (!known) {
            if (deadline.passed()) return false;
            if (driver.prepare) {
                std::vector<SearchPoint> ready = search.ahead(kAhead);
                ready.insert(ready.begin(), trial->candidate);
                driver.prepare(ready);
            }
            result = driver.measure(*trial);
            journal.add(key, *result);
        }
        search.tell(trial->id, *result);
        if (driver.told) driver.told(search, *trial, *result, known);
        if (driver.improved && search.best() != before) driver.improved(search);
    }
    return true;
}

}  // namespace attnc
