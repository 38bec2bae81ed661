#include "compiler/verify_outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "compiler/files.h"

namespace attnc {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKinds[] = {"passed", "failed", "skipped"};

const char* name_of(Outcome::Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

Json json_of(const Outcome& outcome) {
    Json json = {{"case", outcome.name}, {"target", outcome.target}, {"outcome", name_of(outcome.kind)}};
    if (!outcome.reason.empty()) json["reason"] = outcome.reason;
    if (!outcome.repeat.empty()) json["repeat"] = outcome.repeat;
    return json;
}

}  // namespace

std::string text_of(const Outcome& outcome) {
    if (outcome.kind == Outcome::Kind::kPassed) return "";
    const std::string where =
        outcome.target.empty() ? outcome.name : fmt::format("{} on {}", outcome.name, outcome.target);
    if (outcome.kind == Outcome::Kind::kSkipped)
        return fmt::format("{}: skipped, {}\n", where, outcome.reason);
    return fmt::format("{}: {}\n  to repeat: {}\n", where, outcome.reason, outcome.repeat);
}

std::string to_json(const Outcome& outcome) {
    return json_of(outcome).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Outcome outcome_from_json(const std::string& line) {
    try {
        const Json json = Json::parse(line);
        const auto* const kind = std::find(std::begin(kKinds), std::end(kKinds), json.at("outcome"));
        return {.name = json.at("case"),
                .target = json.at("target"),
                .kind = static_cast<Outcome::Kind>(kind - std::begin(kKinds)),
                .reason = json.value("reason", ""),
                .repeat = json.value("repeat", "")};
    } catch (const Json::exception& error) {
        throw std::runtime_error(fmt::format("cannot read an outcome: {}", error.what()));
    }
}

bool conclude(const std::vector<Outcome>& outcomes, const std::filesystem::path& json) {
    int counts[std::size(kKinds)] = {};
    Json list = Json::array();
    for (const Outcome& outcome : outcomes) {
        ++counts[static_cast<size_t>(outcome.kind)];
        list.push_back(json_of(outcome));
    }
    fmt::print("{} passed, {} failed, {} skipped\n", counts[0], counts[1], counts[2]);
    if (!json.empty()) {
        const Json report = {
            {"passed", counts[0]}, {"failed", counts[1]}, {"skipped", counts[2]}, {"outcomes", list}};
        write_file(json, report.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
    }
    return counts[1] == 0 && counts[0] > 0;
}

std::string shell_quoted(const std::string& text) {
    const auto is_plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("_-+./:,=@%").find(c) != std::string_view::npos;
    };
    if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

}  // namespace attnc
