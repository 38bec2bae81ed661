// `attnc tune --random` and `--detuned`: controls of layers on this machine.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compiler/tune_control_report.h"
#include "compiler/tune_layers.h"

namespace attnc {

struct ControlHere {
    std::vector<TunedLayer> layers;
    TuneOptions options;
    Effort effort;
    size_t random = 0;                   // points of each part; 0: a search from a detuned start
    std::filesystem::path database;      // what builds take is looked up there first
    std::filesystem::path journal;       // of the points; empty: none
    std::filesystem::path kernel_cache;  // empty: none
};

// Says on stdout what it does. Throws what the files and `run_control` throw.
ControlReport control_here(const ControlHere& setup, Deadline& deadline);

}  // namespace attnc
