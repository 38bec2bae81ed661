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
    return complete(config);
}

template <typename T>
Array<T> random_mask_shape(Random& random, const LayerCall& call) {
    const int64_t full[4] = {call.sizes.batch, call.config.num_heads, call.sizes.seq_q, call.sizes.seq_kv};
    std::vector<int64_t> shape;
    for (const int64_t extent : full) shape.push_back(random.chance(0.5) ? extent : 1);
    return filled<T>(shape, 0);
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
