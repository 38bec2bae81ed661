// The candidates that a part's search begins with: by the static estimate, and where there is time by llvm-mca on their
// compiled inner loops.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "compiler/kernel_workers.h"
#include "compiler/tune_parts.h"
#include "tuner/journal.h"
#include "tuner/static_estimate.h"

namespace attnc {

struct FirstRequest {
    const TunedPart& part;
    const SearchSpace& space;
    const Config& config;
    std::string target;
    CacheSizes caches;
    size_t count = 0;     // wanted
    size_t analysed = 0;  // compiled to choose from; at most count: nothing is compiled
    uint64_t seed = 1;
    const CompilerVersions& versions;
    Journal* journal = nullptr;   // keeps what was analysed; null: nobody does
    WorkerOptions workers;        // jobs: so many are compiled at a time
    std::function<bool()> ended;  // no time for more
};

// The most promising first. Candidates that can't be compiled come last. Throws Interrupted.
std::vector<SearchPoint> choose_first(const FirstRequest& request);

}  // namespace attnc
