// Messages between the ranks of a tuning run, over the module that attnc has for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/installation.h"
#include "compiler/rank_module.h"
#include "schedules/tuning_record.h"
#include "tuner/hand_out.h"

namespace attnc {

struct RankMessage {
    enum class Kind {
        kBeat,     // to everyone, now and then: the sender is alive
        kHello,    // of a worker, once: host, machine, cores, target, versions; text: why it takes no part
        kWork,     // to a worker: work, cores (the one list of CPUs), arguments, lines of a journal
        kTrials,   // of a worker, as they come: lines of a journal
        kRecords,  // of a worker: lines of a database
        kDone,     // of a worker: work; text: what the tuner said
        kLost,     // of a worker: work, which a process was killed in; text: what happened
        kFailed,   // of a worker: work, which can't be done anywhere; text: why
        kEnd,      // to a worker; all_there. And its answer, the last that it says
        kDamaged,  // what came was no message; text: why
    };
    Kind kind = Kind::kBeat;
    int64_t work = 0;
    bool all_there = true;
    std::string text, host, target, versions;
    Machine machine;
    std::vector<Core> cores;
    std::vector<std::string> arguments, lines;
};
std::string to_json(const RankMessage& message);
RankMessage parse_rank_message(const std::string& json);

class RankLink {
public:
    // Throws std::runtime_error where this attnc has no module, or it can't be loaded.
    explicit RankLink(const Installation& installation);
    RankLink(const RankLink&) = delete;
    RankLink& operator=(const RankLink&) = delete;

    int rank() const { return module_->rank; }
    int ranks() const { return module_->ranks; }
    void send(int to, const RankMessage& message) const;
    struct Received {
        int from = 0;
        RankMessage message;
    };
    std::optional<Received> receive() const;  // nothing has come
    void end(bool all_there) const { module_->end(all_there); }

private:
    const RankModule* module_;
};

// Whether the other side was silent for too long, in time that this process itself was running.
class Silence {
public:
    explicit Silence(double most_seconds);
    void heard() { silent_ = 0; }
    bool is_too_long();  // to be asked several times a second

private:
    double most_, silent_ = 0, last_;
};

}  // namespace attnc
