#include "compiler/tune_measure.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "compiler/cached_call.h"
#include "compiler/call_extras.h"
#include "compiler/layer_call.h"
#include "compiler/paired_timing.h"
#include "compiler/stage_call.h"
#include "compiler/verify_layer.h"
#include "tuner/statistics.h"

namespace attnc {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 6> kWorkNames = {"project_inputs", "project_output", "attend",
                                                   "attend_masked",  "attend_probs",   "call"};

// Keys and values of the slots that steps of decoding take in turn: more than a core's own caches hold.
constexpr int64_t kFarKeys = int64_t{64} << 20;

template <typename Read>
auto read_json(const std::string& text, const char* what, Read read) {
    try {
        return read(Json::parse(text));
    } catch (const Json::exception& error) {
        throw std::runtime_error(fmt::format("damaged {}: {}", what, error.what()));
    }
}

void use_cpus(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) CPU_SET(cpu, &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0)
        throw std::runtime_error(fmt::format("cannot use cpu {}", cpus.front()));
}

std::optional<Stage> stage_of(TunedWork work) {
    switch (work) {
        case TunedWork::kProjectInputs:
            return Stage::kProjectInputs;
        case TunedWork::kProjectOutput:
            return Stage::kProjectOutput;
        case TunedWork::kAttend:
        case TunedWork::kAttendMasked:
        case TunedWork::kAttendProbs:
            return Stage::kAttend;
        case TunedWork::kCall:
            break;
    }
    return {};
}

std::vector<std::string> extras_of(TunedWork work) {
    if (work == TunedWork::kAttendMasked) return {"keep_mask"};
    if (work == TunedWork::kAttendProbs) return {"probs"};
    return {};
}

// One library's layer, ready to be called; what is timed of it.
class TunedCall {
public:
    TunedCall(const MeasureRequest& request, const Problem& problem, const attnc_library* library,
              const TimingPool& pool)
        : extras_(problem, extras_of(request.work)) {
        const LayerCallSetup setup = {.problem = problem,
                                      .used = problem.config,
                                      .library = library,
                                      .target = request.target,
                                      .executor = pool.executor(),
                                      .adjust = [this](attnc_inputs& inputs, attnc_outputs& outputs) {
                                          extras_.apply(inputs, outputs);
                                      }};
        if (is_cached_step(problem)) {
            const int64_t batches =
                std::clamp<int64_t>(kFarKeys / std::max<int64_t>(kv_bytes(problem), 1), 1, 64);
            cached_ = std::make_unique<CachedCall>(setup, batches);
            cached_->call();
            outputs_ = cached_->outputs();
            return;
        }
        layer_ = std::make_unique<LayerCall>(setup);
        layer_->call();
        outputs_ = layer_->outputs();
        const std::optional<Stage> stage = stage_of(request.work);
        if (!stage) return;
        try {
            stage_ = std::make_unique<StageCall>(*layer_, *stage);
        } catch (const std::runtime_error&) {
            stage_.reset();  // more items than a stage alone can be run on: the whole call stands for it
        }
    }

    void call() {
        if (stage_) {
            stage_->call();
        } else if (layer_) {
            layer_->call();
        } else {
            cached_->call();
        }
    }

    // Of the first call.
    const attnc_outputs& outputs() const { return outputs_; }

private:
    CallExtras extras_;
    std::unique_ptr<CachedCall> cached_;
    std::unique_ptr<LayerCall> layer_;
    std::unique_ptr<StageCall> stage_;
    attnc_outputs outputs_ = ATTNC_OUTPUTS_INIT;
};

// "" where two outputs of equal shape agree. They are dense.
std::string difference(const char* name, const attnc_tensor& got, const attnc_tensor& wanted,
                       bool same_bits) {
    if (wanted.rank == 0) return "";
    int64_t elements = 1;
    for (int i = 0; i < wanted.rank; ++i) elements *= wanted.extent[i];
    const auto* a = static_cast<const float*>(got.data);
    const auto* b = static_cast<const float*>(wanted.data);
    float largest = 0;
    for (int64_t i = 0; i < elements; ++i) largest = std::max(largest, std::fabs(b[i]));
    for (int64_t i = 0; i < elements; ++i) {
        if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
        // Blocks of keys are joined in another order: some roundings, in units of the largest result.
        if (!same_bits && std::fabs(a[i] - b[i]) <= 1e-4F * largest) continue;
        return fmt::format("wrong result: {}[{}] is {:.9g}, the incumbent's {:.9g}", name, i, a[i], b[i]);
    }
    return "";
}

std::string differences(const TunedCall& candidate, const TunedCall& incumbent, bool same_bits) {
    const attnc_outputs &got = candidate.outputs(), &wanted = incumbent.outputs();
    std::string text = difference("out", got.out, wanted.out, same_bits);
    if (text.empty()) text = difference("probs", got.probs, wanted.probs, same_bits);
    return text;
}

std::string verify(const MeasureRequest& request, const attnc_library* library) {
    const Config config = config_of(library);
    for (int seed = 1; seed <= request.verified_calls; ++seed) {
        const std::unique_ptr<VerifyCall> call = random_call(config, static_cast<uint64_t>(seed));
        const std::string fault = check_call(library, request.target, *call, reference_of(*call));
        if (!fault.empty())
            return fmt::format("wrong result: {}, seed {}: {}", to_string(call->problem), seed, fault);
    }
    return "";
}

// Surely so much slower that more rounds would not change what is done with it.
bool is_given_up(const MeasureRequest& request, const PairedTimes& rounds) {
    return request.give_up_above > 0 &&
           surely_above(paired_ratio(rounds.times, rounds.other), request.give_up_above);
}

}  // namespace

bool is_cached_step(const Problem& problem) {
    return problem.config.cache && problem.sizes.seq_q < problem.sizes.seq_kv;
}

MeasureAnswer measure(const MeasureRequest& request, const attnc_library* candidate,
                      const attnc_library* incumbent) {
    use_cpus(request.cpus);
    const TimingPool pool(request.threads);
    MeasureAnswer answer;
    answer.fault = verify(request, candidate);
    for (const Problem& problem : request.problems) {
        if (!answer.fault.empty()) return answer;
        TunedCall other(request, problem, incumbent, pool), own(request, problem, candidate, pool);
        answer.fault = differences(own, other, request.same_bits);
        if (!answer.fault.empty() || request.seconds <= 0) continue;
        const PairedTimes rounds =
            time_pair([&] { own.call(); }, [&] { other.call(); }, pool,
                      {.seconds = request.seconds,
                       .fewest_rounds = static_cast<size_t>(request.fewest_rounds),
                       .probe = FmaProbe::of_target(request.target),
                       .enough = [&](const PairedTimes& so_far) { return is_given_up(request, so_far); }});
        const CallOperations operations = call_operations(problem);
        const std::optional<Stage> stage = stage_of(request.work);
        answer.problems.push_back({rounds.times, rounds.other, rounds.probe_best,
                                   stage ? operations_of(operations, *stage) : operations.all()});
    }
    return answer;
}

std::string to_json(const MeasureRequest& request) {
    std::vector<std::string> problems;
    problems.reserve(request.problems.size());
    for (const Problem& problem : request.problems) problems.push_back(to_string(problem));
    return Json{{"candidate", request.candidate},
                {"incumbent", request.incumbent},
                {"target", request.target},
                {"threads", request.threads},
                {"cpus", request.cpus},
                {"problems", problems},
                {"work", kWorkNames[static_cast<size_t>(request.work)]},
                {"same_bits", request.same_bits},
                {"verified_calls", request.verified_calls},
                {"seconds", request.seconds},
                {"fewest_rounds", request.fewest_rounds},
                {"give_up_above", request.give_up_above}}
        .dump();
}

MeasureRequest parse_measure_request(const std::string& json) {
    return read_json(json, "request to measure", [](const Json& read) {
        MeasureRequest request;
        request.candidate = read.at("candidate");
        request.incumbent = read.at("incumbent");
        request.target = read.at("target");
        request.threads = read.at("threads");
        request.cpus = read.at("cpus").get<std::vector<int>>();
        for (const Json& problem : read.at("problems"))
            request.problems.push_back(parse_problem(problem.get<std::string>()));
        const std::string work = read.at("work");
        const auto* name = std::find(kWorkNames.begin(), kWorkNames.end(), work);
        if (name == kWorkNames.end()) throw std::runtime_error(fmt::format("no work '{}' to measure", work));
        request.work = static_cast<TunedWork>(name - kWorkNames.begin());
        request.same_bits = read.at("same_bits");
        request.verified_calls = read.at("verified_calls");
        request.seconds = read.at("seconds");
        request.fewest_rounds = read.at("fewest_rounds");
        request.give_up_above = read.at("give_up_above");
        return request;
    });
}

std::string to_json(const MeasureAnswer& answer) {
    Json problems = Json::array();
    for (const MeasureAnswer::Times& times : answer.problems) {
        problems.push_back({{"candidate", times.candidate},
                            {"incumbent", times.incumbent},
                            {"probe", times.probe},
                            {"operations", times.operations}});
    }
    return Json{{"fault", answer.fault}, {"problems", problems}}.dump(-1, ' ', false,
                                                                      Json::error_handler_t::replace);
}

MeasureAnswer parse_measure_answer(const std::string& json) {
    return read_json(json, "answer of a measurement", [](const Json& read) {
        MeasureAnswer answer;
        answer.fault = read.at("fault");
        for (const Json& problem : read.at("problems")) {
            answer.problems.push_back({problem.at("candidate").get<std::vector<double>>(),
                                       problem.at("incumbent").get<std::vector<double>>(),
                                       problem.at("probe"), problem.at("operations")});
        }
        return answer;
    });
}

}  // namespace attnc
