#include "compiler/tune_efforts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "stages/config.h"

namespace attnc {

namespace {

constexpr std::array<double, 3> kLevelSeconds = {0.06, 0.25, 1.0};
constexpr std::array<int64_t, 3> kLevelRounds = {9, 21, 61};
constexpr double kLongestDuration = 1e9;

}  // namespace

Effort effort_by_name(const std::string& name) {
    if (name == "estimate") return {.name = name, .measures = false, .first = 1, .analysed = 6, .search = {}};
    if (name == "quick") {
        return {.name = name, .first = 18, .search = {.most_moves = 8, .most_rounds = 3}, .part_seconds = 60};
    }
    if (name == "measure") {
        return {.name = name,
                .first = 48,
                .analysed = 72,
                .search = {.most_moves = 16, .most_rounds = 6},
                .part_seconds = 600};
    }
    if (name == "patient")
        return {.name = name, .first = 200, .analysed = 300, .search = {.most_moves = 48, .most_rounds = 16}};
    throw ConfigError(
        fmt::format("effort {} is not one of estimate, quick, measure, patient", in_quotes(name)));
}

double level_seconds(int level) { return kLevelSeconds.at(static_cast<size_t>(level)); }
int64_t level_rounds(int level) { return kLevelRounds.at(static_cast<size_t>(level)); }

double parse_duration(const std::string& text) {
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string unit(stop, text.data() + text.size());
    const double factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
    const double seconds = value * factor;
    if (error != std::errc{} || factor == 0 || !std::isfinite(seconds) || seconds <= 0 ||
        seconds > kLongestDuration)
        throw ConfigError(fmt::format("time {} is not of the form 90s, 10m or 1.5h", in_quotes(text)));
    return seconds;
}

std::string duration_text(double seconds) {
    const auto whole = static_cast<int64_t>(std::max(seconds, 0.0));
    if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace attnc
