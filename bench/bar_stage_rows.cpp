// Rows of the bar that are fractions of the multiply-add probe: stages inside a layer, and the layer.
#include <fmt/format.h>

#include <algorithm>

#include "bench/bar_row.h"
#include "compiler/stage_call.h"

namespace attnc::bench {

namespace {

constexpr const char* kOfProbe = "of the probe";
constexpr const char* kAvx2 = "x86-64-linux-avx2-fma-f16c";
constexpr const char* kSse2 = "x86-64-linux";

// Tokens of a call with short items, as of 32 items of 50.
constexpr int64_t kTokens = 1600;

// Heads of one size on items of one length. Long items have fewer heads, so that a call takes a second at most.
Problem attention_problem(int64_t head_dim, int64_t seq) {
    Config config;
    config.num_heads = seq >= 4096 ? 1 : std::max<int64_t>(1, 512 / head_dim);
    config.head_dim = head_dim;
    config.d_model = config.num_heads * head_dim;
    return {complete(config), {std::max<int64_t>(1, kTokens / seq), seq, seq}};
}

TimedWork stage_work(StageCall& call, const LayerCall& layer, Stage stage) {
    return {stage_name(stage), operations_of(call_operations(layer.problem()), stage),
            [&call] { call.call(); }};
}

Figure fraction_of(const BarContext& context, const Problem& problem, Stage stage,
                   const std::string& target) {
    const OneCore core;
    const LayerCall layer(context.setup(problem, target, context.one));
    StageCall call(layer, stage);
    const TimedResult result =
        time_in_turn({stage_work(call, layer, stage)}, context.one,
                     {.seconds = context.seconds, .probe = FmaProbe::of_target(target)})
            .front();
    return {result.fraction_best,
            fmt::format("{}: best {:.4f} ms, median {:.3f} of the probe beside it, probe {:.1f} GFLOP/s",
                        to_string(problem), result.ms_best, result.fraction_median, result.probe_best / 1e9)};
}

// Both projections of a layer; the worse one counts.
Figure projections(const BarContext& context, const Problem& problem, const std::string& target) {
    const Figure in = fraction_of(context, problem, Stage::kProjectInputs, target);
    const Figure out = fraction_of(context, problem, Stage::kProjectOutput, target);
    return {std::min(in.measured, out.measured),
            fmt::format("q, k, v {:.3f}, out {:.3f}; {}", in.measured, out.measured,
                        in.measured < out.measured ? in.note : out.note)};
}

void add_projection_rows(const BarContext& context, Rows& rows) {
    const auto add = [&](const char* problem, double bar) {
        rows.push_back({fmt::format("projections {}", problem), kOfProbe, false, bar, [&context, problem] {
                            return projections(context, parse_problem(problem), context.target);
                        }});
    };
    for (const char* problem :
         {"d512_h8_f32:b1_q128", "d512_h8_f32:b1_q512", "d512_h8_f32:b32_q50", "d768_h12_f32:b1_q128",
          "d768_h12_f32:b8_q128", "d1024_h8_f32:b1_q128", "d1024_h8_f32:b32_q50"}) {
        add(problem, 0.93);
    }
    for (const char* problem : {"d2048_h32_f32:b1_q128", "d2048_h32_f32:b1_q512"}) add(problem, 0.88);
    for (const char* problem : {"d512_h8_f32:b1_q50", "d768_h12_f32:b1_q50", "d1024_h8_f32:b1_q50"})
        add(problem, 0.88);
}

void add_attention_rows(const BarContext& context, Rows& rows) {
    struct Size {
        int64_t head_dim, seq;
        double bar;
    };
    constexpr Size kSizes[] = {
        {64, 50, 0.67},   {64, 128, 0.79},   {64, 512, 0.82},   {64, 2048, 0.82}, {64, 4096, 0.79},
        {64, 8192, 0.79}, {64, 16384, 0.79}, {32, 50, 0.60},    {32, 128, 0.74},  {32, 512, 0.74},
        {32, 2048, 0.74}, {128, 50, 0.70},   {128, 128, 0.80},  {128, 512, 0.82}, {128, 2048, 0.82},
        {72, 256, 0.78},  {72, 1024, 0.78},  {80, 256, 0.78},   {80, 1024, 0.78}, {96, 256, 0.78},
        {96, 1024, 0.78}, {256, 256, 0.78},  {256, 1024, 0.78}, {64, 65, 0.62},   {64, 100, 0.70},
        {64, 150, 0.70},  {64, 197, 0.70},   {64, 300, 0.70},   {64, 700, 0.70},
    };
    for (const Size& size : kSizes) {
        rows.push_back({fmt::format("attention head_dim {} seq {}", size.head_dim, size.seq), kOfProbe, false,
                        size.bar, [&context, size] {
                            return fraction_of(context, attention_problem(size.head_dim, size.seq),
                                               Stage::kAttend, context.target);
                        }});
    }
}

// The time of causal attention over half the time of attention to all keys.
Figure causal(const BarContext& context, int64_t seq) {
    const OneCore core;
    LayerCallSetup setup = context.setup(attention_problem(64, seq));
    const LayerCall all(setup);
    setup.adjust = [](attnc_inputs& inputs, attnc_outputs&) { inputs.causal = ATTNC_CAUSAL_BOTTOM_RIGHT; };
    const LayerCall half(setup);
    StageCall attend_all(all, Stage::kAttend), attend_half(half, Stage::kAttend);
    const auto results = context.time(
        {stage_work(attend_half, half, Stage::kAttend), stage_work(attend_all, all, Stage::kAttend)});
    return {2 * best_ratio(results[0], results[1]),
            fmt::format("{}: {:.4f} ms, all keys {:.4f} ms, median {:.3f}", to_string(half.problem()),
                        results[0].ms_best, results[1].ms_best, 2 * median_ratio(results[0], results[1]))};
}

void add_causal_rows(const BarContext& context, Rows& rows) {
    for (const auto& [seq, bar] : {std::pair<int64_t, double>{128, 1.20}, {512, 1.06}, {2048, 1.06}}) {
        rows.push_back({fmt::format("causal head_dim 64 seq {}", seq), "of half the time", true, bar,
                        [&context, seq = seq] { return causal(context, seq); }});
    }
}

void add_layer_row(const BarContext& context, Rows& rows) {
    rows.push_back(
        {"layer d512_h8_f32:b32_q50", kOfProbe, false, 0.90, [&context] {
             const OneCore core;
             LayerCall layer(context.setup(parse_problem("d512_h8_f32:b32_q50")));
             const TimedResult result =
                 context.time({{"layer", call_operations(layer.problem()).all(), [&] { layer.call(); }}})
                     .front();
             return Figure{result.fraction_best,
                           fmt::format("best {:.3f} ms, median {:.3f} of the probe beside it", result.ms_best,
                                       result.fraction_median)};
         }});
}

void add_target_rows(const BarContext& context, Rows& rows) {
    const auto add = [&](const char* text, const char* target, double bar, auto measure) {
        if (!runs_here(target)) return;
        rows.push_back({text, "of its own probe", false, bar, measure});
    };
    const auto project = [&context](const char* target) {
        return
            [&context, target] { return projections(context, parse_problem("d512_h8_f32:b1_q512"), target); };
    };
    add("AVX2 projections d512_h8_f32:b1_q512", kAvx2, 0.88, project(kAvx2));
    add("AVX2 attention head_dim 64 seq 512", kAvx2, 0.76,
        [&context] { return fraction_of(context, attention_problem(64, 512), Stage::kAttend, kAvx2); });
    add("SSE2 projections d512_h8_f32:b1_q512", kSse2, 0.70, project(kSse2));
}

}  // namespace

void add_stage_rows(const BarContext& context, Rows& rows) {
    add_projection_rows(context, rows);
    add_attention_rows(context, rows);
    add_causal_rows(context, rows);
    add_layer_row(context, rows);
    add_target_rows(context, rows);
}

}  // namespace attnc::bench
