// `attnc tune` for devices, of which none is there: the model's best schedules, as far as an assembler agrees, become records
// that say they are estimated.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "compiler/installation.h"
#include "compiler/tune_layers.h"

namespace attnc {

// Whether --target names devices: "cuda-sm_80,cuda".
bool names_devices(const std::string& targets);

struct DeviceTuneRequest {
    std::vector<TunedLayer> layers;
    TuneOptions options;  // with names of devices as its target
    std::filesystem::path database;
    std::filesystem::path cache;  // of kernels; empty: none is kept
    Installation installation;
    std::string version;  // of attnc
    std::function<void(const std::string& line)> say;
};

// Each layer for each of the devices' architectures, with a record for each. Throws UsageError and ConfigError for what
// can't be asked, Interrupted, and std::runtime_error where a schedule that is in use can't be compiled.
void tune_devices(const DeviceTuneRequest& request);

// Which record each would be built by. Throws where one has none.
void show_device_lookups(const DeviceTuneRequest& request);

}  // namespace attnc
