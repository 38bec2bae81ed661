// The module for MPI. Nothing here waits inside of MPI, which would keep a core busy that something is measured on; and
// errors are returned, so that a rank that is gone is not the end of the others.
#include <mpi.h>

#include <chrono>
#include <list>
#include <string>
#include <thread>

#include "compiler/rank_module.h"

namespace {

constexpr int kTag = 1;
constexpr std::chrono::seconds kLongestFlush{5};

struct Sent {
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
};
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): an empty list
std::list<Sent> under_way;

void forget_what_left() {
    under_way.remove_if([](Sent& sent) {
        int left = 0;
        return MPI_Test(&sent.request, &left, MPI_STATUS_IGNORE) != MPI_SUCCESS || left != 0;
    });
}

void send(int to, const char* bytes, size_t size) {
    forget_what_left();
    Sent& sent = under_way.emplace_back();
    sent.bytes.assign(bytes, size);
    const int error = MPI_Isend(sent.bytes.data(), static_cast<int>(size), MPI_BYTE, to, kTag, MPI_COMM_WORLD,
                                &sent.request);
    if (error != MPI_SUCCESS) under_way.pop_back();
}

bool arrived(int* from, size_t* size) {
    forget_what_left();
    int there = 0, count = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &there, &status) != MPI_SUCCESS || there == 0)
        return false;
    MPI_Get_count(&status, MPI_BYTE, &count);
    *from = status.MPI_SOURCE;
    *size = static_cast<size_t>(count);
    return true;
}

void take(int from, char* bytes, size_t size) {
    MPI_Recv(bytes, static_cast<int>(size), MPI_BYTE, from, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void end(bool all_there) {
    const auto begin = std::chrono::steady_clock::now();
    while (!under_way.empty() && std::chrono::steady_clock::now() - begin < kLongestFlush) {
        forget_what_left();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (all_there) MPI_Finalize();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const attnc::RankModule* attnc_rank_module() {
    static attnc::RankModule module = {0, 0, send, arrived, take, end};
    if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS) return nullptr;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &module.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &module.ranks);
    return &module;
}
