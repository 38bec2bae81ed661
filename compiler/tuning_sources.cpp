#include "compiler/tuning_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "compiler/database_file.h"
#include "compiler/files.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

// Files of a kind in a folder, by name; none if there is no such folder.
std::vector<fs::path> files_in(const fs::path& folder, std::string_view extension) {
    std::vector<fs::path> files;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none)) {
        if (entry.path().extension() == extension) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
}

RecordSource source_of(RecordOrigin origin, const fs::path& file) {
    return {.origin = origin, .file = file.filename().string(), .records = load_database(file).records()};
}

}  // namespace

std::optional<fs::path> project_database(const fs::path& folder) {
    std::error_code none;
    const auto file_in = [&](const fs::path& place) -> std::optional<fs::path> {
        fs::path file = place / kProjectDatabase;
        if (fs::exists(file, none)) return file;
        return std::nullopt;
    };
    if (auto file = file_in(folder)) return file;
    fs::path root = folder;
    while (!fs::exists(root / ".git", none)) {
        if (root == root.parent_path()) return std::nullopt;
        root = root.parent_path();
    }
    for (fs::path place = folder; place != root;) {
        place = place.parent_path();
        if (auto file = file_in(place)) return file;
    }
    return std::nullopt;
}

std::vector<RecordSource> tuning_sources(const std::vector<std::string>& databases, const fs::path& folder,
                                         const Installation& installation) {
    std::vector<RecordSource> sources;
    sources.reserve(databases.size() + 1);
    for (const std::string& file : databases) sources.push_back(source_of(RecordOrigin::kOption, file));
    if (const auto file = project_database(folder)) {
        sources.push_back(source_of(RecordOrigin::kProject, *file));
    }
    for (const fs::path& file : files_in(installation.records_folder, ".jsonl")) {
        sources.push_back(source_of(RecordOrigin::kShipped, file));
    }
    return sources;
}

std::vector<Sizes> grid_sizes(const Config& config, const Installation& installation) {
    std::vector<Sizes> sizes;
    for (const fs::path& file : files_in(installation.shapes_folder, ".txt")) {
        std::istringstream lines(read_file(file));
        for (std::string line, problem; std::getline(lines, line);) {
            std::istringstream words(line);
            if (!(words >> problem) || problem.starts_with('#')) continue;
            try {
                const Problem parsed = parse_problem(problem);
                if (parsed.config == config) sizes.push_back(parsed.sizes);
            } catch (const ConfigError& error) {
                throw std::runtime_error(fmt::format("{}: {}", file.string(), error.what()));
            }
        }
    }
    sort_sizes(sizes);
    return sizes;
}

std::vector<Sizes> parse_sizes_list(const std::string& text) {
    std::vector<Sizes> sizes;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
        sizes.push_back(parse_sizes(part));
        if (sizes.back().batch == 0 || sizes.back().seq_q == 0)
            throw ConfigError(fmt::format("sizes '{}' have no rows", part));
    }
    if (sizes.empty()) throw ConfigError("sizes '' are not of the form b<batch>_q<seq_q>_kv<seq_kv>");
    sort_sizes(sizes);
    return sizes;
}

}  // namespace attnc
