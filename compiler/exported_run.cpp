#include "compiler/exported_run.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace attnc {

namespace {

using Json = nlohmann::ordered_json;

Json kernels_json(const ExportedLayer& layer) {
    Json json = Json::object();
    for (const auto& [kernel, pieces] : layer.kernels) {
        for (const auto& [schedule, found] : pieces)
            json[kernel][schedule] = {{"library", found.library}, {"object", found.object_hash}};
    }
    return json;
}

ExportedLayer parse_layer(const Json& read) {
    ExportedLayer layer = {.config = read.at("config"),
                           .sizes = read.at("sizes").get<std::vector<std::string>>(),
                           .start = read.at("start"),
                           .origin = read.at("origin"),
                           .kernels = {},
                           .candidates = {}};
    for (const auto& [kernel, pieces] : read.at("kernels").items()) {
        for (const auto& [schedule, found] : pieces.items())
            layer.kernels[kernel][schedule] = {found.at("library"), found.at("object")};
    }
    for (const auto& [part, schedules] : read.at("candidates").items())
        layer.candidates[part] = schedules.get<std::vector<std::string>>();
    return layer;
}

}  // namespace

std::string to_json(const ExportedRun& run) {
    Json layers = Json::array();
    for (const ExportedLayer& layer : run.layers) {
        layers.push_back({{"config", layer.config},
                          {"sizes", layer.sizes},
                          {"start", layer.start},
                          {"origin", layer.origin},
                          {"kernels", kernels_json(layer)},
                          {"candidates", Json::object()}});
        for (const auto& [part, schedules] : layer.candidates) layers.back()["candidates"][part] = schedules;
    }
    return Json{{"attnc", run.attnc},     {"versions", to_json(run.versions)},
                {"target", run.target},   {"effort", run.effort},
                {"threads", run.threads}, {"time_limit", run.time_limit},
                {"wanted", run.wanted},   {"layers", layers}}
        .dump(-1, ' ', true, Json::error_handler_t::replace);
}

ExportedRun parse_exported_run(const std::string& json) {
    try {
        const Json read = Json::parse(json);
        ExportedRun run = {.attnc = read.at("attnc"),
                           .versions = parse_compiler_versions(read.at("versions")),
                           .target = read.at("target"),
                           .effort = read.at("effort"),
                           .threads = read.at("threads"),
                           .time_limit = read.at("time_limit"),
                           .wanted = read.at("wanted").get<std::vector<std::string>>(),
                           .layers = {}};
        for (const Json& layer : read.at("layers")) run.layers.push_back(parse_layer(layer));
        return run;
    } catch (const Json::exception& error) {
        throw std::runtime_error(fmt::format("damaged description of a runner: {}", error.what()));
    }
}

}  // namespace attnc
