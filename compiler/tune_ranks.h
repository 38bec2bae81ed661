// Tunes layers on the ranks of an MPI run. Rank 0 owns the database and the journal, hands out layers and measures nothing;
// every other rank runs `attnc tune` on one layer after another, in a process of its own that may die.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "compiler/rank_link.h"
#include "tuner/journal.h"
#include "tuner/run_search.h"

namespace attnc {

// What is handed out: a layer. Its parts follow one another and its record speaks of one machine, so that no decision
// rests on times of two.
struct RankWork {
    std::string name;                       // for people
    std::vector<std::string> journal_keys;  // how keys of its trials begin
    // As the rank's machine and instruction set ask for it.
    struct Start {
        std::vector<std::string> arguments;  // of `attnc tune`, but for files and time
        std::string origin;                  // of the schedule among them, for people
    };
    std::function<Start(const std::string& target, const Machine& machine)> start;
};

struct RanksRequest {
    std::vector<RankWork> works;
    int threads = 1;       // of a measured call
    std::string versions;  // that every rank must have
    std::filesystem::path database;
    std::function<void(const std::string&)> say;  // a line for people
};

// On rank 0. Returns why works are not done, a line each; empty: all are. Throws what a journal or a database that can't be
// written throws, and Interrupted.
std::vector<std::string> hand_out_works(RankLink& link, const RanksRequest& request, Journal& journal,
                                        Deadline& deadline);

struct WorkerSetup {
    std::string target;    // that was asked for; empty: the best that the machine runs
    std::string versions;  // of this attnc
    std::filesystem::path command, kernel_cache;
};

// On another rank, until rank 0 says that it is enough. Throws std::runtime_error if rank 0 is gone, and Interrupted.
void work_for_ranks(RankLink& link, const WorkerSetup& setup);

}  // namespace attnc
