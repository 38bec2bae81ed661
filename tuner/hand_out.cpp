#include "tuner/hand_out.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>

namespace attnc {

HandOut::HandOut(size_t works, size_t threads)
    : threads_(std::max<size_t>(threads, 1)), waiting_(works), attempts_(works, 0) {
    std::iota(waiting_.begin(), waiting_.end(), size_t{0});
}

void HandOut::join(int rank, const std::string& host, const std::vector<Core>& cores) {
    if (cores.empty()) throw std::logic_error("a rank without a core");
    ranks_[rank] = {host, cores, {}, {}};
    ++joined_[host];
}

// A core is taken whole: siblings share its units.
std::vector<Core> HandOut::free_cores(const Rank& rank) const {
    std::set<int> taken;
    for (const auto& [number, other] : ranks_) {
        if (other.host != rank.host) continue;
        for (const Core& core : other.taken) taken.insert(core.begin(), core.end());
    }
    std::vector<Core> free;
    for (const Core& core : rank.cores) {
        if (std::none_of(core.begin(), core.end(), [&](int cpu) { return taken.contains(cpu); }))
            free.push_back(core);
    }
    return free;
}

// What is more than the threads is for building ahead. Who may use fewer than that measures on what there is.
size_t HandOut::share_of(const Rank& rank) const {
    std::set<Core> all;
    for (const auto& [number, other] : ranks_) {
        if (other.host == rank.host) all.insert(other.cores.begin(), other.cores.end());
    }
    return std::min(std::max(threads_, all.size() / joined_.at(rank.host)), rank.cores.size());
}

std::optional<HandOut::Assignment> HandOut::next(int rank) {
    Rank& asking = ranks_.at(rank);
    if (asking.work || waiting_.empty()) return {};
    std::vector<Core> free = free_cores(asking);
    const size_t share = share_of(asking);
    if (free.size() < share) return {};
    free.resize(share);
    asking.taken = free;
    asking.work = waiting_.front();
    waiting_.pop_front();
    ++assigned_;
    ++attempts_[*asking.work];
    Assignment assignment = {*asking.work, {}};
    for (const Core& core : free) assignment.cpus.insert(assignment.cpus.end(), core.begin(), core.end());
    std::sort(assignment.cpus.begin(), assignment.cpus.end());
    return assignment;
}

void HandOut::release(Rank& rank) {
    rank.work.reset();
    rank.taken.clear();
    --assigned_;
}

void HandOut::done(int rank) {
    if (ranks_.at(rank).work) release(ranks_.at(rank));
}

bool HandOut::give_back(int rank) {
    Rank& own = ranks_.at(rank);
    if (!own.work) return true;
    const size_t work = *own.work;
    release(own);
    if (attempts_[work] >= kMostAttempts) return false;
    waiting_.push_front(work);
    return true;
}

bool HandOut::leave(int rank) {
    const bool kept = give_back(rank);
    ranks_.erase(rank);
    return kept;
}

std::optional<size_t> HandOut::work_of(int rank) const {
    const auto found = ranks_.find(rank);
    if (found == ranks_.end()) return {};
    return found->second.work;
}

}  // namespace attnc
