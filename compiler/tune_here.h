// The bench of a machine that compiles what it measures: kernels in workers, measurements in processes of their own.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "compiler/installation.h"
#include "compiler/tune_bench.h"
#include "compiler/tune_efforts.h"
#include "schedules/tuning_record.h"

namespace attnc {

struct BenchHere {
    Config config;  // complete
    std::string target;
    int threads = 1;  // of a measured call
    Machine machine;
    Effort effort;
    uint64_t seed = 1;           // of what is drawn
    Journal* journal = nullptr;  // keeps what was analysed; outlives the bench; null: nobody does
    Installation installation;
    std::filesystem::path cache;   // of kernels
    std::filesystem::path folder;  // for what is built; outlives the bench
};
TuneBench bench_here(const BenchHere& setup);

// What a measurement's own process does: loads the two shared objects that the request names, and measures them.
MeasureAnswer measure_here(const MeasureRequest& request);

}  // namespace attnc
