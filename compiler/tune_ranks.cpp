#include "compiler/tune_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "compiler/database_file.h"
#include "compiler/interrupt.h"

namespace attnc {

namespace {

constexpr std::chrono::milliseconds kPause{20};  // between two looks for messages
constexpr double kBeatSeconds = 1;
constexpr double kFirstSeconds = 60;  // until a rank has spoken
// A rank beats even while its layer is measured: only one that is gone or stopped is silent for so long.
constexpr double kSilentSeconds = 15;
constexpr double kLongestEnd = 10;

using Kind = RankMessage::Kind;

struct NoMessage : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Rank 0's side.
class Coordinator {
public:
    Coordinator(RankLink& link, const RanksRequest& request, Journal& journal, Deadline& deadline)
        : link_(link),
          request_(request),
          journal_(journal),
          deadline_(deadline),
          hand_out_(request.works.size(), static_cast<size_t>(request.threads)) {
        for (int rank = 1; rank < link.ranks(); ++rank) silence_.emplace(rank, Silence(kFirstSeconds));
    }

    std::vector<std::string> run();

private:
    void take(int rank, const RankMessage& message);
    void greet(int rank, const RankMessage& message);
    void take_trials(int rank, const RankMessage& message);
    void take_records(const RankMessage& message);
    void end_work(int rank, const RankMessage& message);
    void lose(int rank, const std::string& what);
    void beat();
    void hand_out();
    void give(int rank, const HandOut::Assignment& assignment);
    bool all_have_spoken() const;
    double time_share();
    void end();
    const std::string& name_of(size_t work) const { return request_.works[work].name; }

    RankLink& link_;
    const RanksRequest& request_;
    Journal& journal_;
    Deadline& deadline_;
    HandOut hand_out_;
    std::map<int, Silence> silence_;     // of those that are not lost
    std::map<int, RankMessage> hellos_;  // of those that spoke
    std::set<int> working_;              // that take part
    // Where this run's trials were made: a layer that moves to another host begins anew, lest a decision rest on times of both.
    std::map<std::string, std::string> trial_hosts_;
    std::vector<std::string> failures_;
    double last_beat_ = 0;
    bool all_there_ = true, begun_ = false;
};

void Coordinator::greet(int rank, const RankMessage& message) {
    hellos_[rank] = message;
    std::string refusal = message.text;
    if (refusal.empty() && message.versions != request_.versions)
        refusal = fmt::format("its attnc is {}, that of rank 0 is {}", message.versions, request_.versions);
    if (!refusal.empty()) {
        request_.say(fmt::format("rank {} on {} takes no part: {}", rank, message.host, refusal));
        return;
    }
    request_.say(fmt::format("rank {} on {}: {}, {}, {} core{}", rank, message.host, message.machine.cpu,
                             message.target, message.cores.size(), message.cores.size() == 1 ? "" : "s"));
    hand_out_.join(rank, message.host, message.cores);
    working_.insert(rank);
}

// Lines that are none are their sender's fault; a disk that is full is everybody's.
void Coordinator::take_trials(int rank, const RankMessage& message) {
    std::vector<JournalEntry> entries;
    entries.reserve(message.lines.size());
    try {
        for (const std::string& line : message.lines) entries.push_back(parse_journal_line(line));
    } catch (const std::exception& error) {
        throw NoMessage(fmt::format("a trial that is none: {}", error.what()));
    }
    for (const JournalEntry& entry : entries) {
        // What an analysis says of code holds on every host.
        if (journal_.take(entry) && !entry.cycles) trial_hosts_[entry.key] = hellos_.at(rank).host;
    }
}

void Coordinator::take_records(const RankMessage& message) {
    std::vector<TuningRecord> records;
    records.reserve(message.lines.size());
    try {
        for (const std::string& line : message.lines) records.push_back(parse_record(line));
    } catch (const RecordError& error) {
        throw NoMessage(fmt::format("a record that is none: {}", error.what()));
    }
    add_records(request_.database, records);
}

// Of a rank that was taken for lost meanwhile, trials and records count, and its work is another's.
void Coordinator::end_work(int rank, const RankMessage& message) {
    const std::optional<size_t> work = hand_out_.work_of(rank);
    if (!work || static_cast<int64_t>(*work) != message.work) return;
    const std::string who = fmt::format("rank {} on {}", rank, hellos_.at(rank).host);
    if (message.kind == Kind::kLost) {
        request_.say(fmt::format("{} lost {}: {}", who, name_of(*work), message.text));
        if (!hand_out_.give_back(rank))
            failures_.push_back(fmt::format("{}: lost {} times, the last time on {}: {}", name_of(*work),
                                            HandOut::kMostAttempts, who, message.text));
        return;
    }
    hand_out_.done(rank);
    if (message.kind == Kind::kFailed) {
        failures_.push_back(fmt::format("{}: {}", name_of(*work), message.text));
        request_.say(fmt::format("{} failed at {}", who, failures_.back()));
        return;
    }
    std::string said = message.text;
    while (said.ends_with('\n')) said.pop_back();
    request_.say(fmt::format("{} is done:\n{}", who, said));
}

void Coordinator::lose(int rank, const std::string& what) {
    silence_.erase(rank);
    all_there_ = false;
    const std::optional<size_t> work = hand_out_.work_of(rank);
    request_.say(fmt::format("rank {} is lost: {}{}", rank, what,
                             work ? fmt::format(", and {} goes to another", name_of(*work)) : ""));
    if (working_.erase(rank) == 0) return;
    if (!hand_out_.leave(rank))
        failures_.push_back(fmt::format("{}: lost {} times, the last time with its rank", name_of(*work),
                                        HandOut::kMostAttempts));
}

// A message that is none is its sender's end, and nobody else's.
void Coordinator::take(int rank, const RankMessage& message) {
    if (const auto at = silence_.find(rank); at != silence_.end()) at->second = Silence(kSilentSeconds);
    try {
        if (message.kind == Kind::kHello && !hellos_.contains(rank)) greet(rank, message);
        if (message.kind == Kind::kTrials && hellos_.contains(rank)) take_trials(rank, message);
        if (message.kind == Kind::kRecords) take_records(message);
        if (message.kind == Kind::kDamaged) throw NoMessage(message.text);
    } catch (const NoMessage& error) {
        if (silence_.contains(rank)) lose(rank, fmt::format("it sent what is no message ({})", error.what()));
    }
    if (message.kind == Kind::kDone || message.kind == Kind::kLost || message.kind == Kind::kFailed)
        end_work(rank, message);
}

void Coordinator::beat() {
    const double now = steady_seconds();
    if (now - last_beat_ < kBeatSeconds) return;
    last_beat_ = now;
    for (const auto& [rank, silence] : silence_) link_.send(rank, {});
}

// Before any work is given away it has to be known who shares a host with whom.
bool Coordinator::all_have_spoken() const {
    return std::all_of(silence_.begin(), silence_.end(),
                       [&](const auto& rank) { return hellos_.contains(rank.first); });
}

// As each of the ranks has as many of the works that are left to do.
double Coordinator::time_share() {
    const auto ranks = static_cast<double>(std::max<size_t>(hand_out_.ranks(), 1));
    return deadline_.left() / std::ceil(static_cast<double>(hand_out_.left()) / ranks);
}

void Coordinator::give(int rank, const HandOut::Assignment& assignment) {
    const RankMessage& hello = hellos_.at(rank);
    const RankWork& work = request_.works[assignment.work];
    const RankWork::Start start = work.start(hello.target, hello.machine);
    RankMessage message;
    message.kind = Kind::kWork;
    message.work = static_cast<int64_t>(assignment.work);
    message.cores = {assignment.cpus};
    message.arguments = start.arguments;
    for (const std::string& begin : work.journal_keys) {
        const std::vector<std::string> lines = journal_.lines(begin);
        message.lines.insert(message.lines.end(), lines.begin(), lines.end());
    }
    std::erase_if(message.lines, [&](const std::string& line) {
        const auto made_on = trial_hosts_.find(parse_journal_line(line).key);
        return made_on != trial_hosts_.end() && made_on->second != hello.host;
    });
    if (const double seconds = time_share(); std::isfinite(seconds)) {
        message.arguments.emplace_back("--time-limit");
        message.arguments.push_back(fmt::format("{:.1f}s", std::max(seconds, 0.1)));
    }
    link_.send(rank, message);
    request_.say(fmt::format("rank {} on {} begins with {} on cpu {}, from {}", rank, hello.host, work.name,
                             fmt::join(assignment.cpus, ", "), start.origin));
}

void Coordinator::hand_out() {
    begun_ = begun_ || all_have_spoken();
    if (!begun_) return;
    for (const int rank : working_) {
        if (const auto assignment = hand_out_.next(rank)) give(rank, *assignment);
    }
}

std::vector<std::string> Coordinator::run() {
    while (hand_out_.left() > 0) {
        check_interrupt();
        while (const auto received = link_.receive()) take(received->from, received->message);
        beat();
        std::vector<int> silent;
        for (auto& [rank, silence] : silence_) {
            if (silence.is_too_long()) silent.push_back(rank);
        }
        for (const int rank : silent) lose(rank, fmt::format("silent for {} s", kSilentSeconds));
        hand_out();
        if (begun_ && working_.empty()) {
            failures_.push_back(fmt::format("{} of {} layers are not tuned: no rank is left to do it",
                                            hand_out_.left(), request_.works.size()));
            break;
        }
        std::this_thread::sleep_for(kPause);
    }
    end();
    return failures_;
}

// What is sent to a rank leaves with this process only if that rank looks for it meanwhile: each answers.
void Coordinator::end() {
    RankMessage enough;
    enough.kind = Kind::kEnd, enough.all_there = all_there_;
    for (int rank = 1; rank < link_.ranks(); ++rank)
        link_.send(rank, enough);  // one that is lost may be alive
    const double begin = steady_seconds();
    while (!silence_.empty() && steady_seconds() - begin < kLongestEnd) {
        while (const auto received = link_.receive()) {
            if (received->message.kind == Kind::kEnd) silence_.erase(received->from);
        }
        std::this_thread::sleep_for(kPause);
    }
    link_.end(all_there_ && silence_.empty());
}

}  // namespace

std::vector<std::string> hand_out_works(RankLink& link, const RanksRequest& request, Journal& journal,
                                        Deadline& deadline) {
    return Coordinator(link, request, journal, deadline).run();
}

}  // namespace attnc
