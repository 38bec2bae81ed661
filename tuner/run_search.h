// Runs a search: takes its trials one after another to whoever measures, through the journal, until it is finished or the
// time is up.
#pragma once

#include <functional>
#include <string>

#include "tuner/journal.h"
#include "tuner/search.h"

namespace attnc {

// Of a clock that nobody sets.
double steady_seconds();

// Time that is left, by a clock that the caller gives: it may stand still or jump back, which then counts as no time.
class Deadline {
public:
    // `clock` gives seconds from anywhere. seconds < 0: no limit.
    Deadline(std::function<double()> clock, double seconds);
    bool passed();
    double left();  // seconds, 0 at the least; infinity without a limit

private:
    void look();
    std::function<double()> clock_;
    double limit_, last_, passed_ = 0;
};

struct SearchDriver {
    std::function<std::string(const Trial&)> key;  // of the journal
    std::function<TrialResult(const Trial&)> measure;
    std::function<void(const std::vector<SearchPoint>&)> prepare;  // candidates that come next; may be empty
    std::function<void(const Search&)> improved;                   // there is a new best
    std::function<void(const Search&, const Trial&, const TrialResult&, bool from_journal)> told;
};

// True if the search is finished, false if the time is up.
bool run_search(Search& search, Journal& journal, const SearchDriver& driver, Deadline& deadline);

}  // namespace attnc
