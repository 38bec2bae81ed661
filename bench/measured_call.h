// What a benchmark calls: a layer, with a cache where its configuration has one, or one stage of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bench/libraries.h"
#include "compiler/stage_call.h"
#include "compiler/timing.h"

namespace attnc::bench {

struct CallName {
    Problem problem;
    std::optional<Stage> stage;  // none: the whole layer
    int threads = 1;
};
// "layer/d512_h8_f32/b1_q128_kv128/threads:2", "attend/d512_h8_f32/...".
std::string to_string(const CallName& name);

struct MeasuredCall {
    std::function<void()> call;  // owns what it calls
    double operations = 0;       // floating-point, of a call
    double bytes = 0;            // of weights, tokens, keys and values in a cache, and outputs: each once
};

// Throws std::runtime_error.
MeasuredCall make_call(const CallName& name, Libraries& libraries, const TimingPool& pool);

// The stages that a layer has, each with a batch that one wave takes.
std::vector<CallName> stages_of(const Problem& problem, int threads);

}  // namespace attnc::bench
