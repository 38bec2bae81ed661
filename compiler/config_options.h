// A layer's configuration on the command line: options, a problem string, or a model's own configuration file.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "stages/config.h"

namespace attnc {

struct ConfigOptions {
    std::string problem;
    Config config;
    bool no_in_proj = false;
    bool no_out_proj = false;
    bool no_masks = false;
    bool no_probs = false;
    std::string hf_config;
    std::string layer;
    bool no_cache = false;
    CLI::App* command = nullptr;
};

// The options write into `options`, which must outlive the parsing.
void add_config_options(CLI::App& command, ConfigOptions& options);

// The configuration that was asked for, completed. Throws UsageError if none or more than one is described.
Config chosen_config(const ConfigOptions& options);

}  // namespace attnc
