// The file that an exported runner leaves, to be brought back: a line that says what it is, a tuning record a line, and a
// last line by which a file that was cut or changed on its way is told.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/tuning_record.h"

namespace attnc {

std::string results_text(const std::vector<TuningRecord>& records);

// Of any text: all of it is right or it is refused. Each record's schedule is one that builds here accept, each of its kernels
// and sizes was measured. Throws std::runtime_error: "results.txt:3: date is missing".
std::vector<TuningRecord> parse_results(std::string_view text, const std::string& name);
std::vector<TuningRecord> load_results(const std::filesystem::path& path);

}  // namespace attnc
