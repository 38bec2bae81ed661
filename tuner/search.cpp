#include "tuner/search.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace attnc {

namespace {
// Of a control's last level, so that there is a next best where the best turns out to be wrong.
constexpr size_t kFinalists = 3;
}  // namespace

Search::Search(const SearchPoint& start, const std::vector<SearchPoint>& first, Neighbours neighbours,
               const SearchOptions& options)
    : incumbent_(start), neighbours_(std::move(neighbours)), options_(options) {
    tried_.insert(start);
    start_round(first);
}

// A list without what was tried before; an empty one ends at once.
void Search::start_round(const std::vector<SearchPoint>& candidates) {
    std::vector<SearchPoint> fresh;
    for (const SearchPoint& candidate : candidates) {
        if (rounds_ > 0 && fresh.size() == options_.most_moves) break;
        if (tried_.insert(candidate).second) fresh.push_back(candidate);
    }
    if (fresh.empty()) {
        finish_round(false);
    } else {
        start_level(fresh, 0, 0);
    }
}

void Search::start_level(const std::vector<SearchPoint>& candidates, int level, int repeat) {
    level_.clear();
    handed_out_ = 0;
    for (const SearchPoint& candidate : candidates)
        level_.push_back({{next_id_++, candidate, incumbent_, level, repeat}, {}});
}

std::optional<Trial> Search::next() {
    if (finished_ || handed_out_ == level_.size()) return {};
    return level_[handed_out_++].trial;
}

void Search::tell(int64_t id, const TrialResult& result) {
    const auto found = std::find_if(level_.begin(), level_.end(), [&](const Open& open) {
        return open.trial.id == id && !open.result.has_value();
    });
    if (found == level_.end() || found - level_.begin() >= static_cast<std::ptrdiff_t>(handed_out_))
        throw std::logic_error("an answer to no trial");
    found->result = result;
    ++answered_;
    const bool all =
        std::all_of(level_.begin(), level_.end(), [](const Open& open) { return open.result.has_value(); });
    if (all) finish_level();
}

// Measured, not surely worse than the incumbent, nor than the best of the level; the best first. In a control the incumbent
// counts only against what is hopeless, and a level of nothing else still has a best.
std::vector<const Search::Open*> Search::survivors() const {
    std::vector<const Open*> kept;
    for (const Open& open : level_) {
        const TrialResult& result = *open.result;
        const bool measured = result.fault.empty() && result.ratio.samples > 0;
        if (measured && (options_.control || !surely_above(result.ratio, 1))) kept.push_back(&open);
    }
    std::stable_sort(kept.begin(), kept.end(), [](const Open* a, const Open* b) {
        return a->result->ratio.median < b->result->ratio.median;
    });
    if (kept.empty()) return kept;
    const double best_high = kept.front()->result->ratio.high;
    std::erase_if(kept, [&](const Open* open) { return open->result->ratio.low > best_high; });
    return kept;
}

void Search::finish_level() {
    const int level = level_.front().trial.level;
    if (level_.front().trial.repeat > 0) {
        finish_repeat();
        return;
    }
    const std::vector<const Open*> kept = survivors();
    std::vector<const Open*> hopeful = kept;
    if (options_.control) {
        std::erase_if(hopeful,
                      [&](const Open* open) { return surely_above(open->result->ratio, options_.hopeless); });
    }
    const bool last = level + 1 >= options_.levels;
    if (options_.control && !kept.empty() && (last || hopeful.empty())) {
        start_repeat(kept);
        return;
    }
    if (last) {
        if (kept.empty() || !is_better(kept.front()->result->ratio)) {
            finish_round(false);
            return;
        }
        first_ratio_ = kept.front()->result->ratio.median;
        start_repeat(kept);
        return;
    }
    size_t most = (level_.size() + options_.keep_one_of - 1) / options_.keep_one_of;
    if (options_.control) most = std::max(most, kFinalists);
    if (hopeful.size() > most) hopeful.resize(most);
    std::vector<SearchPoint> candidates;
    candidates.reserve(hopeful.size());
    for (const Open* open : hopeful) candidates.push_back(open->trial.candidate);
    if (candidates.empty()) {
        finish_round(false);
    } else {
        start_level(candidates, level + 1, 0);
    }
}

// The best of `kept` once more, at the last level.
void Search::start_repeat(const std::vector<const Open*>& kept) {
    finalists_.clear();
    for (const Open* open : kept) finalists_.push_back(open->trial.candidate);
    const SearchPoint winner = finalists_.front();
    finalists_.erase(finalists_.begin());
    start_level({winner}, options_.levels - 1, 1);
}

// The one that was better, from the start: a lucky measurement is not lucky twice. Where a control's turns out to be wrong
// or to crash, the next one is its best.
void Search::finish_repeat() {
    const Open again = level_.front();
    const bool measured = again.result->fault.empty() && again.result->ratio.samples > 0;
    if (options_.control) {
        if (measured) challenger_ = {again.trial.candidate, again.result->ratio};
        if (measured || finalists_.empty()) {
            finish_round(false);
            return;
        }
        const SearchPoint next = finalists_.front();
        finalists_.erase(finalists_.begin());
        start_level({next}, options_.levels - 1, 1);
        return;
    }
    const bool confirmed = measured && is_better(again.result->ratio);
    if (confirmed) {
        incumbent_ = again.trial.candidate;
        best_ratio_ *= std::max(first_ratio_, again.result->ratio.median);
    }
    finish_round(confirmed);
}

// The neighbours of the first incumbent are tried even if the first list had nothing better.
void Search::finish_round(bool improved) {
    const bool first = rounds_ == 0;
    level_.clear();
    handed_out_ = 0;
    if (options_.control || (!improved && !first) || rounds_ >= options_.most_rounds) {
        finished_ = true;
        return;
    }
    ++rounds_;
    start_round(neighbours_(incumbent_));
}

std::vector<SearchPoint> Search::ahead(size_t most) const {
    std::vector<SearchPoint> points;
    for (size_t i = handed_out_; i < level_.size() && points.size() < most; ++i)
        points.push_back(level_[i].trial.candidate);
    return points;
}

int64_t Search::expected() const {
    if (finished_) return 0;
    const auto of_levels = [&](size_t count, int level) {
        int64_t sum = 0;
        for (; level < options_.levels; ++level) {
            sum += static_cast<int64_t>(count);
            count = (count + options_.keep_one_of - 1) / options_.keep_one_of;
        }
        return sum + 1;
    };
    size_t open = 0;
    for (const Open& trial : level_) open += trial.result.has_value() ? 0 : 1;
    int64_t sum = static_cast<int64_t>(open);
    if (!level_.empty() && level_.front().trial.repeat == 0) {
        const size_t kept = (level_.size() + options_.keep_one_of - 1) / options_.keep_one_of;
        sum += of_levels(kept, level_.front().trial.level + 1);
    }
    return rounds_ == 0 && !options_.control ? sum + of_levels(options_.most_moves, 0) : sum;
}

}  // namespace attnc
