// Faults that users of other attention layers met with masks, rows without keys and diagonals; each as the behaviour
// that is right, with the public report of the fault above it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/cases/call_test.h"

namespace attnc::test {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();

class MaskCases : public CallTest {};
ATTNC_FOR_EACH_TARGET(MaskCases);

// A query of padding whose row of the mask is all false gave NaN (pytorch/pytorch#103749).
TEST_P(MaskCases, PaddingQueryWithoutKeysIsZero) {
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

// With whole heads masked every output was NaN, but only where weights were asked for (pytorch/pytorch#160064).
TEST_P(MaskCases, WholeHeadsMaskedLeaveTheOthersWithAndWithoutWeights) {
    LayerCall call = random_call("d3_h3_f32:b1_q5_kv5", 3);
    call.keep_mask = {{1, 3, 1, 1}, {0, 0, 1}};
    const RunResult without = run(call);
    call.probs = true;
    const RunResult with = run(call);
    EXPECT_TRUE(matches_reference(call, with, {.target = target()}));
    EXPECT_TRUE(same_bits(without.out, with.out));
    for (size_t n = 0; n < 2 * 25; ++n) EXPECT_EQ(with.probs[n], 0.0F);
}

// A row whose biases are all the most negative float gave NaN on one device and the mean on another
// (pytorch/pytorch#110213).
TEST_P(MaskCases, RowOfHugeNegativeBiasIsTheMeanOfValues) {
    LayerCall call = random_call("d4_h1_f32_noin_noout:b1_q3_kv4", 5);
    for (const float huge : {kLowest, -1e30F, -1e9F, -65504.0F}) {
        call.bias = filled<float>({1, 1, 3, 4}, 1);
        for (int64_t j = 0; j < 4; ++j) call.bias.at(0, 0, 0, j) = huge;
        const RunResult got = run(call);
        EXPECT_TRUE(matches_reference(call, got, {.target = target()})) << huge;
        for (int64_t c = 0; c < 4 && huge <= -1e9F; ++c) {  // the scores are absorbed
            double mean = 0;
            for (int64_t j = 0; j < 4; ++j) mean += call.value.at(0, j, c) / 4.0;
            EXPECT_NEAR(got.out[static_cast<size_t>(c)], mean, 1e-6) << huge;
        }
        LayerCall rest = call;
        rest.bias = filled<float>({1, 1, 1, 1}, 1);
        EXPECT_TRUE(same_bits(row(got, 1, 4), row(run(rest), 1, 4)));
    }
}

// An all-false mask gave NaN, and an all-true one other results than none (openvinotoolkit/openvino#35959, #31630).
TEST_P(MaskCases, AllFalseIsZeroAndAllTrueIsNoMask) {
    LayerCall none = random_call("d4_h1_f32_noin_noout:b1_q3_kv4", 9);
    none.keep_mask = filled<uint8_t>({1, 1, 3, 4}, 0);
    EXPECT_TRUE(same_bits(run(none).out, std::vector<float>(12, 0.0F)));
    LayerCall all = random_call("d64_h4_f32_noin_noout:b2_q8_kv16", 9);
    const RunResult plain = run(all);
    all.keep_mask = filled<uint8_t>({2, 4, 8, 16}, 1);
    EXPECT_TRUE(same_bits(plain, run(all)));
}

// A bias broadcast over heads was read at a wrong offset in batches, and a padding mask beside it worked only where
// batch and heads were equal (microsoft/onnxruntime#24017, keras-team/keras-hub#783).
TEST_P(MaskCases, EveryBroadcastOfABiasEqualsTheWholeOne) {
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

// True meant "ignore" in one interface and "attend" in the other (pytorch/pytorch#170400).
TEST_P(MaskCases, PolarityIsInTheName) {
    LayerCall keep = random_call("d16_h2_f32:b1_q4_kv5", 13);
    LayerCall drop = keep, inverse = keep;
    keep.keep_mask = filled<uint8_t>({1, 1, 4, 5}, 1);
    for (size_t n = 0; n < 20; n += 3) keep.keep_mask.values[n] = 0;
    drop.drop_mask = inverse.drop_mask = keep.keep_mask;
    for (uint8_t& element : drop.drop_mask.values) element = element == 0 ? 1 : 0;
    EXPECT_TRUE(same_bits(run(keep), run(drop)));
    EXPECT_FALSE(same_bits(run(keep), run(inverse)));
}

// With a top-left diagonal a decoded token sees key 0 alone; with more queries than keys the first rows are empty
// (pytorch/pytorch#108108, #103082, #144858, Dao-AILab/flash-attention#1778).
TEST_P(MaskCases, BottomRightDiagonalCountsFromTheEnd) {
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

// Rows without keys gave NaN only where they led the batch (ikawrakow/ik_llama.cpp#2344). Wherever such a block lies,
// the rows beside it are as without it.
TEST_P(MaskCases, EmptyRowsMayLeadOrFillABlock) {
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
