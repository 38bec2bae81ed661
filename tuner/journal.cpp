#include "tuner/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace attnc {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRatio = "a ratio";
constexpr off_t kMostBytes = off_t{1} << 30;

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
    throw std::runtime_error(fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(errno)));
}

// Held while the file is read, mended or written.
class Locked {
public:
    explicit Locked(int file) : file_(file) {
        while (::flock(file, LOCK_EX) != 0 && errno == EINTR) {
        }
    }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    ~Locked() { ::flock(file_, LOCK_UN); }

private:
    int file_;
};

// JSON has no infinity: an interval without an end has none.
Json to_json(const TrialResult& result) {
    if (!result.fault.empty()) return {{"fault", result.fault}};
    Json json = {{"ratio", result.ratio.median}, {"samples", result.ratio.samples}};
    if (result.ratio.low > 0) json["low"] = result.ratio.low;
    if (std::isfinite(result.ratio.high)) json["high"] = result.ratio.high;
    const auto time = [](const CallTime& call) { return Json{call.seconds, call.spread, call.peak}; };
    if (result.candidate.seconds > 0) json["candidate"] = time(result.candidate);
    if (result.incumbent.seconds > 0) json["incumbent"] = time(result.incumbent);
    if (!result.layer.empty()) json["layer"] = result.layer;
    return json;
}

CallTime call_time(const Json& json, const char* name) {
    if (!json.contains(name)) return {};
    const auto numbers = json.at(name).get<std::vector<double>>();
    const bool sound = numbers.size() == 3 && numbers[0] > 0 && numbers[1] >= 0 && numbers[2] >= 0;
    if (!sound || !std::isfinite(numbers[0] + numbers[1] + numbers[2]))
        throw std::runtime_error("a time that is none");
    return {numbers[0], numbers[1], numbers[2]};
}

double positive(const Json& value, const char* what) {
    const double number = value.get<double>();
    if (!std::isfinite(number) || number <= 0)
        throw std::runtime_error(fmt::format("{} that is not above 0", what));
    return number;
}

TrialResult from_json(const Json& json) {
    TrialResult result;
    if (json.contains("fault")) {
        result.fault = json.at("fault").get<std::string>();
        if (result.fault.empty()) throw std::runtime_error("an empty fault");
        return result;
    }
    result.ratio.median = positive(json.at("ratio"), kRatio);
    result.ratio.samples = json.at("samples").get<int64_t>();
    result.ratio.low = json.contains("low") ? positive(json.at("low"), kRatio) : 0;
    result.ratio.high =
        json.contains("high") ? positive(json.at("high"), kRatio) : std::numeric_limits<double>::infinity();
    if (result.ratio.samples < 1) throw std::runtime_error("no samples");
    result.candidate = call_time(json, "candidate");
    result.incumbent = call_time(json, "incumbent");
    result.layer = json.value("layer", "");
    return result;
}

std::string read_whole(int file, const std::filesystem::path& path) {
    struct stat status = {};
    if (::fstat(file, &status) != 0) fail("read", path);
    if (status.st_size > kMostBytes)
        throw std::runtime_error(
            fmt::format("{} has {} bytes, which is no journal", path.string(), status.st_size));
    std::string bytes(static_cast<size_t>(status.st_size), '\0');
    size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t count =
            ::pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail("read", path);
        if (count == 0) break;
        done += static_cast<size_t>(count);
    }
    bytes.resize(done);
    return bytes;
}

}  // namespace

std::string journal_line(const JournalEntry& entry) {
    Json json;
    if (entry.cycles) {
        json = {{"loops", entry.key}, {"cycles", *entry.cycles}};
    } else {
        json = {{"trial", entry.key}};
        json.update(to_json(entry.result));
    }
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

JournalEntry parse_journal_line(const std::string& line) {
    const Json json = Json::parse(line);
    if (json.contains("loops")) {
        return {.key = json.at("loops").get<std::string>(),
                .cycles = positive(json.at("cycles"), "a number of cycles")};
    }
    return {.key = json.at("trial").get<std::string>(), .result = from_json(json)};
}

Journal::Journal(const std::filesystem::path& path) : path_(path) {
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0) fail("open", path);
    const Locked locked(file_);
    std::string bytes = read_whole(file_, path);
    const size_t whole = bytes.rfind('\n') + 1;  // 0 where there is none
    if (whole < bytes.size()) {
        if (::ftruncate(file_, static_cast<off_t>(whole)) != 0) fail("write", path);
        bytes.resize(whole);
    }
    read(bytes);
}

void Journal::read(const std::string& bytes) {
    size_t line = 0;
    for (size_t begin = 0; begin < bytes.size();) {
        const size_t end = bytes.find('\n', begin);
        ++line;
        try {
            JournalEntry entry = parse_journal_line(bytes.substr(begin, end - begin));
            entries_[entry.key] = std::move(entry);
        } catch (const std::exception& error) {
            throw std::runtime_error(
                fmt::format("{}:{}: not a line of a journal ({}); without the file all is measured again",
                            path_.string(), line, error.what()));
        }
        begin = end + 1;
    }
}

Journal::~Journal() {
    if (file_ >= 0) ::close(file_);
}

std::optional<TrialResult> Journal::find(const std::string& key) const {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.cycles) return {};
    return found->second.result;
}

std::optional<double> Journal::find_cycles(const std::string& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? std::nullopt : found->second.cycles;
}

std::vector<std::string> Journal::lines(const std::string& key_begin) const {
    std::vector<std::string> lines;
    for (auto at = entries_.lower_bound(key_begin); at != entries_.end() && at->first.starts_with(key_begin);
         ++at)
        lines.push_back(journal_line(at->second));
    return lines;
}

void Journal::add(const std::string& key, const TrialResult& result) { add({.key = key, .result = result}); }

void Journal::add_cycles(const std::string& key, double cycles) { add({.key = key, .cycles = cycles}); }

bool Journal::take(const JournalEntry& entry) {
    if (entries_.contains(entry.key)) return false;
    add(entry);
    return true;
}

// A line that was written in part is taken back, so that what comes behind it is not spoilt.
void Journal::add(const JournalEntry& entry) {
    entries_[entry.key] = entry;
    if (file_ < 0) return;
    const std::string line = journal_line(entry) + "\n";
    const Locked locked(file_);
    struct stat before = {};
    if (::fstat(file_, &before) != 0) fail("write", path_);
    const ssize_t written = ::write(file_, line.data(), line.size());
    if (written == static_cast<ssize_t>(line.size()) && ::fsync(file_) == 0) return;
    if (written >= 0 && errno == 0) errno = ENOSPC;
    const int reason = written >= 0 && written < static_cast<ssize_t>(line.size()) ? ENOSPC : errno;
    [[maybe_unused]] const int ignored = ::ftruncate(file_, before.st_size);
    errno = reason;
    fail("write", path_);
}

}  // namespace attnc
