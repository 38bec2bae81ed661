#include "compiler/rank_link.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tuner/run_search.h"

namespace attnc {

namespace {

using Json = nlohmann::ordered_json;

// Of the time between two questions: what is longer was spent asleep, with the other side perhaps asleep too.
constexpr double kMostBetween = 0.5;

RankMessage damaged(const std::string& why) {
    RankMessage message;
    message.kind = RankMessage::Kind::kDamaged;
    message.text = why;
    return message;
}

}  // namespace

std::string to_json(const RankMessage& message) {
    const Machine& machine = message.machine;
    return Json{
        {"kind", static_cast<int>(message.kind)},
        {"work", message.work},
        {"all_there", message.all_there},
        {"text", message.text},
        {"host", message.host},
        {"target", message.target},
        {"versions", message.versions},
        {"machine", {machine.cpu, machine.cpus, machine.l1d_bytes, machine.l2_bytes, machine.l3_bytes}},
        {"cores", message.cores},
        {"arguments", message.arguments},
        {"lines", message.lines}}
        .dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankMessage parse_rank_message(const std::string& json) {
    try {
        const Json read = Json::parse(json);
        RankMessage message;
        const int kind = read.at("kind");
        if (kind < 0 || kind > static_cast<int>(RankMessage::Kind::kEnd))
            return damaged("its kind is unknown");
        message.kind = static_cast<RankMessage::Kind>(kind);
        message.work = read.at("work");
        message.all_there = read.at("all_there");
        message.text = read.at("text");
        message.host = read.at("host");
        message.target = read.at("target");
        message.versions = read.at("versions");
        const Json& machine = read.at("machine");
        message.machine = {.cpu = machine.at(0),
                           .cpus = machine.at(1),
                           .l1d_bytes = machine.at(2),
                           .l2_bytes = machine.at(3),
                           .l3_bytes = machine.at(4)};
        message.cores = read.at("cores").get<std::vector<Core>>();
        message.arguments = read.at("arguments").get<std::vector<std::string>>();
        message.lines = read.at("lines").get<std::vector<std::string>>();
        return message;
    } catch (const Json::exception& error) {
        return damaged(error.what());
    }
}

// Global, since the parts that MPI loads by itself look for its symbols.
RankLink::RankLink(const Installation& installation) {
    std::error_code error;
    if (!std::filesystem::exists(installation.mpi_module, error))
        throw std::runtime_error(
            "this attnc was built without MPI (Debian package libopenmpi-dev), which --mpi needs");
    void* handle = ::dlopen(installation.mpi_module.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) throw std::runtime_error(fmt::format("cannot load MPI: {}", ::dlerror()));
    const auto start = reinterpret_cast<RankModuleStart>(::dlsym(handle, kRankModuleStart));
    module_ = start == nullptr ? nullptr : start();
    if (module_ == nullptr) throw std::runtime_error("MPI does not start");
}

void RankLink::send(int to, const RankMessage& message) const {
    const std::string bytes = to_json(message);
    module_->send(to, bytes.data(), bytes.size());
}

std::optional<RankLink::Received> RankLink::receive() const {
    Received received;
    size_t size = 0;
    if (!module_->arrived(&received.from, &size)) return {};
    std::string bytes(size, '\0');
    module_->take(received.from, bytes.data(), size);
    received.message = parse_rank_message(bytes);
    return received;
}

Silence::Silence(double most_seconds) : most_(most_seconds), last_(steady_seconds()) {}

bool Silence::is_too_long() {
    const double now = steady_seconds();
    silent_ += std::min(now - last_, kMostBetween);
    last_ = now;
    return silent_ > most_;
}

}  // namespace attnc
