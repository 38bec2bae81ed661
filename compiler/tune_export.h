// Tuning for a machine that is not this one: the candidates of each part are compiled here and linked into a runner, which
// searches among them there.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "compiler/exported_run.h"
#include "compiler/installation.h"
#include "compiler/tune_efforts.h"

namespace attnc {

// A layer, with the sizes that it is tuned for together.
struct ExportLayer {
    Config config;  // complete
    std::vector<Sizes> sizes;
    CpuSchedule start;
    std::string origin;
};

struct ExportRequest {
    std::vector<ExportLayer> layers;
    std::string target;
    int threads = 1;
    Effort effort;                     // how many candidates; what of them is measured for how long
    double time_limit = -1;            // of the runner, seconds; < 0: any
    std::vector<std::string> kernels;  // parts that are tuned; empty: all
    uint64_t seed = 1;
    std::string version;  // of attnc
    Installation installation;
    std::filesystem::path cache;                  // of kernels; empty: none
    std::filesystem::path folder;                 // that the runner is written to; made if it isn't there
    std::function<void(const std::string&)> say;  // a line for people
};

// The runner's path. Candidates that can't be compiled are left out. Throws std::runtime_error, Interrupted.
std::filesystem::path export_runner(const ExportRequest& request);

}  // namespace attnc
