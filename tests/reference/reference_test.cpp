// The float64 reference on calls small enough to work out by hand, for what stored results do not cover.
#include "support/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

namespace attnc {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsNan;
using ::testing::Pointwise;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
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

// One head of one feature: two queries and three keys whose scores are all 0, values 1, 2 and 6.
class SmallAttention : public ::testing::Test {
protected:
    SmallAttention() {
        config.d_model = 1;
        config.num_heads = 1;
        config.in_proj = config.out_proj = false;
        config = complete(config);
        inputs.query = view(q, {1, 2, 1}, ATTNC_F32);
        inputs.key = view(k, {1, 3, 1}, ATTNC_F32);
        inputs.value = view(v, {1, 3, 1}, ATTNC_F32);
    }
    Reference run() const { return reference_layer(config, weights, options, inputs); }

    Config config;
    std::vector<float> q = {0, 0}, k = {1, 1, 1}, v = {1, 2, 6};
    attnc_weights weights = ATTNC_WEIGHTS_INIT;
    attnc_inputs inputs = ATTNC_INPUTS_INIT;
    ReferenceOptions options;
};

TEST_F(SmallAttention, EqualScoresAverageValues) {
    const Reference r = run();
    EXPECT_THAT(r.out, Pointwise(DoubleNear(1e-15), {3.0, 3.0}));
    EXPECT_THAT(r.probs, Each(DoubleNear(1.0 / 3, 1e-15)));
    EXPECT_THAT(r.lse, Each(DoubleNear(std::log(3.0), 1e-15)));
    EXPECT_THAT(r.value_size, ElementsAre(6, 6));
}

TEST_F(SmallAttention, CausalDiagonalsCountTheirOwnWay) {
    inputs.causal = ATTNC_CAUSAL_TOP_LEFT;
    EXPECT_THAT(run().out, ElementsAre(1, 1.5));
    inputs.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    EXPECT_THAT(run().out, ElementsAre(1.5, 3));
    std::vector<int64_t> offset = {-1};
    inputs.causal = ATTNC_CAUSAL_OFFSET;
    inputs.causal_offsets = view(offset, {1}, ATTNC_I64);
    EXPECT_THAT(run().out, ElementsAre(0, 1));
}

TEST_F(SmallAttention, BottomRightCountsLengths) {
    std::vector<int64_t> keys = {2};
    inputs.key_lengths = view(keys, {1}, ATTNC_I64);
    inputs.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    EXPECT_THAT(run().out, ElementsAre(1, 1.5));
    config.causal = true;  // the same diagonal where the call names none
    inputs.causal = ATTNC_CAUSAL_NOT_GIVEN;
    EXPECT_THAT(run().out, ElementsAre(1, 1.5));
    inputs.causal = ATTNC_CAUSAL_NONE;
    EXPECT_THAT(run().out, ElementsAre(1.5, 1.5));
}

TEST_F(SmallAttention, MasksHaveTheirPolarityAndCombine) {
    std::vector<uint8_t> keep = {1, 1, 0, 1, 0, 1};  // any non-zero value attends
    inputs.keep_mask = view(keep, {1, 1, 2, 3}, ATTNC_U8);
    EXPECT_THAT(run().out, ElementsAre(1.5, 3.5));
    std::vector<uint8_t> drop = {1, 0, 0};
    inputs.key_drop_mask = view(drop, {1, 3}, ATTNC_U8);
    EXPECT_THAT(run().out, ElementsAre(2, 6));
}

TEST_F(SmallAttention, BiasesAddUpAndMinusInfinityDrops) {
    std::vector<float> bias = {0, std::log(2.0F), 0};
    std::vector<float> key_bias = {0, 0, -std::numeric_limits<float>::infinity()};
    inputs.bias = view(bias, {1, 1, 1, 3}, ATTNC_F32);
    inputs.key_bias = view(key_bias, {1, 3}, ATTNC_F32);
    v[2] = kNan;
    const Reference r = run();
    EXPECT_THAT(r.out, Each(DoubleNear((1 + 2 * 2) / 3.0, 1e-7)));
    EXPECT_EQ(r.probs[2], 0);
    EXPECT_THAT(r.score_size, Each(DoubleNear(std::log(2.0), 1e-7)));
}

TEST_F(SmallAttention, EmptyRowsFollowTheirPolicy) {
    std::vector<uint8_t> keep = {0, 0, 0, 1, 1, 1};
    std::vector<int64_t> keys = {2};
    inputs.keep_mask = view(keep, {1, 1, 2, 3}, ATTNC_U8);
    inputs.key_lengths = view(keys, {1}, ATTNC_I64);
    Reference r = run();
    EXPECT_THAT(r.out, ElementsAre(0, 1.5));
    EXPECT_EQ(r.lse[0], -kInfinity);
    EXPECT_TRUE(r.empty_row(0, 0, 0));
    options.empty_rows = ATTNC_EMPTY_ROWS_MEAN_OF_VALUES;
    r = run();
    EXPECT_THAT(r.out, ElementsAre(1.5, 1.5));
    EXPECT_THAT(r.probs, ElementsAre(0.5, 0.5, 0, 0.5, 0.5, 0));
    EXPECT_EQ(r.lse[0], -kInfinity);
    options.empty_rows = ATTNC_EMPTY_ROWS_NAN;
    r = run();
    EXPECT_THAT(r.out, ElementsAre(IsNan(), 1.5));
    EXPECT_THAT(r.probs[0], IsNan());
    EXPECT_EQ(r.lse[0], -kInfinity);
}

TEST_F(SmallAttention, MeanOfNoValuesIsZero) {
    std::vector<int64_t> keys = {0};
    inputs.key_lengths = view(keys, {1}, ATTNC_I64);
    options.empty_rows = ATTNC_EMPTY_ROWS_MEAN_OF_VALUES;
    EXPECT_THAT(run().out, ElementsAre(0, 0));
}

TEST_F(SmallAttention, NanStaysWhereItIsDropped) {
    std::vector<uint8_t> drop = {0, 1, 0, 1, 0, 0};
    inputs.drop_mask = view(drop, {1, 1, 2, 3}, ATTNC_U8);
    k[0] = kNan;  // seen by the first query only
    EXPECT_THAT(run().out, ElementsAre(IsNan(), 4));
    k[0] = 1, v[1] = kNan;  // seen by the second query only
    EXPECT_THAT(run().out, ElementsAre(3.5, IsNan()));
}

TEST_F(SmallAttention, RowsPastTheQueryLengthAreZero) {
    std::vector<int64_t> queries = {1};
    inputs.query_lengths = view(queries, {1}, ATTNC_I64);
    q[1] = kNan;
    const Reference r = run();
    EXPECT_THAT(r.out, Pointwise(DoubleNear(1e-15), {3.0, 0.0}));
    EXPECT_EQ(r.lse[1], -kInfinity);
}

TEST_F(SmallAttention, AppendedKeysComeLastAndAreNeverMasked) {
    config.bias_kv = config.zero_attn = true;
    std::vector<float> bias_k = {0}, bias_v = {8};
    weights.bias_k = view(bias_k, {1}, ATTNC_F32);
    weights.bias_v = view(bias_v, {1}, ATTNC_F32);
    std::vector<int64_t> keys = {2};
    inputs.key_lengths = view(keys, {1}, ATTNC_I64);
    std::vector<uint8_t> keep = {1, 1, 1, 0, 0, 0};
    inputs.keep_mask = view(keep, {1, 1, 2, 3}, ATTNC_U8);
    const Reference r = run();
    EXPECT_THAT(r.out, ElementsAre((1 + 2 + 8 + 0) / 4.0, (8 + 0) / 2.0));
    EXPECT_THAT(r.probs, ElementsAre(0.25, 0.25, 0, 0.25, 0.25, 0, 0, 0, 0.5, 0.5));
}

TEST_F(SmallAttention, ViewsMayHaveStrides) {
    std::vector<float> interleaved = {1, -1, 2, -1, 6, -1};
    inputs.value = view(interleaved, {1, 3, 1}, ATTNC_F32);
    inputs.value.stride[1] = 2;
    EXPECT_THAT(run().out, Pointwise(DoubleNear(1e-15), {3.0, 3.0}));
}

TEST(Reference, PackedProjectionEqualsSeparateOnes) {
    Config config;
    config.d_model = 4;
    config.num_heads = 2;
    config = complete(config);
    std::vector<float> packed(12 * 4), packed_bias(12), wo(16), x(3 * 4);
    for (size_t n = 0; n < packed.size(); ++n) packed[n] = static_cast<float>(n % 7) - 3;
    for (size_t n = 0; n < packed_bias.size(); ++n) packed_bias[n] = static_cast<float>(n % 5) - 2;
    for (size_t n = 0; n < wo.size(); ++n) wo[n] = static_cast<float>(n % 3) - 1;
    for (size_t n = 0; n < x.size(); ++n) x[n] = static_cast<float>(n % 11) / 8;
    attnc_inputs inputs = ATTNC_INPUTS_INIT;
    inputs.query = view(x, {1, 3, 4}, ATTNC_F32);

    attnc_weights weights = ATTNC_WEIGHTS_INIT;
    weights.in_proj_weight = view(packed, {12, 4}, ATTNC_F32);
    weights.in_proj_bias = view(packed_bias, {12}, ATTNC_F32);
    weights.wo = view(wo, {4, 4}, ATTNC_F32);
    const Reference from_packed = reference_layer(config, weights, {}, inputs);

    const auto part = [&](std::vector<float>& all, int64_t n, std::initializer_list<int64_t> shape) {
        attnc_tensor t = view(all, shape, ATTNC_F32);
        t.data = all.data() + n * static_cast<int64_t>(all.size()) / 3;
        return t;
    };
    attnc_weights separate = ATTNC_WEIGHTS_INIT;
    separate.wq = part(packed, 0, {4, 4}), separate.wk = part(packed, 1, {4, 4}),
    separate.wv = part(packed, 2, {4, 4});
    separate.bq = part(packed_bias, 0, {4}), separate.bk = part(packed_bias, 1, {4}),
    separate.bv = part(packed_bias, 2, {4});
    separate.wo = weights.wo;
    EXPECT_EQ(reference_layer(config, separate, {}, inputs).out, from_packed.out);

    attnc_weights mixed = weights;  // packed weights with separate biases, and the other way round
    mixed.in_proj_bias = {};
    mixed.bq = separate.bq, mixed.bk = separate.bk, mixed.bv = separate.bv;
    EXPECT_EQ(reference_layer(config, mixed, {}, inputs).out, from_packed.out);
    separate.bq = separate.bk = separate.bv = {};
    separate.in_proj_bias = weights.in_proj_bias;
    EXPECT_EQ(reference_layer(config, separate, {}, inputs).out, from_packed.out);
}

}  // namespace
}  // namespace attnc
