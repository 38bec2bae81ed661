// Random layers and random calls of them against the reference, the same ones in every run.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

constexpr uint64_t kSeed = 51;
constexpr int kLayers = 8, kCallsOfALayer = 25;

// Head sizes stay below 33, so that many layers share their kernels.
Config random_config(Random& random) {
    Config config;
    config.num_kv_heads = random.between(1, 3);
    config.num_heads = config.num_kv_heads * random.between(1, 3);
    config.head_dim = random.between(1, 32);
    if (random.chance(0.5)) {
        config.rotary = random.chance(0.5) ? Rotary::kHalf : Rotary::kPairs;
        config.head_dim += config.head_dim % 2;
    }
    config.v_head_dim = random.chance(0.5) ? config.head_dim : random.between(1, 32);
    config.in_proj = random.chance(0.8);
    config.out_proj = random.chance(0.8);
    config.d_model =
        config.in_proj || config.out_proj ? random.between(1, 70) : config.num_heads * config.head_dim;
    if (config.in_proj) {
        config.k_dim = random.between(1, 70);
        config.v_dim = random.between(1, 70);
    }
    config.causal = random.chance(0.3);
    config.bias_kv = config.in_proj && random.chance(0.3);
    config.zero_attn = random.chance(0.3);
    config.sink = random.chance(0.3);
    config.softcap = random.chance(0.4);
    config.alibi = random.chance(0.4);
    config.scores = random.chance(0.4);
    config.qk_norm = random.chance(0.4);
    return complete(config);
}

template <typename T>
Array<T> random_mask_shape(Random& random, const LayerCall& call) {
    const int64_t full[4] = {call.sizes.batch, call.config.num_heads, call.sizes.seq_q, call.sizes.seq_kv};
    std::vector<int64_t> shape;
    for (const int64_t extent : full) shape.push_back(random.chance(0.5) ? extent : 1);
    return filled<T>(shape, 0);
}

void add_block_mask(Random& random, LayerCall& call) {
    constexpr int64_t kGranule = 16;
    call.block_q = kGranule * random.between(1, 3), call.block_kv = kGranule * random.between(1, 3);
    const auto blocks = [](int64_t extent, int64_t block) { return (extent + block - 1) / block; };
    call.block_keep_mask = filled<uint8_t>(
        {random.chance(0.5) ? call.sizes.batch : 1, random.chance(0.5) ? call.config.num_heads : 1,
         blocks(call.sizes.seq_q, call.block_q), blocks(call.sizes.seq_kv, call.block_kv)},
        0);
    for (uint8_t& element : call.block_keep_mask.values) element = random.chance(0.7) ? 1 : 0;
}

void add_rotation(Random& random, LayerCall& call) {
    call.rotary = {};
    if (random.chance(0.1)) return;  // a layer that does without
    constexpr int64_t kFarthest = 300, kRows = kFarthest + 100;
    const int64_t head_dim = call.config.head_dim;
    const int64_t dim = 2 * (random.chance(0.5) ? random.between(1, head_dim / 2) : head_dim / 2);
    call.rotary.dim = dim;
    if (random.chance(0.3)) {
        call.rotary_cos = random_array({kRows, dim / 2}, random.bits(), 1);
        call.rotary_sin = random_array({kRows, dim / 2}, random.bits(), 1);
    } else if (random.chance(0.3)) {
        call.rotary_frequencies = filled<double>({dim / 2}, 0);
        for (double& frequency : call.rotary_frequencies.values)
            frequency = static_cast<double>(generated_value(random.bits(), 0, 2));
    } else {
        call.rotary.base = 10000;
        if (random.chance(0.3)) call.rotary.scaling = ATTNC_ROTARY_SCALING_LINEAR, call.rotary.factor = 4;
    }
    const auto positions = [&](std::vector<int64_t> shape) {
        Array<int64_t> array = filled<int64_t>(std::move(shape), 0);
        for (int64_t& position : array.values) position = random.between(0, kFarthest);
        return array;
    };
    if (random.chance(0.4)) call.position_offsets = positions({call.sizes.batch});
    if (random.chance(0.3)) call.query_positions = positions({call.sizes.batch, call.sizes.seq_q});
    if (random.chance(0.3)) call.key_positions = positions({call.sizes.batch, call.sizes.seq_kv});
}

LayerCall random_fuzz_call(Random& random, const Config& config) {
    const Sizes sizes = {random.between(1, 3), random.between(1, 40), random.between(1, 80)};
    LayerCall call = random_call(config, sizes, random.bits());
    const auto bytes = [&](Array<uint8_t> mask, double ones) {
        for (uint8_t& element : mask.values)
            element = random.chance(ones) ? static_cast<uint8_t>(random.between(1, 255)) : 0;
        return mask;
    };
    const auto numbers = [&](Array<float> bias) {
        fill_generated(bias.values, random.bits(), 4);
        for (float& element : bias.values) {
            if (random.chance(0.05)) element = -std::numeric_limits<float>::infinity();
        }
        return bias;
    };
    if (random.chance(0.4)) call.keep_mask = bytes(random_mask_shape<uint8_t>(random, call), 0.8);
    if (random.chance(0.3)) call.drop_mask = bytes(random_mask_shape<uint8_t>(random, call), 0.2);
    if (random.chance(0.4)) call.bias = numbers(random_mask_shape<float>(random, call));
    const std::vector<int64_t> per_key = {sizes.batch, sizes.seq_kv};
    if (random.chance(0.2)) call.key_keep_mask = bytes(filled<uint8_t>(per_key, 0), 0.9);
    if (random.chance(0.2)) call.key_drop_mask = bytes(filled<uint8_t>(per_key, 0), 0.1);
    if (random.chance(0.2)) call.key_bias = numbers(filled<float>(per_key, 0));
    const auto lengths = [&](int64_t most) {
        Array<int64_t> array = filled<int64_t>({sizes.batch}, 0);
        for (int64_t& length : array.values) length = random.between(0, most);
        return array;
    };
    if (random.chance(0.4)) call.key_lengths = lengths(sizes.seq_kv);
    if (random.chance(0.4)) call.query_lengths = lengths(sizes.seq_q);
    call.causal = static_cast<attnc_causal>(random.between(ATTNC_CAUSAL_NOT_GIVEN, ATTNC_CAUSAL_OFFSET));
    if (call.causal == ATTNC_CAUSAL_OFFSET) {
        call.causal_offsets = filled<int64_t>({sizes.batch}, 0);
        for (int64_t& offset : call.causal_offsets.values)
            offset = random.between(-sizes.seq_q - 5, sizes.seq_kv + 5);
    }
    call.empty_rows =
        static_cast<attnc_empty_rows>(random.between(ATTNC_EMPTY_ROWS_NOT_GIVEN, ATTNC_EMPTY_ROWS_NAN));
    if (random.chance(0.3)) call.window_left = random.between(0, 40);
    if (random.chance(0.3)) call.window_right = random.between(0, 40);
    if (config.softcap)
        call.softcap = random.chance(0.8) ? std::ldexp(1.0F, static_cast<int>(random.between(-1, 6))) : 0;
    if (random.chance(0.2)) call.alibi_slopes = {};
    if (config.scores && random.chance(0.5)) {
        call.scores_stage =
            static_cast<attnc_scores_stage>(random.between(ATTNC_SCORES_SCALED, ATTNC_SCORES_BIASED));
    }
    if (config.rotary != Rotary::kNone) add_rotation(random, call);
    if (random.chance(0.3)) add_block_mask(random, call);
    if (random.chance(0.2)) call.sink = {};
    if (random.chance(0.2)) call.qk_scale = generated_value(random.bits(), 0, 1);
    call.probs = random.chance(0.5), call.probs_averaged = random.chance(0.3), call.lse = random.chance(0.5);
    return call;
}

class RandomLayer : public ::testing::TestWithParam<int> {};

TEST_P(RandomLayer, MatchesTheReference) {
    Random random(mixed_bits(kSeed, static_cast<uint64_t>(GetParam())));
    const Config config = random_config(random);
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", layer " + std::to_string(GetParam()) + ": " +
                 to_string(config));
    for (int n = 0; n < kCallsOfALayer; ++n) {
        const LayerCall call = random_fuzz_call(random, config);
        const Reference want = call.reference();
        for (const std::string& target : runnable_targets()) {
            RunOptions options = {.target = target};
            options.executor = static_cast<Executor>(random.between(0, 2));
            options.concurrency = options.executor == Executor::kNone ? 1 : random.between(1, 4);
            options.placement = random.chance(0.5) ? Placement::kAtEnd : Placement::kAtStart;
            ASSERT_TRUE(matches_reference(call, run_call(call, options), options, &want)) << "call " << n;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, RandomLayer, ::testing::Range(0, kLayers));

}  // namespace
}  // namespace attnc::test
