// Rows of the bar for two threads: how much faster they are than one.
#include <fmt/format.h>

#include "bench/bar_row.h"
#include "compiler/stage_call.h"

namespace attnc::bench {

namespace {

constexpr const char* kProblems[] = {"d512_h8_f32:b1_q128", "d512_h8_f32:b1_q512", "d512_h8_f32:b1_q2048",
                                     "d768_h12_f32:b1_q197"};

// What one thread left in one core's caches has to go to both, and back.
constexpr int kSettlingCalls = 3;

Figure speed_up(const BarContext& context, TimedWork one, TimedWork two) {
    one.settling_calls = two.settling_calls = kSettlingCalls;
    const auto results = context.time({one, two});
    return {best_ratio(results[0], results[1]),
            fmt::format("{:.4f} ms and {:.4f} ms, median {:.3f}", results[0].ms_best, results[1].ms_best,
                        median_ratio(results[0], results[1]))};
}

Figure layer_speed_up(const BarContext& context, const char* text) {
    const Problem problem = parse_problem(text);
    LayerCall one(context.setup(problem, context.target, context.one));
    LayerCall two(context.setup(problem, context.target, context.two));
    const double operations = call_operations(problem).all();
    return speed_up(context, {"one", operations, [&] { one.call(); }},
                    {"two", operations, [&] { two.call(); }});
}

Figure stage_speed_up(const BarContext& context, const char* text, Stage stage) {
    const Problem problem = parse_problem(text);
    const LayerCall one(context.setup(problem, context.target, context.one));
    const LayerCall two(context.setup(problem, context.target, context.two));
    StageCall on_one(one, stage), on_two(two, stage);
    const double operations = operations_of(call_operations(problem), stage);
    return speed_up(context, {"one", operations, [&] { on_one.call(); }},
                    {"two", operations, [&] { on_two.call(); }});
}

}  // namespace

void add_thread_rows(const BarContext& context, Rows& rows) {
    constexpr const char* kUnit = "times one thread";
    for (const char* text : kProblems) {
        for (const Stage stage : {Stage::kProjectInputs, Stage::kProjectOutput, Stage::kAttend}) {
            rows.push_back({fmt::format("two threads {} {}", stage_name(stage), text), kUnit, false,
                            stage == Stage::kAttend ? 1.8 : 1.9,
                            [&context, text, stage] { return stage_speed_up(context, text, stage); }});
        }
        rows.push_back({fmt::format("two threads layer {}", text), kUnit, false, 1.85,
                        [&context, text] { return layer_speed_up(context, text); }});
    }
}

}  // namespace attnc::bench
