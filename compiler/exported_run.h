// What an exported runner carries beside its kernels: the layers to tune, the candidates of each part, and which linked
// kernel stands for which piece of a schedule. As JSON inside the runner.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/kernel_job.h"
#include "runtime/attnc.h"
#include "stages/config.h"

namespace attnc {

struct ExportedKernel {
    int64_t library = 0;  // of the runner's list, in whose table it is
    std::string object_hash;
};

struct ExportedLayer {
    std::string config;  // "d512_h8_f32"
    std::vector<std::string> sizes;
    std::string start, origin;  // schedule, and in words where it is from
    // By kernel and the part of a schedule that it is made by: "attend" and to_string(schedule, kernel).
    std::map<std::string, std::map<std::string, ExportedKernel>> kernels;
    // By part, the most promising first: whole schedules, of which the part's fields count.
    std::map<std::string, std::vector<std::string>> candidates;
};

struct ExportedRun {
    std::string attnc;  // version
    CompilerVersions versions;
    std::string target, effort;
    int threads = 1;
    double time_limit = -1;           // seconds for all of it; < 0: any
    std::vector<std::string> wanted;  // parts that are tuned; empty: all
    std::vector<ExportedLayer> layers;
};
std::string to_json(const ExportedRun& run);
ExportedRun parse_exported_run(const std::string& json);  // throws std::runtime_error

// What a runner is linked with. The libraries' tables have all kernels that were not in an earlier one; the first of a layer
// is the whole start.
struct ExportedData {
    const char* description;  // JSON, zero-terminated
    const attnc_library* const* libraries;
    int64_t library_count;
};
extern "C" const ExportedData attnc_exported;

}  // namespace attnc
