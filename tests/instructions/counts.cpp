#include "tests/instructions/counts.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <stdexcept>

namespace attnc::test {
namespace {

// 2 %: more than a compiler's whims, less than a clock would notice.
bool is_close(int64_t found, int64_t stored) { return 50 * std::abs(found - stored) <= stored; }

std::string_view next_word(std::string_view& text) {
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    text.remove_prefix(std::min(text.find_first_not_of(' ', end), text.size()));
    return word;
}

int64_t number(std::string_view word, int line) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || error != std::errc() || end != word.data() + word.size() || value < 0)
        throw std::runtime_error(fmt::format("counts line {}: '{}' is not a number", line, word));
    return value;
}

bool is_call(std::string_view line) { return !line.empty() && line.front() != '#'; }

void for_each_line(std::string_view text, const std::function<void(std::string_view, int)>& use) {
    for (int line = 1; !text.empty(); ++line) {
        const size_t end = std::min(text.find('\n'), text.size());
        use(text.substr(0, end), line);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

}  // namespace

std::vector<Count> parse_counts(std::string_view text) {
    std::vector<Count> counts;
    for_each_line(text, [&](std::string_view line, int number_of_line) {
        if (!is_call(line)) return;
        Count count;
        count.kernels = number(next_word(line), number_of_line);
        count.runtime = number(next_word(line), number_of_line);
        count.call = line;
        if (count.call.empty())
            throw std::runtime_error(
                fmt::format("counts line {}: no call after the numbers", number_of_line));
        counts.push_back(count);
    });
    return counts;
}

std::string with_counts(std::string_view text, const std::vector<Count>& counts) {
    std::string result;
    size_t next = 0;
    for_each_line(text, [&](std::string_view line, int) {
        if (is_call(line)) {
            const Count& count = counts.at(next++);
            result += fmt::format("{:>11}{:>9}  {}\n", count.kernels, count.runtime, count.call);
        } else {
            result += fmt::format("{}\n", line);
        }
    });
    return result;
}

std::string complaint(const Count& stored, const Count& found, std::string_view update) {
    if (stored.all() == 0) return fmt::format("{} has no count yet; {} stores it", stored.call, update);
    if (is_close(found.all(), stored.all())) return "";
    const double change = static_cast<double>(found.all()) / static_cast<double>(stored.all()) - 1;
    const std::string numbers = fmt::format(
        "{} takes {} instructions ({} in kernels, {} in the runtime), stored are {} ({} and {}): {:.1f} % ",
        found.call, found.all(), found.kernels, found.runtime, stored.all(), stored.kernels, stored.runtime,
        100 * std::fabs(change));
    if (change > 0) return numbers + fmt::format("more; if that is meant, {} stores the new number", update);
    return numbers + fmt::format("less; {} stores the better number, so that it stays", update);
}

}  // namespace attnc::test
