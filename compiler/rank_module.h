// What attnc's module for MPI has: messages between the ranks of one run. A module apart, loaded when it is asked for, so
// that the command itself doesn't depend on MPI.
#pragma once

#include <cstddef>

namespace attnc {

struct RankModule {
    int rank, ranks;
    // Bytes are copied; never waits for the other rank. To a rank that is gone they are lost.
    void (*send)(int to, const char* bytes, size_t size);
    // Whether a message has come: its sender and size. Never waits.
    bool (*arrived)(int* from, size_t* size);
    void (*take)(int from, char* bytes, size_t size);  // of a message that has arrived
    // What was sent leaves first. all_there: no rank is lost, so that the ranks may wait for one another.
    void (*end)(bool all_there);
};

// The module's one symbol. Starts MPI; null where that fails.
using RankModuleStart = const RankModule* (*)();
inline constexpr const char* kRankModuleStart = "attnc_rank_module";

}  // namespace attnc
