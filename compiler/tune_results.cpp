#include "compiler/tune_results.h"

#include <fmt/format.h>

#include <stdexcept>

#include "compiler/files.h"
#include "compiler/hash.h"
#include "schedules/tuning_database.h"

namespace attnc {

namespace {

constexpr std::string_view kFirstLine = "attnc tuning results 1";

std::string last_line_of(std::string_view before, size_t records) {
    return fmt::format("{} record{}, {}", records, records == 1 ? "" : "s", hash128_hex(before));
}

// Why a record that is complete is none that a runner writes.
std::string fault_of(const TuningRecord& record) {
    try {
        check_schedule(record.schedule, record.config, record.target);
    } catch (const ConfigError& error) {
        return error.what();
    }
    if (!is_measured(record)) return "not all of its sizes were timed";
    size_t kernels = 0;
    for (const int kernel : kernels_of(record.config)) {
        if (!has_kernel(record.schedule, kernel)) continue;
        ++kernels;
        if (!record.kernels.contains(kernel_name(kernel)))
            return fmt::format("kernels.{} is missing", kernel_name(kernel));
    }
    if (kernels != record.kernels.size()) return "it has kernels that its schedule does without";
    return "";
}

}  // namespace

std::string results_text(const std::vector<TuningRecord>& records) {
    std::string text = std::string(kFirstLine) + "\n";
    for (const TuningRecord& record : records) text += to_json_line(record) + "\n";
    return text + last_line_of(text, records.size()) + "\n";
}

std::vector<TuningRecord> parse_results(std::string_view text, const std::string& name) {
    const auto fail = [&](size_t line, const std::string& reason) {
        throw std::runtime_error(fmt::format("{}:{}: {}", name, line, reason));
    };
    if (!text.starts_with(std::string(kFirstLine) + "\n")) fail(1, "not what a runner of attnc writes");
    std::vector<TuningRecord> records;
    size_t line = 1, begin = kFirstLine.size() + 1;
    for (;;) {
        ++line;
        const size_t end = text.find('\n', begin);
        if (end == std::string_view::npos) fail(line, "it ends early");
        const std::string_view content = text.substr(begin, end - begin);
        if (!content.starts_with('{')) {
            if (content != last_line_of(text.substr(0, begin), records.size()))
                fail(line, "it was changed after the runner wrote it");
            if (end + 1 != text.size()) fail(line + 1, "there is more behind the last line");
            return records;
        }
        try {
            records.push_back(parse_record(content));
        } catch (const RecordError& error) {
            fail(line, error.what());
        }
        if (const std::string fault = fault_of(records.back()); !fault.empty()) fail(line, fault);
        begin = end + 1;
    }
}

std::vector<TuningRecord> load_results(const std::filesystem::path& path) {
    std::error_code error;
    if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
        throw std::runtime_error(fmt::format("cannot read {}: it is not a plain file", path.string()));
    if (const auto bytes = std::filesystem::file_size(path, error); !error && bytes > kLargestDatabase) {
        throw std::runtime_error(fmt::format("cannot read {}: it has {} bytes, results have at most {}",
                                             path.string(), bytes, kLargestDatabase));
    }
    return parse_results(read_file(path), path.string());
}

}  // namespace attnc
