// How much is tried: by effort, which a record keeps too.
#pragma once

#include <string>

#include "tuner/search.h"

namespace attnc {

struct Effort {
    std::string name;      // one of kEfforts
    bool measures = true;  // false: the static estimate decides
    size_t first = 0;      // candidates that a part's search begins with
    size_t analysed =
        0;  // that are compiled for llvm-mca to choose those from; 0: the estimate alone chooses
    SearchOptions search;
    double part_seconds = -1;  // most time for a part; < 0: any
};

// Throws ConfigError for a name that is none.
Effort effort_by_name(const std::string& name);

// Seconds for each problem at a level of the search, the same for every effort: what one measured another finds in the
// journal.
double level_seconds(int level);
int64_t level_rounds(int level);  // at the least

// "90s", "10m", "1.5h", or seconds. Throws ConfigError.
double parse_duration(const std::string& text);
std::string duration_text(double seconds);  // "3:20", "1:05:00"

}  // namespace attnc
