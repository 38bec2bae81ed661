// The layers that `attnc tune` was asked for, and where the search of each starts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "schedules/tuning_lookup.h"
#include "stages/config.h"

namespace attnc {

// What decides about a search, wherever it runs.
struct TuneOptions {
    std::vector<std::string> problems;
    std::string effort = "measure";
    std::string target;       // empty: the best of the machine
    std::string schedule;     // to start from: laid over the default; empty: what is looked up
    bool no_records = false;  // nothing is looked up: the default it is
    std::vector<std::string> kernels;
    int threads = 1;
    uint64_t seed = 1;
};

// A layer with the sizes that it is tuned for, together.
struct TunedLayer {
    Config config;
    std::vector<Sizes> sizes;
};
std::string name_of(const TunedLayer& layer);  // "d512_h8_f32 at b1_q128_kv128"

// In the order of their problem strings, which every shard agrees on. Throws UsageError, ConfigError.
std::vector<TunedLayer> layers_of(const std::vector<std::string>& problems);

// "2/3": the second of three parts of the list; empty: all of it. Throws UsageError.
std::vector<TunedLayer> shard_of(const std::vector<TunedLayer>& layers, const std::string& text);

// Throws UsageError for a name that is no kernel's of any of the layers.
void check_kernels(const std::vector<std::string>& kernels, const std::vector<TunedLayer>& layers);

// What a build on such a machine would find, in the database first. Throws what its files throw.
FoundSchedule look_up_layer(const TunedLayer& layer, const std::string& target, const Machine& machine,
                            const std::filesystem::path& database);

// The schedule that the search starts from, and in words where it is from.
struct TuneStart {
    CpuSchedule schedule;
    std::string origin;
};
TuneStart start_of(const TunedLayer& layer, const std::string& target, const Machine& machine,
                   const TuneOptions& options, const std::filesystem::path& database);

}  // namespace attnc
