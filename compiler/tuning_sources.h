// Where the records of a build come from: files that were named, the project's own, those that come with attnc.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "compiler/installation.h"
#include "schedules/tuning_lookup.h"

namespace attnc {

inline constexpr const char* kProjectDatabase = "attnc.tuning.jsonl";

// The project's file for a command that runs in `folder`: there, or in a folder above it up to the root of its git
// repository. Outside of a repository only `folder` itself counts, so that nobody else's file is taken by surprise.
std::optional<std::filesystem::path> project_database(const std::filesystem::path& folder);

// The files of --db, the project's file, and the shipped ones, in the order of look_up. Throws as load_database does.
std::vector<RecordSource> tuning_sources(const std::vector<std::string>& databases,
                                         const std::filesystem::path& folder,
                                         const Installation& installation);

// The sizes at which the benchmark grid has this configuration, in ascending order; empty if it hasn't.
std::vector<Sizes> grid_sizes(const Config& config, const Installation& installation);

// "b32_q50_kv50,b1_q128_kv128" in ascending order. Throws ConfigError.
std::vector<Sizes> parse_sizes_list(const std::string& text);

}  // namespace attnc
