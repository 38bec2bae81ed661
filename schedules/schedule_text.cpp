#include "schedules/schedule_text.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "stages/config.h"

namespace attnc {

namespace {

[[noreturn]] void fail(const std::string& text) { throw ConfigError(text); }

}  // namespace

std::string schedule_text(const ScheduleFields& fields) {
    std::string text;
    for (const auto& [name, value] : fields) {
        text += (text.empty() ? "" : ",") + name + ":" + std::to_string(*value);
    }
    return text;
}

void read_schedule_text(std::string_view text, const ScheduleFields& fields) {
    std::set<std::string_view> given;
    while (!text.empty()) {
        const size_t comma = text.find(',');
        const std::string_view part = text.substr(0, comma);
        text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
        if (comma != std::string_view::npos && text.empty()) fail("schedule ends in a comma");

        const size_t colon = part.find(':');
        const std::string_view name = part.substr(0, colon);
        if (colon == std::string_view::npos) {
            fail("schedule part '" + std::string(part) + "' is not of the form field:number");
        }
        const std::string_view digits = part.substr(colon + 1);
        int64_t value = 0;
        const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        const bool is_number = error == std::errc{} && stop == digits.data() + digits.size();

        const auto known = std::find_if(fields.begin(), fields.end(),
                                        [&](const auto& field) { return field.first == name; });
        if (known == fields.end()) fail("schedule field '" + std::string(name) + "' is unknown");
        if (!is_number)
            fail("schedule field " + std::string(name) + ": '" + std::string(digits) + "' is not a number");
        if (!given.insert(name).second) fail("schedule field " + std::string(name) + " is given twice");
        *known->second = value;
    }
}

}  // namespace attnc
