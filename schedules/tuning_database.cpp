#include "schedules/tuning_database.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace attnc {

namespace {

// "21.0.0" to {21, 0, 0}: numbers are compared as numbers. What follows a number is left out.
std::vector<int64_t> version_numbers(const std::string& text) {
    constexpr int64_t kMost = 1'000'000'000;
    std::vector<int64_t> numbers = {0};
    for (const char c : text) {
        if (c == '.') {
            numbers.push_back(0);
        } else if (c >= '0' && c <= '9') {
            numbers.back() = std::min(numbers.back() * 10 + (c - '0'), kMost);
        } else {
            break;
        }
    }
    return numbers;
}

auto rank(const TuningRecord& record) {
    const bool measured = is_measured(record);
    return std::tuple(measured, version_numbers(record.attnc), version_numbers(record.halide),
                      version_numbers(record.llvm), measured ? -cost_of(record) : 0.0, record.date,
                      to_json_line(record));
}

}  // namespace

bool is_measured(const TuningRecord& record) { return record.calls.size() == record.sizes.size(); }

double cost_of(const TuningRecord& record) {
    double logs = 0;
    for (const auto& [sizes, call] : record.calls) logs += std::log(call.ms * call.probe_gflops / 1e3);
    return std::exp(logs / static_cast<double>(record.calls.size()));
}

bool is_better(const TuningRecord& record, const TuningRecord& than) { return rank(record) > rank(than); }

TuningDatabase::Added TuningDatabase::add(TuningRecord record) {
    std::string key = record_key(record);
    const auto found = records_.find(key);
    if (found == records_.end()) {
        records_.emplace(std::move(key), std::move(record));
        return Added::kNew;
    }
    if (!is_better(record, found->second)) return Added::kKept;
    found->second = std::move(record);
    return Added::kReplaced;
}

bool TuningDatabase::erase(const std::string& key) { return records_.erase(key) > 0; }

std::vector<TuningRecord> TuningDatabase::records() const {
    std::vector<TuningRecord> records;
    records.reserve(records_.size());
    for (const auto& [key, record] : records_) records.push_back(record);
    return records;
}

std::string TuningDatabase::text() const {
    std::string text;
    for (const auto& [key, record] : records_) text += to_json_line(record) + "\n";
    return text;
}

TuningDatabase parse_database(std::string_view text, const std::string& name) {
    if (text.size() > kLargestDatabase) {
        throw DatabaseError(
            fmt::format("{} has {} bytes, a database has at most {}", name, text.size(), kLargestDatabase));
    }
    TuningDatabase database;
    for (int line_number = 1; !text.empty(); ++line_number) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        try {
            database.add(parse_record(line));
        } catch (const RecordError& error) {
            throw DatabaseError(fmt::format("{}:{}: {}", name, line_number, error.what()));
        }
    }
    return database;
}

}  // namespace attnc
