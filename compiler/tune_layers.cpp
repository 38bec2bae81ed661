#include "compiler/tune_layers.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <set>

#include "compiler/command.h"
#include "compiler/installation.h"
#include "compiler/tuning_sources.h"
#include "schedules/search_space.h"
#include "schedules/tuning_record.h"

namespace attnc {

namespace fs = std::filesystem;

namespace {
constexpr const char* kDefaultOrigin = "built-in default";
}

std::string name_of(const TunedLayer& layer) {
    return fmt::format("{} at {}", to_string(layer.config), describe_sizes(layer.sizes));
}

std::vector<TunedLayer> layers_of(const std::vector<std::string>& problems) {
    if (problems.empty()) throw UsageError("problem is required");
    std::map<std::string, TunedLayer> layers;
    for (const std::string& text : problems) {
        if (text.find(':') == std::string::npos)
            throw UsageError(fmt::format("problem '{}' has no sizes: {}:b32_q50_kv50, say", text, text));
        const Problem problem = parse_problem(text);
        if (problem.sizes.batch == 0 || problem.sizes.seq_q == 0 || problem.sizes.seq_kv == 0)
            throw UsageError(fmt::format("problem '{}' has nothing to time", text));
        TunedLayer& layer = layers[to_string(problem.config)];
        layer.config = problem.config;
        layer.sizes.push_back(problem.sizes);
    }
    std::vector<TunedLayer> sorted;
    for (auto& [text, layer] : layers) {
        sort_sizes(layer.sizes);
        sorted.push_back(layer);
    }
    return sorted;
}

std::vector<TunedLayer> shard_of(const std::vector<TunedLayer>& layers, const std::string& text) {
    if (text.empty()) return layers;
    int64_t index = 0, count = 0;
    char more = 0;
    const int read = std::sscanf(text.c_str(), "%ld/%ld%c", &index, &count, &more);
    if (read != 2 || index < 1 || count < index || count > 1'000'000)
        throw UsageError(
            fmt::format("shard {} is not of the form 2/3, the second of three", in_quotes(text)));
    std::vector<TunedLayer> own;
    for (size_t i = static_cast<size_t>(index - 1); i < layers.size(); i += static_cast<size_t>(count))
        own.push_back(layers[i]);
    return own;
}

void check_kernels(const std::vector<std::string>& kernels, const std::vector<TunedLayer>& layers) {
    std::set<std::string> known;
    for (const TunedLayer& layer : layers) {
        for (const SearchPart& part : search_parts(layer.config)) known.insert(part.name);
    }
    for (const std::string& kernel : kernels) {
        if (known.contains(kernel)) continue;
        std::string names;
        for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
        throw UsageError(fmt::format("no kernel {} to tune: it is one of {}", in_quotes(kernel), names));
    }
}

FoundSchedule look_up_layer(const TunedLayer& layer, const std::string& target, const Machine& machine,
                            const fs::path& database) {
    std::vector<std::string> named;
    if (fs::exists(database)) named.push_back(database.string());
    return look_up({layer.config, target, layer.sizes, machine},
                   tuning_sources(named, fs::current_path(), own_installation()));
}

TuneStart start_of(const TunedLayer& layer, const std::string& target, const Machine& machine,
                   const TuneOptions& options, const fs::path& database) {
    if (options.no_records) return {default_schedule(layer.config, target), kDefaultOrigin};
    if (options.schedule.empty()) {
        const FoundSchedule found = look_up_layer(layer, target, machine, database);
        return {found.schedule,
                found.record ? fmt::format("record of {}: {}", found.file, describe_record(*found.record))
                             : std::string(kDefaultOrigin)};
    }
    const CpuSchedule start = parse_schedule(options.schedule, default_schedule(layer.config, target));
    check_schedule(start, layer.config, target);
    return {start, fmt::format("built-in default, then {}", options.schedule)};
}

}  // namespace attnc
