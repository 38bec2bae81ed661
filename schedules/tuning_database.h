// A set of tuning records as text: one record a line, sorted, so that a change shows as few lines of a diff. What is
// kept of two records that stand for the same is decided here, the same whatever the order in which they come.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/tuning_record.h"

namespace attnc {

// "my.jsonl:3: layout.panel is missing".
struct DatabaseError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Whether every one of its sizes was timed.
bool is_measured(const TuningRecord& record);

// What a measured record's calls cost: their time in multiply-adds that the machine could have done meanwhile, so that
// a slow day doesn't count against it. Geometric mean over its sizes, in units of 1e9 operations. Lower is better.
double cost_of(const TuningRecord& record);

// A total order of the records that have one key. In this order of precedence: a measured one is better than one that
// isn't; that of a newer attnc (then Halide, then LLVM), since an older one's kernels are not what a build makes; the
// lower cost; the later date; the greater text.
bool is_better(const TuningRecord& record, const TuningRecord& than);

// At most one record of each key, in the order of keys.
class TuningDatabase {
public:
    enum class Added { kNew, kReplaced, kKept };  // kKept: the one that was there is as good or better
    Added add(TuningRecord record);

    bool erase(const std::string& key);  // false: there is none
    size_t size() const { return records_.size(); }
    std::vector<TuningRecord> records() const;
    std::string text() const;  // each line ends in a line feed

private:
    std::map<std::string, TuningRecord> records_;
};

// Texts of more bytes are refused unread.
inline constexpr size_t kLargestDatabase = size_t{64} << 20;

// All of it or, when it throws, nothing. `name` is the file's, for errors. Empty lines count for nothing; of lines with
// one key, which a merge of branches may leave, the best stays. Throws DatabaseError.
TuningDatabase parse_database(std::string_view text, const std::string& name);

}  // namespace attnc
