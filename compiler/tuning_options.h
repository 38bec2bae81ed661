// The command-line options that say which tuning records a command's libraries are made by, the same for each command
// that builds.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "compiler/build.h"

namespace attnc {

struct TuningOptions {
    std::vector<std::string> databases;
    bool no_records = false;
};

// --db and --no-records. The options write into `options`, which must outlive the parsing.
void add_tuning_options(CLI::App& command, TuningOptions& options);

// What a build for this machine and these sizes looks up, in files as they are now.
BuildTuning chosen_tuning(const TuningOptions& options, std::vector<Sizes> sizes);

// The sizes in `text`, a list with commas; without a text, those at which the benchmark grid has the configuration.
std::vector<Sizes> sizes_or_grid(const std::string& text, const Config& config);

}  // namespace attnc
