// What was measured, kept as it comes, so that a search that ended early goes on where it was: a line of JSON for each
// trial, on disk before the next one begins.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "tuner/search.h"

namespace attnc {

class Journal {
public:
    // Without a file: nothing is kept.
    Journal() = default;
    // Makes the file if it isn't there. A last line without its end, as a killed process leaves it, is cut off. Any number
    // of processes may share a file. Throws std::runtime_error: "x.journal:3: REASON".
    explicit Journal(const std::filesystem::path& path);
    Journal(const Journal&) = delete;
    Journal& operator=(const Journal&) = delete;
    ~Journal();

    // `key` says all that the result depends on but for the machine's noise.
    std::optional<TrialResult> find(const std::string& key) const;
    void add(const std::string& key, const TrialResult& result);  // throws std::runtime_error: a full disk

    size_t size() const { return results_.size(); }

private:
    void read(const std::string& bytes);

    std::filesystem::path path_;
    int file_ = -1;
    std::map<std::string, TrialResult> results_;
};

}  // namespace attnc
