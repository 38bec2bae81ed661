// Faults that users of other attention layers met with masks, empty rows, diagonals and unusual numbers; each as the
// behaviour that is right. The name ends in the fault's number in the collection they come from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLowest = std::numeric_limits<float>::lowest();

class MaskCases : public TargetTest {
protected:
    RunResult run(const LayerCall& call) const {
        RunResult result = run_call(call, target());
        EXPECT_EQ(result.status, ATTNC_OK) << result.error;
        return result;
    }
    static std::vector<float> row(const RunResult& result, int64_t n, int64_t width) {
        return {result.out.begin() + n * width, result.out.begin() + (n + 1) * width};
    }
};
ATTNC_FOR_EACH_TARGET(MaskCases);

TEST_P(MaskCases, PaddingQueryWithoutKeysIsZero_M01) {
    LayerCall call = random_call("d16_h2_f32_noin_noout:b1_q6_kv10", 1);
    call.qk_scale = 0.125F;
    call.keep_mask = filled<uint8_t>({1, 1, 6, 10}, 0);
    for (int64_t i = 0; i < 5; ++i) {
        for (int64_t j = 0; j <= i; ++j) call.keep_mask.at(0, 0, i, j) = 1;
    }
    const RunResult got = run(call);
    EXPECT_TRUE(matches_reference(call, got, {.target = target()}));
    EXPECT_TRUE(same_bits(row(got, 5, 16), std::vector<float>(16, 0.0F)));
}

TEST_P(MaskCases, WholeHeadsMaskedLeaveTheOthersWithAndWithoutWeights_M03) {
    LayerCall call = random_call("d3_h3_f32:b1_q5_kv5", 3);
    call.keep_mask = {{1, 3, 1, 1}, {0, 0, 1}};
    const RunResult without = run(call);
    call.probs = true;
    const RunResult with = run(call);
    EXPECT_TRUE(matches_reference(call, with, {.target = target()}));
    EXPECT_TRUE(same_bits(without.out, with.out));
    for (size_t n = 0; n < 2 * 25; ++n) EXPECT_EQ(with.probs[n], 0.0F);
}

TEST_P(MaskCases, RowOfHugeNegativeBiasIsTheMeanOfValues_M05) {
    LayerCall call = random_call("d4_h1_f32_noin_noout:b1_q3_kv4", 5);
    for (const float huge : {kLowest, -1e30F, -1e9F}) {
        call.bias = filled<float>({1, 1, 3, 4}, 1);
        for (int64_t j = 0; j < 4; ++j) call.bias.at(0, 0, 0, j) = huge;
        const RunResult got = run(call);
        for (int64_t c = 0; c < 4; ++c) {
            double mean = 0;
            for (int64_t j = 0; j < 4; ++j) mean += call.value.at(0, j, c) / 4.0;
            EXPECT_NEAR(got.out[static_cast<size_t>(c)], mean, 1e-6) << huge;
        }
        LayerCall rest = call;
        rest.bias = filled<float>({1, 1, 1, 1}, 1);
        EXPECT_TRUE(same_bits(row(got, 1, 4), row(run(rest), 1, 4)));
    }
}

TEST_P(MaskCases, NanInDataIsNeverTurnedIntoZero_M07) {
    const LayerCall call = random_call("d32_h4_f32_noin_noout:b2_q16_kv16", 7);
    LayerCall all = call;
    for (float& x : all.query.values) x += kNan;
    for (const float y : run(all).out) ASSERT_TRUE(std::isnan(y));
    LayerCall one = call;
    one.query.at(1, 3, 9) = kNan;  // head 1 of one row
    EXPECT_TRUE(matches_reference(one, target()));
    LayerCall key = call;
    key.key.at(0, 5, 2) = kNan;  // every row of head 0 of item 0
    const RunResult got = run(key);
    EXPECT_TRUE(matches_reference(key, got, {.target = target()}));
    for (int64_t i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(row(got, i, 32)[0]));
}

TEST_P(MaskCases, AllFalseIsZeroAndAllTrueIsNoMask_M09) {
    LayerCall none = random_call("d4_h1_f32_noin_noout:b1_q3_kv4", 9);
    none.keep_mask = filled<uint8_t>({1, 1, 3, 4}, 0);
    EXPECT_TRUE(same_bits(run(none).out, std::vector<float>(12, 0.0F)));
    LayerCall all = random_call("d64_h4_f32_noin_noout:b2_q8_kv16", 9);
    const RunResult plain = run(all);
    all.keep_mask = filled<uint8_t>({2, 4, 8, 16}, 1);
    EXPECT_TRUE(same_bits(plain, run(all)));
}

TEST_P(MaskCases, EveryBroadcastOfABiasEqualsTheWholeOne_M11) {
    const LayerCall plain = random_call("d12_h3_f32:b2_q5_kv7", 11);
    for (int form = 0; form < 16; ++form) {
        const int64_t shape[4] = {form & 1 ? 2 : 1, form & 2 ? 3 : 1, form & 4 ? 5 : 1, form & 8 ? 7 : 1};
        LayerCall call = plain;
        call.key_lengths = {{2}, {7, 4}};  // beside it
        call.key_keep_mask = {{2, 7}, {1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1}};
        call.bias = random_array({shape[0], shape[1], shape[2], shape[3]}, 110, 3);
        call.keep_mask = filled<uint8_t>({shape[0], shape[1], shape[2], shape[3]}, 1);
        for (size_t n = 1; n < call.keep_mask.values.size(); n += 3) call.keep_mask.values[n] = 0;
        LayerCall whole = call;
        whole.bias = filled<float>({2, 3, 5, 7}, 0);
        whole.keep_mask = filled<uint8_t>({2, 3, 5, 7}, 0);
        for (int64_t n = 0; n < 2 * 3 * 5 * 7; ++n) {
            const int64_t b = n / 105, h = n / 35 % 3, i = n / 7 % 5, j = n % 7;
            const auto from = [&](const auto& array) {
                return array.at(b % shape[0], h % shape[1], i % shape[2], j % shape[3]);
            };
            whole.bias.at(b, h, i, j) = from(call.bias),
                                   whole.keep_mask.at(b, h, i, j) = from(call.keep_mask);
        }
        const RunResult got = run(call);
        EXPECT_TRUE(matches_reference(call, got, {.target = target()})) << "form " << form;
        EXPECT_TRUE(same_bits(got, run(whole))) << "form " << form;
    }
}

TEST_P(MaskCases, PolarityIsInTheName_M13) {
    LayerCall keep = random_call("d16_h2_f32:b1_q4_kv5", 13);
    LayerCall drop = keep, inverse = keep;
    keep.keep_mask = filled<uint8_t>({1, 1, 4, 5}, 1);
    for (size_t n = 0; n < 20; n += 3) keep.keep_mask.values[n] = 0;
    drop.drop_mask = inverse.drop_mask = keep.keep_mask;
    for (uint8_t& element : drop.drop_mask.values) element = element == 0 ? 1 : 0;
    EXPECT_TRUE(same_bits(run(keep), run(drop)));
    EXPECT_FALSE(same_bits(run(keep), run(inverse)));
}

TEST_P(MaskCases, BottomRightDiagonalCountsFromTheEnd_M15) {
    for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{2, 5}, {1, 9}, {5, 2}, {4, 4}}) {
        LayerCall call = random_call(parse_config("d16_h2_f32_noin_noout"), {1, queries, keys}, 15);
        call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        call.probs = true;
        const RunResult got = run(call);
        EXPECT_TRUE(matches_reference(call, got, {.target = target()}));
        for (int64_t i = 0; i < queries; ++i) {
            int64_t seen = 0;
            for (int64_t j = 0; j < keys; ++j)
                seen += got.probs[static_cast<size_t>(i * keys + j)] > 0 ? 1 : 0;
            EXPECT_EQ(seen, std::max<int64_t>(0, i + 1 + keys - queries));
        }
    }
}

TEST_P(MaskCases, LargeScoresNeitherOverflowNorVanish_M34) {
    for (const float size : {1e2F, 1e10F, 1e15F}) {  // scores up to 1e5, 1e21, 1e31
        LayerCall call = random_call("d16_h1_f32_noin_noout:b1_q4_kv6", 34);
        for (float& x : call.query.values) x = size;
        for (float& x : call.key.values) x = -size;
        for (int64_t c = 0; c < 16; ++c) call.key.at(0, 2, c) = size;  // one key dominates
        const RunResult got = run(call);
        for (int64_t i = 0; i < 4; ++i) {
            for (int64_t c = 0; c < 16; ++c) {
                EXPECT_EQ(row(got, i, 16)[static_cast<size_t>(c)], call.value.at(0, 2, c)) << size;
            }
        }
        for (int64_t c = 0; c < 16; ++c) call.key.at(0, 4, c) = size;  // two do
        const RunResult tie = run(call);
        for (int64_t c = 0; c < 16; ++c) {
            const double mean = (static_cast<double>(call.value.at(0, 2, c)) + call.value.at(0, 4, c)) / 2;
            EXPECT_NEAR(tie.out[static_cast<size_t>(c)], mean, 1e-6) << size;
        }
    }
}

// The scale is applied before the sum grows: 16 products of 1e38 do not fit, scaled ones do.
TEST_P(MaskCases, ScaledScoresThatFitAreFinite_M34) {
    LayerCall call = random_call("d16_h1_f32_noin_noout:b1_q2_kv3", 35);
    for (float& x : call.query.values) x = 1e19F;
    for (float& x : call.key.values) x = 1e19F;
    call.qk_scale = 0x1p-6F;
    EXPECT_TRUE(matches_reference(call, target()));
}

TEST_P(MaskCases, WeightsInEveryFormAgree_M53) {
    for (const int64_t seq : {1, 50, 129}) {
        LayerCall call = random_call(parse_config("d48_h3_f32"), {2, seq, seq}, 53);
        call.keep_mask = filled<uint8_t>({2, 1, seq, seq}, 1);
        for (int64_t j = 0; j < seq; ++j) call.keep_mask.at(0, 0, 0, j) = 0;  // one row without keys
        const RunResult none = run(call);
        call.probs_averaged = true;
        const RunResult averaged = run(call);
        call.probs = true;
        const RunResult both = run(call);
        EXPECT_TRUE(same_bits(none.out, averaged.out));
        EXPECT_TRUE(same_bits(averaged, both));
        for (int64_t n = 0; n < 2 * seq * seq; ++n) {
            const int64_t item = n / (seq * seq), place = n % (seq * seq);
            double mean = 0;
            for (int64_t h = 0; h < 3; ++h) {
                mean += both.probs[static_cast<size_t>((item * 3 + h) * seq * seq + place)] / 3.0;
            }
            ASSERT_NEAR(both.probs_averaged[static_cast<size_t>(n)], mean, 3 * 0x1p-23 * mean + 1e-38);
        }
        for (int64_t r = 0; r < 2 * 3 * seq; ++r) {
            double sum = 0;
            for (int64_t j = 0; j < seq; ++j) sum += both.probs[static_cast<size_t>(r * seq + j)];
            const bool empty = r / (3 * seq) == 0 && r % seq == 0;
            ASSERT_NEAR(sum, empty ? 0 : 1, 1e-5);
        }
    }
}

// Wherever a block of rows without keys lies, the rows beside it are as without them.
TEST_P(MaskCases, EmptyRowsMayLeadOrFillABlock_Further) {
    const LayerCall plain = random_call("d48_h3_f32_noin_noout:b1_q150_kv33", 54);
    const RunResult usual = run(plain);
    for (const auto& [first, end] :
         {std::pair<int64_t, int64_t>{0, 5}, {0, 64}, {60, 70}, {64, 128}, {140, 150}, {0, 150}}) {
        LayerCall call = plain;
        call.keep_mask = filled<uint8_t>({1, 1, 150, 33}, 1);
        for (int64_t n = first * 33; n < end * 33; ++n) call.keep_mask.values[static_cast<size_t>(n)] = 0;
        const RunResult got = run(call);
        for (int64_t i = 0; i < 150; ++i) {
            const bool empty = i >= first && i < end;
            EXPECT_TRUE(same_bits(row(got, i, 48), empty ? std::vector<float>(48, 0.0F) : row(usual, i, 48)))
                << "row " << i << " beside " << first << ".." << end;
        }
    }
}

}  // namespace
}  // namespace attnc::test
