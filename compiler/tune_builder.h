// Makes candidates of the tuner ready to be loaded: kernels in workers, from the cache where they were compiled before,
// then joined and linked. Ahead of whoever measures, on the cores that are not measured on.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "compiler/kernel_workers.h"
#include "compiler/library_plan.h"
#include "compiler/tune_bench.h"

namespace attnc {

struct BuilderOptions {
    Config config;
    std::string target;
    Installation installation;
    std::filesystem::path cache;   // of kernels
    std::filesystem::path folder;  // for what is built
    std::vector<int> cpus;         // that threads build on; empty: the caller builds when it asks
    std::chrono::seconds time_limit{60};
    int64_t memory_mib = 4096;  // of a worker; Halide itself maps some hundred
};

class CandidateBuilder {
public:
    explicit CandidateBuilder(const BuilderOptions& options);
    CandidateBuilder(const CandidateBuilder&) = delete;
    CandidateBuilder& operator=(const CandidateBuilder&) = delete;
    ~CandidateBuilder();

    // Schedules to be built next, in this order; those of an earlier call that were not begun are forgotten.
    void prepare(const std::vector<CpuSchedule>& schedules);
    // Waits for it. Throws Interrupted, and std::runtime_error for what is not the schedule's fault.
    BuiltSchedule get(const CpuSchedule& schedule);
    // The same, on every core: while nothing is measured.
    BuiltSchedule get_alone(const CpuSchedule& schedule);

    const CompilerVersions& versions() const { return versions_; }
    size_t built() const;

private:
    struct Slot {
        bool done = false;
        BuiltSchedule built;
    };
    void work();
    BuiltSchedule build(const std::string& text, int jobs) const;
    void build_now(const std::string& text, int jobs);

    BuilderOptions options_;
    CompilerVersions versions_;
    mutable std::mutex mutex_;  // of what follows
    std::condition_variable changed_;
    std::map<std::string, Slot> slots_;  // by schedule text; a slot without an end is being built
    std::deque<std::string> queue_;
    std::exception_ptr failure_;
    bool ending_ = false;
    std::vector<std::jthread> threads_;
};

}  // namespace attnc
