// What was measured, kept as it comes, so that a search that ended early goes on where it was: a line of JSON for each
// trial, on disk before the next one begins; and what the analysis of compiled loops said, which takes as long to make.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tuner/search.h"

namespace attnc {

// A line of a journal, without the line feed, and back. Throws std::runtime_error: "a ratio that is not above 0".
struct JournalEntry {
    std::string key;  // says all that the result depends on but for the machine's noise
    TrialResult result = {};
    std::optional<double> cycles = {};  // of the inner loops of a compiled kernel; there is no result then
};
std::string journal_line(const JournalEntry& entry);
JournalEntry parse_journal_line(const std::string& line);

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

    std::optional<TrialResult> find(const std::string& key) const;
    void add(const std::string& key, const TrialResult& result);  // throws std::runtime_error: a full disk

    std::optional<double> find_cycles(const std::string& key) const;
    void add_cycles(const std::string& key, double cycles);

    // The entry of another journal, unless there is one of this key. False: there is.
    bool take(const JournalEntry& entry);

    size_t size() const { return entries_.size(); }  // of trials and analyses
    // Lines of the entries whose keys begin so, for another journal.
    std::vector<std::string> lines(const std::string& key_begin) const;

private:
    void read(const std::string& bytes);
    void add(const JournalEntry& entry);

    std::filesystem::path path_;
    int file_ = -1;
    std::map<std::string, JournalEntry> entries_;
};

}  // namespace attnc
