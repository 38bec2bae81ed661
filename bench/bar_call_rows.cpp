// Rows of the bar that hold a call against another one of the same layer: what probabilities, masks and lengths cost.
#include <fmt/format.h>

#include <memory>

#include "bench/bar_row.h"
#include "support/random.h"

namespace attnc::bench {

namespace {

using Adjust = std::function<void(attnc_inputs&, attnc_outputs&)>;

TimedWork call_work(const char* name, LayerCall& layer) {
    return {name, call_operations(layer.problem()).all(), [&layer] { layer.call(); }};
}

// Time of the adjusted call over that of the plain one, each multiplied by what its work is less than all of it.
Figure over_plain(const BarContext& context, const Problem& problem, const Adjust& adjust, double share = 1) {
    const OneCore core;
    LayerCallSetup setup = context.setup(problem);
    LayerCall plain(setup);
    setup.adjust = adjust;
    LayerCall adjusted(setup);
    const auto results = context.time({call_work("adjusted", adjusted), call_work("plain", plain)});
    return {
        best_ratio(results[0], results[1]) / share,
        fmt::format("{}: {:.4f} ms, plain {:.4f} ms, median {:.3f}", to_string(problem), results[0].ms_best,
                    results[1].ms_best, median_ratio(results[0], results[1]) / share)};
}

void add_probs_row(const BarContext& context, Rows& rows) {
    rows.push_back(
        {"weights of each head d512_h8_f32:b32_q50", "of the call without", true, 1.35, [&context] {
             const Problem problem = parse_problem("d512_h8_f32:b32_q50");
             const auto& [batch, seq_q, seq_kv] = problem.sizes;
             std::vector<float> probs(static_cast<size_t>(batch * problem.config.num_heads * seq_q * seq_kv));
             const attnc_tensor view =
                 attnc_tensor_4d(ATTNC_F32, probs.data(), batch, problem.config.num_heads, seq_q, seq_kv);
             return over_plain(context, problem,
                               [&](attnc_inputs&, attnc_outputs& outputs) { outputs.probs = view; });
         }});
}

// Bytes that are non-zero at random, so that nothing is dropped in whole blocks.
std::vector<uint8_t> random_bytes(int64_t count, double share, uint64_t seed) {
    Random random(seed);
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    for (uint8_t& byte : bytes) byte = random.chance(share) ? 1 : 0;
    return bytes;
}

constexpr double kKept = 0.9;  // of the pairs

void add_mask_rows(const BarContext& context, Rows& rows) {
    // Heads that are projected already: the call is attention alone.
    static const Problem kProblem = parse_problem("d512_h8_f32_noin_noout:b2_q512");
    const auto [batch, seq_q, seq_kv] = kProblem.sizes;
    const int64_t heads = kProblem.config.num_heads;
    struct Form {
        const char* name;
        attnc_tensor attnc_inputs::*field;
        int64_t extent[4];  // rank 2 where the last two are 0
        double bar;
    };
    const Form forms[] = {
        {"key_keep_mask", &attnc_inputs::key_keep_mask, {batch, seq_kv, 0, 0}, 1.05},
        {"key_drop_mask", &attnc_inputs::key_drop_mask, {batch, seq_kv, 0, 0}, 1.05},
        {"key_bias", &attnc_inputs::key_bias, {batch, seq_kv, 0, 0}, 1.05},
        {"keep_mask [1,1,q,kv]", &attnc_inputs::keep_mask, {1, 1, seq_q, seq_kv}, 1.10},
        {"drop_mask [1,1,q,kv]", &attnc_inputs::drop_mask, {1, 1, seq_q, seq_kv}, 1.10},
        {"keep_mask [b,h,q,kv]", &attnc_inputs::keep_mask, {batch, heads, seq_q, seq_kv}, 1.15},
        {"drop_mask [b,h,q,kv]", &attnc_inputs::drop_mask, {batch, heads, seq_q, seq_kv}, 1.15},
        {"bias [1,1,q,kv]", &attnc_inputs::bias, {1, 1, seq_q, seq_kv}, 1.20},
        {"bias [b,h,q,kv]", &attnc_inputs::bias, {batch, heads, seq_q, seq_kv}, 1.30},
    };
    for (const Form& form : forms) {
        rows.push_back({fmt::format("masks seq 512 {}", form.name), "of the unmasked call", true, form.bar,
                        [&context, form] {
                            const bool per_key = form.extent[2] == 0;
                            const auto [e0, e1, e2, e3] = form.extent;
                            const int64_t count = per_key ? e0 * e1 : e0 * e1 * e2 * e3;
                            const bool is_bias =
                                form.field == &attnc_inputs::bias || form.field == &attnc_inputs::key_bias;
                            const bool drops = form.field == &attnc_inputs::drop_mask ||
                                               form.field == &attnc_inputs::key_drop_mask;
                            const std::vector<float> biases = generated(is_bias ? count : 0, 7, 2);
                            const std::vector<uint8_t> bytes =
                                random_bytes(is_bias ? 0 : count, drops ? 1 - kKept : kKept, 8);
                            const attnc_dtype type = is_bias ? ATTNC_F32 : ATTNC_U8;
                            const void* data =
                                is_bias ? static_cast<const void*>(biases.data()) : bytes.data();
                            const attnc_tensor view = per_key ? attnc_tensor_2d(type, data, e0, e1)
                                                              : attnc_tensor_4d(type, data, e0, e1, e2, e3);
                            return over_plain(context, kProblem, [&](attnc_inputs& inputs, attnc_outputs&) {
                                inputs.*form.field = view;
                            });
                        }});
    }
}

Figure with_lengths(const BarContext& context, const Problem& problem, const std::vector<int64_t>& lengths) {
    double work = 0;
    for (int64_t length : lengths) work += call_operations({problem.config, {1, length, length}}).all();
    const attnc_tensor view =
        attnc_tensor_1d(ATTNC_I64, lengths.data(), static_cast<int64_t>(lengths.size()));
    const Adjust adjust = [&](attnc_inputs& inputs, attnc_outputs&) {
        inputs.key_lengths = inputs.query_lengths = view;
    };
    return over_plain(context, problem, adjust, work / call_operations(problem).all());
}

void add_length_rows(const BarContext& context, Rows& rows) {
    for (const char* text : {"d512_h8_f32:b32_q50", "d512_h8_f32_noin_noout:b2_q512"}) {
        rows.push_back({fmt::format("lengths that leave nothing out {}", text), "of the call without", true,
                        1.02, [&context, text] {
                            const Problem problem = parse_problem(text);
                            return with_lengths(context, problem,
                                                std::vector<int64_t>(static_cast<size_t>(problem.sizes.batch),
                                                                     problem.sizes.seq_q));
                        }});
    }
    for (const char* text : {"d512_h8_f32:b32_q128", "d384_h12_f32:b32_q256"}) {
        rows.push_back(
            {fmt::format("padded batch {}", text), "of its valid tokens' cost", true, 1.15, [&context, text] {
                 const Problem problem = parse_problem(text);
                 Random random(11);
                 std::vector<int64_t> lengths(static_cast<size_t>(problem.sizes.batch));
                 for (int64_t& length : lengths)
                     length = random.between(problem.sizes.seq_q / 8, problem.sizes.seq_q);
                 return with_lengths(context, problem, lengths);
             }});
    }
}

}  // namespace

void add_call_rows(const BarContext& context, Rows& rows) {
    add_probs_row(context, rows);
    add_mask_rows(context, rows);
    add_length_rows(context, rows);
}

}  // namespace attnc::bench
