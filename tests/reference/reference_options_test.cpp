// Score options, normalised and rotated heads, and earlier keys in the float64 reference, on calls worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "support/comparison.h"
#include "support/random.h"
#include "support/reference.h"

namespace attnc {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Pointwise;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
attnc_tensor view(std::vector<T>& values, std::initializer_list<int64_t> shape, attnc_dtype dtype) {
    attnc_tensor t = {};
    t.data = values.data();
    t.dtype = dtype;
    int64_t stride = 1;
    for (const int64_t extent : shape) t.extent[t.rank++] = extent;
    for (int n = t.rank; n-- > 0; stride *= t.extent[n]) t.stride[n] = stride;
    return t;
}

// One head of `features`: queries, keys and values as given; values have one feature.
struct Bare {
    std::vector<float> q, k, v;
    Config config;
    attnc_weights weights = ATTNC_WEIGHTS_INIT;
    attnc_inputs inputs = ATTNC_INPUTS_INIT;
    ReferenceOptions options = {.qk_scale = 1};
    ReferencePast past;

    Bare(int64_t features, std::vector<float> queries, std::vector<float> keys, std::vector<float> values)
        : q(std::move(queries)), k(std::move(keys)), v(std::move(values)) {
        config.num_heads = 1;
        config.head_dim = features;
        config.v_head_dim = 1;
        config.in_proj = config.out_proj = false;
        config = complete(config);
        inputs.query = view(q, {1, static_cast<int64_t>(q.size()) / features, features}, ATTNC_F32);
        inputs.key = view(k, {1, static_cast<int64_t>(k.size()) / features, features}, ATTNC_F32);
        inputs.value = view(v, {1, static_cast<int64_t>(v.size()), 1}, ATTNC_F32);
    }
    Reference run() const { return reference_layer(config, weights, options, inputs, past); }
    std::vector<double> scores(attnc_scores_stage stage) {
        options.scores_stage = stage;
        return run().scores;
    }
};

TEST(Softcap, BoundsScoresBeforeBiases) {
    Bare call(1, {2}, {1, -3}, {0, 1});
    call.config.softcap = true;
    call.options.softcap = 0.5;
    std::vector<float> bias = {0, 10};
    call.inputs.bias = view(bias, {1, 1, 1, 2}, ATTNC_F32);
    const double first = 0.5 * std::tanh(2 / 0.5), second = 0.5 * std::tanh(-6 / 0.5) + 10;
    EXPECT_THAT(call.scores(ATTNC_SCORES_BIASED), ElementsAre(DoubleEq(first), DoubleEq(second)));
    EXPECT_THAT(call.run().lse, ElementsAre(DoubleNear(std::log(std::exp(first) + std::exp(second)), 1e-14)));
    call.config.softcap = false;  // a library without it has none
    EXPECT_THAT(call.scores(ATTNC_SCORES_BIASED), ElementsAre(2, 4));
}

TEST(Alibi, FallsWithTheDistanceFromTheQuerysOwnKey) {
    Bare call(1, {0, 0}, {1, 1, 1}, {1, 2, 6});
    std::vector<float> slopes = {0.25};
    call.config.alibi = true;
    call.weights.alibi_slopes = view(slopes, {1}, ATTNC_F32);
    // Without a diagonal the own key is the bottom-right one's: 1 of query 0, 2 of query 1.
    EXPECT_THAT(call.scores(ATTNC_SCORES_BIASED), ElementsAre(-0.25, 0, -0.25, -0.5, -0.25, 0));
    call.inputs.causal = ATTNC_CAUSAL_TOP_LEFT;
    EXPECT_THAT(call.scores(ATTNC_SCORES_BIASED),
                ElementsAre(0, -kInfinity, -kInfinity, -0.25, 0, -kInfinity));
    EXPECT_THAT(call.run().score_size, ElementsAre(0, 0.25));
}

TEST(Scores, ShowTheStageThatIsAskedFor) {
    Bare call(2, {1, 1}, {1, 1, 2, 0, 9, 9}, {1, 2, 3});
    call.config.softcap = true;
    call.options.softcap = 4;
    std::vector<float> bias = {1, 1, 1};
    std::vector<uint8_t> keep = {1, 0, 1};
    std::vector<int64_t> keys = {2};
    call.inputs.bias = view(bias, {1, 1, 1, 3}, ATTNC_F32);
    call.inputs.keep_mask = view(keep, {1, 1, 1, 3}, ATTNC_U8);
    call.inputs.key_lengths = view(keys, {1}, ATTNC_I64);
    const double capped = 4 * std::tanh(0.5);
    EXPECT_THAT(call.scores(ATTNC_SCORES_SCALED), ElementsAre(2, 2, -kInfinity));
    EXPECT_THAT(call.scores(ATTNC_SCORES_SOFTCAPPED),
                ElementsAre(DoubleEq(capped), DoubleEq(capped), -kInfinity));
    EXPECT_THAT(call.scores(ATTNC_SCORES_BIASED), ElementsAre(DoubleEq(capped + 1), -kInfinity, -kInfinity));
    EXPECT_TRUE(call.scores(ATTNC_SCORES_NOT_GIVEN).empty());
}

TEST(Scores, OfRowsPastTheQueryLengthAreZero) {
    Bare call(1, {1, 1}, {1, 2}, {1, 2});
    std::vector<int64_t> queries = {1};
    call.inputs.query_lengths = view(queries, {1}, ATTNC_I64);
    EXPECT_THAT(call.scores(ATTNC_SCORES_SCALED), ElementsAre(1, 2, 0, 0));
}

TEST(BlockMask, EqualsTheDenseMaskOfItsBlocks) {
    Bare call(1, generated(40, 1, 1), generated(50, 2, 1), generated(50, 3, 1));
    std::vector<uint8_t> blocks = {1, 0, 0, 1, 0, 0};  // 40 / 16 x 50 / 32, rounded up
    call.inputs.block_keep_mask = view(blocks, {1, 1, 3, 2}, ATTNC_U8);
    call.inputs.block_q = 16, call.inputs.block_kv = 32;
    const Reference by_blocks = call.run();
    std::vector<uint8_t> keep(40 * 50);
    for (size_t i = 0; i < 40; ++i) {
        for (size_t j = 0; j < 50; ++j) keep[i * 50 + j] = blocks[i / 16 * 2 + j / 32];
    }
    call.inputs.block_keep_mask = {};
    call.inputs.keep_mask = view(keep, {1, 1, 40, 50}, ATTNC_U8);
    EXPECT_EQ(by_blocks.probs, call.run().probs);
    EXPECT_TRUE(by_blocks.empty_row(0, 0, 39));
}

TEST(HeadNorm, DividesByTheRootMeanSquare) {
    Bare call(2, {3, 4}, {1, 1}, {1});
    call.config.qk_norm = true;
    call.options.qk_norm_epsilon = 0.5;
    std::vector<float> q_norm = {1, 2}, k_norm = {1, 1};
    call.weights.q_norm = view(q_norm, {2}, ATTNC_F32);
    call.weights.k_norm = view(k_norm, {2}, ATTNC_F32);
    const double root = std::sqrt(25.0 / 2 + 0.5);
    EXPECT_THAT(call.scores(ATTNC_SCORES_SCALED), ElementsAre(DoubleNear(11 / root / std::sqrt(1.5), 1e-14)));
}

// Rotations: keys are unit vectors, so that scores show the rotated query.
class Rotations : public ::testing::Test {
protected:
    Rotations() : call(4, {1, 2, 3, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, {1, 1, 1, 1}) {
        call.config.rotary = Rotary::kHalf;
        call.options.rotary.base = 10000;
        call.inputs.query_positions = view(position, {1, 1}, ATTNC_I64);
        call.inputs.key_positions = view(zeros, {1, 4}, ATTNC_I64);
    }
    // Features a and b of the rotated query.
    static std::vector<double> turned(double a, double b, double angle) {
        return {a * std::cos(angle) - b * std::sin(angle), b * std::cos(angle) + a * std::sin(angle)};
    }
    std::vector<double> query() { return call.scores(ATTNC_SCORES_SCALED); }

    Bare call;
    std::vector<int64_t> position = {5}, zeros = {0, 0, 0, 0};
};

TEST_F(Rotations, HalvesGoTogether) {
    const auto fast = turned(1, 3, 5), slow = turned(2, 4, 0.05);  // 5 * 10000^(-2/4)
    EXPECT_THAT(query(), Pointwise(DoubleNear(1e-14), {fast[0], slow[0], fast[1], slow[1]}));
}

TEST_F(Rotations, PairsGoTogether) {
    call.config.rotary = Rotary::kPairs;
    call.options.rotary.base = 100;
    const auto fast = turned(1, 2, 5), slow = turned(3, 4, 0.5);
    EXPECT_THAT(query(), Pointwise(DoubleNear(1e-14), {fast[0], fast[1], slow[0], slow[1]}));
}

TEST_F(Rotations, LeaveFeaturesPastTheirDimension) {
    call.options.rotary.dim = 2;
    call.options.rotary.magnitude = 0.5;  // of queries and keys
    const auto fast = turned(1, 2, 5);
    EXPECT_THAT(query(), Pointwise(DoubleNear(1e-14), {fast[0] / 4, fast[1] / 4, 3.0, 4.0}));
}

TEST_F(Rotations, TakeFrequenciesOrATable) {
    std::vector<double> frequencies = {0.5, 0.25};
    call.weights.rotary_frequencies = view(frequencies, {2}, ATTNC_F64);
    const auto fast = turned(1, 3, 2.5), slow = turned(2, 4, 1.25);
    EXPECT_THAT(query(), Pointwise(DoubleNear(1e-14), {fast[0], slow[0], fast[1], slow[1]}));
    call.weights.rotary_frequencies = {};
    std::vector<float> cos(12, 1), sin(12, 0);
    cos[10] = 0, sin[10] = 1;  // position 5, pair 0
    call.weights.rotary_cos = view(cos, {6, 2}, ATTNC_F32);
    call.weights.rotary_sin = view(sin, {6, 2}, ATTNC_F32);
    EXPECT_THAT(query(), ElementsAre(-3, 2, 1, 4));
    position[0] = 6;
    EXPECT_THROW(query(), std::invalid_argument);
}

TEST_F(Rotations, ScaleFrequencies) {
    call.options.rotary = {.base = 10000, .scaling = ATTNC_ROTARY_SCALING_LINEAR, .factor = 4};
    auto fast = turned(1, 3, 5.0 / 4), slow = turned(2, 4, 0.05 / 4);
    EXPECT_THAT(query(), Pointwise(DoubleNear(1e-14), {fast[0], slow[0], fast[1], slow[1]}));
    // Wavelengths are 2 pi and 200 pi. Between 64 / 4 and 64 / 1 nothing; the first stays, the second is divided.
    call.options.rotary = {.base = 10000,
                           .scaling = ATTNC_ROTARY_SCALING_LLAMA3,
                           .factor = 8,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_positions = 64};
    fast = turned(1, 3, 5), slow = turned(2, 4, 0.05 / 8);
    EXPECT_THAT(query(), Pointwise(DoubleNear(1e-14), {fast[0], slow[0], fast[1], slow[1]}));
    // 1024 positions are 1.63 wavelengths of the second: a share of (1.63 - 1) / 3 stays as it is.
    call.options.rotary.original_positions = 1024;
    const double share = (1024 * 0.01 / (2 * M_PI) - 1) / 3;
    slow = turned(2, 4, 0.05 * (share + (1 - share) / 8));
    EXPECT_THAT(query(), Pointwise(DoubleNear(1e-14), {fast[0], slow[0], fast[1], slow[1]}));
}

TEST_F(Rotations, ScoresDependOnTheDifferenceOfPositions) {
    call.k = {1, 2, 3, 4, 4, 3, 2, 1, 0, 1, 0, 1, 1, 0, 0, 0};
    call.inputs.key = view(call.k, {1, 4, 4}, ATTNC_F32);
    call.inputs.query_positions = call.inputs.key_positions = {};
    std::vector<int64_t> offset = {0};
    call.inputs.position_offsets = view(offset, {1}, ATTNC_I64);
    const std::vector<double> at_0 = query();
    EXPECT_DOUBLE_EQ(at_0[0], 30);
    offset[0] = 1000;
    EXPECT_THAT(query(), Pointwise(DoubleNear(1e-12), at_0));
}

TEST_F(Rotations, OfSelfAttentionKeysHaveTheQueriesPositions) {
    call.inputs.key = call.inputs.query;
    call.v = {1};
    call.inputs.value = view(call.v, {1, 1, 1}, ATTNC_F32);
    call.inputs.key_positions = {};
    EXPECT_THAT(query(), Each(DoubleNear(30, 1e-13)));
}

// A call with a past equals the last queries of the call that has all keys.
TEST(Past, IsInFrontOfTheCallsKeys) {
    Bare all(4, generated(5 * 4, 1, 1), generated(7 * 4, 2, 1), generated(7, 3, 1));
    all.inputs.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    all.config.rotary = Rotary::kHalf;
    all.options.rotary.base = 10000;
    std::vector<int64_t> queries = {2, 3, 4, 5, 6};
    all.inputs.query_positions = view(queries, {1, 5}, ATTNC_I64);
    const Reference want = all.run();

    Bare step = all;
    std::vector<float> past_keys(want.keys_after.begin(), want.keys_after.begin() + 5 * 4);
    std::vector<float> past_values(all.v.begin(), all.v.begin() + 5);
    std::vector<float> query(all.q.end() - 2 * 4, all.q.end()), key(all.k.end() - 2 * 4, all.k.end());
    std::vector<float> value(all.v.end() - 2, all.v.end());
    step.inputs.query = view(query, {1, 2, 4}, ATTNC_F32);
    step.inputs.query_positions = {};  // 5 and 6: the item's past has 5 keys
    step.inputs.key = view(key, {1, 2, 4}, ATTNC_F32);
    step.inputs.value = view(value, {1, 2, 1}, ATTNC_F32);
    step.past.keys = view(past_keys, {1, 1, 5, 4}, ATTNC_F32);
    step.past.values = view(past_values, {1, 1, 5, 1}, ATTNC_F32);
    const Reference got = step.run();
    EXPECT_EQ(got.keys, 7);
    EXPECT_THAT(got.out, Pointwise(DoubleNear(1e-6), {want.out[3], want.out[4]}));
    EXPECT_THAT(got.keys_after, Pointwise(DoubleNear(1e-6), want.keys_after));
    EXPECT_EQ(got.values_after, want.values_after);
}

TEST(Past, HasLengthsOfItsOwn) {
    Bare call(1, {0}, {0}, {5});
    std::vector<float> keys = {0, 0, 0}, values = {1, 3, 100};
    call.past.keys = view(keys, {1, 1, 3, 1}, ATTNC_F32);
    call.past.values = view(values, {1, 1, 3, 1}, ATTNC_F32);
    call.past.lengths = {2};
    const Reference r = call.run();
    EXPECT_THAT(r.out, ElementsAre(DoubleNear(3, 1e-15)));
    EXPECT_THAT(r.probs, Each(DoubleNear(1.0 / 3, 1e-15)));
    EXPECT_EQ(r.values_after, (std::vector<double>{1, 3, 5}));
    call.past.alone = true;  // a call that brings no keys of its own
    EXPECT_THAT(call.run().out, ElementsAre(DoubleNear(2, 1e-15)));
    EXPECT_EQ(call.run().values_after, (std::vector<double>{1, 3}));
}

}  // namespace
}  // namespace attnc
