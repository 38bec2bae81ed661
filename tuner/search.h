// The search of one part of a schedule, without compiling or timing anything: it says which candidate to measure next
// against the incumbent, and is told what came out. Successive halving on a first list, then on the neighbours of the
// best, until a whole round of neighbours is no better. The same answers give the same search.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "schedules/search_space.h"
#include "tuner/statistics.h"

namespace attnc {

struct SearchOptions {
    int levels = 3;          // of how long is measured: 0 is the shortest
    size_t keep_one_of = 3;  // of the candidates of a level, at most that share goes on to the next
    size_t most_moves = 12;  // neighbours that are tried round an incumbent
    size_t most_rounds = 6;  // of neighbours
    // What two builds of the same code may differ by, where its instructions and data happen to lie: a candidate has to be
    // better by more.
    double margin = 0.005;
    // A control asks how good the best of the first list is beside an incumbent that stays, and tries no neighbours.
    bool control = false;
    double hopeless = 1.15;  // of the incumbent's time: what of a control is surely above goes no further
};

// A candidate that is to be measured beside the incumbent of the moment.
struct Trial {
    int64_t id = 0;  // ascending
    SearchPoint candidate, incumbent;
    int level = 0;
    int repeat = 0;  // 1: once more, from the start, before it replaces the incumbent
    bool operator==(const Trial&) const = default;
};

// What a call took by itself.
struct CallTime {
    double seconds = 0;  // median; of several sizes their geometric mean. 0: unknown
    double spread = 0;   // relative; of the size that spreads most
    double peak = 0;     // fraction of the machine's multiply-adds at the time
};

struct TrialResult {
    Ratio ratio;        // candidate's time over the incumbent's
    std::string fault;  // why there is none: what the compiler said, a crash, wrong bits; empty: measured
    CallTime candidate = {}, incumbent = {};
    std::string layer = {};  // whose calls were timed: "d512_h8_f32"
};

class Search {
public:
    // Neighbours of a point, the most promising first.
    using Neighbours = std::function<std::vector<SearchPoint>(const SearchPoint&)>;

    // `first`: candidates to begin with, the most promising first. The start is the first incumbent.
    Search(const SearchPoint& start, const std::vector<SearchPoint>& first, Neighbours neighbours,
           const SearchOptions& options);

    // The next trial; nothing while answers are due without which none can be chosen, or when the search is finished.
    std::optional<Trial> next();
    // The answer to a trial that `next` gave, in any order.
    void tell(int64_t id, const TrialResult& result);
    bool finished() const { return finished_; }

    // Candidates of trials that `next` will give if nothing else comes between: to be compiled ahead.
    std::vector<SearchPoint> ahead(size_t most) const;

    const SearchPoint& best() const { return incumbent_; }
    double best_ratio() const { return best_ratio_; }  // its time over that of the start
    int64_t trials() const { return answered_; }
    size_t candidates() const { return tried_.size(); }  // that a trial was given for
    // Trials that are left if no neighbour is better any more.
    int64_t expected() const;

    // Of a control that is finished: the best of the list, and its time over the incumbent's by a measurement that did not
    // help to choose it. Nothing where none could be measured.
    struct Challenger {
        SearchPoint point;
        Ratio ratio;
    };
    const std::optional<Challenger>& challenger() const { return challenger_; }

private:
    struct Open {
        Trial trial;
        std::optional<TrialResult> result;
    };
    void start_round(const std::vector<SearchPoint>& candidates);
    void start_level(const std::vector<SearchPoint>& candidates, int level, int repeat);
    void finish_level();
    void finish_round(bool improved);
    void finish_repeat();
    void start_repeat(const std::vector<const Open*>& kept);
    std::vector<const Open*> survivors() const;
    bool is_better(const Ratio& ratio) const { return surely_below(ratio, 1 - options_.margin); }

    SearchPoint incumbent_;
    Neighbours neighbours_;
    SearchOptions options_;
    std::set<SearchPoint> tried_;
    std::vector<Open> level_;  // trials of the level at hand
    size_t handed_out_ = 0;
    int64_t next_id_ = 0, answered_ = 0;
    size_t rounds_ = 0;
    double best_ratio_ = 1, first_ratio_ = 1;
    std::vector<SearchPoint>
        finalists_;  // of a control, the best first: those behind the one that is measured once more
    std::optional<Challenger> challenger_;
    bool finished_ = false;
};

}  // namespace attnc
