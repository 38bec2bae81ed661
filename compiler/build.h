// From a configuration to a library: the steps of `attnc build`, callable from the other subcommands and from tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "compiler/installation.h"
#include "schedules/tuning_lookup.h"
#include "stages/config.h"

namespace attnc {

// What schedules are chosen by, in builds that give none of their own.
struct BuildTuning {
    bool looked_up = false;             // false: built-in defaults
    std::vector<RecordSource> sources;  // of records, in the order of look_up
    Machine machine;                    // that the library is for
    std::vector<Sizes> sizes;           // that it is for; empty: any. The manifest has them in either case
};

struct BuildRequest {
    Config config;                       // as given; build_library completes and validates it
    std::string name;                    // C identifier; empty: default_library_name(config)
    std::vector<std::string> targets;    // as choose_targets takes them; empty: the usual CPU set
    BuildTuning tuning;                  // where schedules come from
    std::string schedule;                // or: text laid over each CPU's default; nothing is looked up then
    std::string cuda_schedule;           // text laid over the device's default
    std::filesystem::path output;        // folder for the files; made if it isn't there
    std::filesystem::path kernel_cache;  // folder with compiled kernels to take from and add to; empty: none
    Installation installation;           // of attnc; installation_of(path of the command)
    int jobs = 0;                        // worker processes at a time; 0: one per CPU this process may use
    bool checked = false;                // for tests of the runtime: CPU kernels check what it gives them
    bool emit_assembly = false;          // also DIR/<name>.<kernel>.<target>.s, and .ptx
    bool emit_stmt = false;              // .stmt: Halide's lowered statements
    bool emit_llvm = false;              // .ll
    // Called from the building threads, one at a time: kernels done and in all. May be empty.
    std::function<void(int done, int all)> progress;
};

struct BuildResult {
    std::string name;                          // of the library
    std::filesystem::path archive;             // output/lib<name>.a
    std::filesystem::path header;              // output/<name>.h
    std::filesystem::path manifest;            // output/<name>.json
    std::vector<std::filesystem::path> files;  // everything written, these included
    int kernels_compiled = 0;                  // the others came from the kernel cache
    int kernels_cached = 0;
};

// Writes the library's files. Either all are there afterwards or, when it throws, none of this build's: they are
// written to a hidden folder inside `output` first. Equal requests give byte-identical files, whatever the folders and
// jobs. Throws ConfigError (wrong request), Interrupted, or std::runtime_error (anything that failed), in one line.
BuildResult build_library(const BuildRequest& request);

// "attnc_" and the problem string.
// attnc_ and the problem string; where that is too long for a name, its first words and a hash.
std::string default_library_name(const Config& config);

}  // namespace attnc
