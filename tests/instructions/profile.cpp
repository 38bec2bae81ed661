#include "tests/instructions/profile.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace attnc::test {
namespace {

constexpr std::string_view kTrigger = "desc: Trigger: Client Request: ";
constexpr std::string_view kEvents = "events: ";

// "0 123" and "+3 123": a position, then the instructions there.
bool is_cost(std::string_view line) {
    return !line.empty() && (line.front() == '+' || line.front() == '-' || line.front() == '*' ||
                             (line.front() >= '0' && line.front() <= '9'));
}

int64_t cost(std::string_view line) {
    const size_t space = line.find(' ');
    int64_t value = 0;
    if (space != std::string_view::npos)
        std::from_chars(line.data() + space + 1, line.data() + line.size(), value);
    return value;
}

}  // namespace

Profile parse_profile(std::string_view text) {
    Profile profile;
    std::string object;
    bool events = false, is_callee = false;  // a line of what a callee took follows its calls=
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.starts_with(kTrigger)) {
            profile.trigger = line.substr(kTrigger.size());
        } else if (line.starts_with(kEvents)) {
            events = line.substr(kEvents.size()) == "Ir";
        } else if (line.starts_with("ob=")) {
            object = line.substr(line.rfind('/') + 1);
            if (line.find('/') == std::string_view::npos) object = line.substr(3);
        } else if (line.starts_with("calls=")) {
            is_callee = true;
        } else if (is_cost(line)) {
            if (!is_callee) profile.instructions[object] += cost(line);
            is_callee = false;
        }
    }
    if (!events) throw std::runtime_error("not a profile of instructions by callgrind");
    return profile;
}

}  // namespace attnc::test
