// Which of several ranks works on what, and on which cores: one work at a time for each, cores that no other rank of the
// host measures on, and a lost rank's work for another one. Decides only; nobody is asked or told here.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace attnc {

// Its logical CPUs: one, or siblings that share its units.
using Core = std::vector<int>;

class HandOut {
public:
    // A work that was lost this often is given up: it may be what kills those who do it.
    static constexpr int kMostAttempts = 3;

    // `threads`: cores that a measurement takes.
    HandOut(size_t works, size_t threads);

    // All that are to share a host have to join before the first of them asks.
    void join(int rank, const std::string& host, const std::vector<Core>& cores);

    struct Assignment {
        size_t work = 0;
        std::vector<int>
            cpus;  // ascending; of at least as many cores as threads, where the rank may use so many
    };
    // Nothing: there is no work at the moment, or no core of its own for the rank, which stays in reserve.
    std::optional<Assignment> next(int rank);

    void done(int rank);
    // Its work is not done, and goes to whoever asks next. False: it is given up.
    bool give_back(int rank);
    // The rank is gone. False: its work is given up.
    bool leave(int rank);

    std::optional<size_t> work_of(int rank) const;
    size_t ranks() const { return ranks_.size(); }
    size_t left() const { return waiting_.size() + assigned_; }  // works that are neither done nor given up

private:
    struct Rank {
        std::string host;
        std::vector<Core> cores;          // that it may use
        std::vector<Core> taken;          // that it works on
        std::optional<size_t> work = {};  // at hand
    };
    std::vector<Core> free_cores(const Rank& rank) const;
    size_t share_of(const Rank& rank) const;
    void release(Rank& rank);

    size_t threads_;
    std::map<int, Rank> ranks_;
    std::map<std::string, size_t> joined_;  // ranks of each host, those included that are gone
    std::deque<size_t> waiting_;
    std::vector<int> attempts_;
    size_t assigned_ = 0;
};

}  // namespace attnc
