// Rows of the bar that hold a call against another one of the same layer: what probabilities, masks and lengths cost.
#include <fmt/format.h>

#include "bench/bar_row.h"
#include "compiler/call_extras.h"

namespace attnc::bench {

namespace {

TimedWork call_work(const char* name, LayerCall& layer) {
    return {name, call_operations(layer.problem()).all(), [&layer] { layer.call(); }};
}

// The part of a call's operations that its lengths leave.
double share_of(const Problem& problem, const std::vector<int64_t>& lengths) {
    if (lengths.empty()) return 1;
    double work = 0;
    for (int64_t length : lengths) work += call_operations({problem.config, {1, length, length}}).all();
    return work / call_operations(problem).all();
}

// Time of a call with `extra` over that of the plain one, for as much work.
Figure over_plain(const BarContext& context, const Problem& problem, const std::string& extra) {
    const OneCore core;
    const CallExtras extras(problem, {extra});
    LayerCallSetup setup = context.setup(problem);
    LayerCall plain(setup);
    setup.adjust = [&](attnc_inputs& inputs, attnc_outputs& outputs) { extras.apply(inputs, outputs); };
    LayerCall adjusted(setup);
    const auto results = context.time({call_work("adjusted", adjusted), call_work("plain", plain)});
    const double share = share_of(problem, extras.lengths());
    return {
        best_ratio(results[0], results[1]) / share,
        fmt::format("{}: {:.4f} ms, plain {:.4f} ms{}, median {:.3f}", to_string(problem), results[0].ms_best,
                    results[1].ms_best, share < 1 ? fmt::format(" with {:.3f} of its work", 1 / share) : "",
                    median_ratio(results[0], results[1]) / share)};
}

struct ExtraRow {
    const char* name;
    const char* problem;
    const char* extra;
    const char* unit;
    double bar;
};

constexpr const char* kLayer = "d512_h8_f32:b32_q50";
// Heads that are projected already: the call is attention alone.
constexpr const char* kAttention = "d512_h8_f32_noin_noout:b2_q512";
constexpr const char* kUnmasked = "of the unmasked call";
constexpr const char* kWithout = "of the call without";
constexpr const char* kValid = "of its valid tokens' cost";

constexpr ExtraRow kRows[] = {
    {"weights of each head d512_h8_f32:b32_q50", kLayer, "probs", kWithout, 1.35},
    {"masks seq 512 key_keep_mask", kAttention, "key_keep_mask", kUnmasked, 1.05},
    {"masks seq 512 key_drop_mask", kAttention, "key_drop_mask", kUnmasked, 1.05},
    {"masks seq 512 key_bias", kAttention, "key_bias", kUnmasked, 1.05},
    {"masks seq 512 keep_mask [1,1,q,kv]", kAttention, "keep_mask", kUnmasked, 1.10},
    {"masks seq 512 drop_mask [1,1,q,kv]", kAttention, "drop_mask", kUnmasked, 1.10},
    {"masks seq 512 keep_mask [b,h,q,kv]", kAttention, "keep_mask_of_heads", kUnmasked, 1.15},
    {"masks seq 512 drop_mask [b,h,q,kv]", kAttention, "drop_mask_of_heads", kUnmasked, 1.15},
    {"masks seq 512 bias [1,1,q,kv]", kAttention, "bias", kUnmasked, 1.20},
    {"masks seq 512 bias [b,h,q,kv]", kAttention, "bias_of_heads", kUnmasked, 1.30},
    {"lengths that leave nothing out, layer seq 50", kLayer, "full_lengths", kWithout, 1.02},
    {"lengths that leave nothing out, attention seq 512", kAttention, "full_lengths", kWithout, 1.02},
    {"padded batch d512_h8_f32:b32_q128", "d512_h8_f32:b32_q128", "lengths", kValid, 1.15},
    {"padded batch d384_h12_f32:b32_q256", "d384_h12_f32:b32_q256", "lengths", kValid, 1.15},
};

}  // namespace

void add_call_rows(const BarContext& context, Rows& rows) {
    for (const ExtraRow& row : kRows) {
        rows.push_back({row.name, row.unit, true, row.bar, [&context, row] {
                            return over_plain(context, parse_problem(row.problem), row.extra);
                        }});
    }
}

}  // namespace attnc::bench
