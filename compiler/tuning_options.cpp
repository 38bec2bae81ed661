#include "compiler/tuning_options.h"

#include <filesystem>
#include <utility>

#include "compiler/machine.h"
#include "compiler/tuning_sources.h"

namespace attnc {

void add_tuning_options(CLI::App& command, TuningOptions& options) {
    CLI::Option* files = command.add_option("--db", options.databases,
                                            "Files of tuning records, asked before the project's "
                                            "attnc.tuning.jsonl and those that come with attnc");
    files->allow_extra_args(false);
    command
        .add_flag("--no-records", options.no_records,
                  "Ask no records: built-in default schedules, the same on every machine")
        ->excludes(files);
}

BuildTuning chosen_tuning(const TuningOptions& options, std::vector<Sizes> sizes) {
    BuildTuning tuning;
    tuning.sizes = std::move(sizes);
    tuning.machine = this_machine();
    if (options.no_records) return tuning;
    tuning.sources = tuning_sources(options.databases, std::filesystem::current_path(), own_installation());
    tuning.looked_up = true;
    return tuning;
}

std::vector<Sizes> sizes_or_grid(const std::string& text, const Config& config) {
    return text.empty() ? grid_sizes(config, own_installation()) : parse_sizes_list(text);
}

}  // namespace attnc
