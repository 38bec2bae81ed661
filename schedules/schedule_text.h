// The text form of schedules: "field:number,field:number". One form and one parser for all kinds of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnc {

// Fields by name, in the order of the text.
using ScheduleFields = std::vector<std::pair<std::string, int64_t*>>;

std::string schedule_text(const ScheduleFields& fields);

// Overrides the fields that `text` names. Throws ConfigError for an unknown field, a field given twice, or a value that is
// no number.
void read_schedule_text(std::string_view text, const ScheduleFields& fields);

}  // namespace attnc
