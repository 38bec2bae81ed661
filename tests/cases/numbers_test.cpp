// Faults that users of other attention layers met with numbers: NaN in data, large scores, denormal numbers and the
// floating-point control word, and with the weights of attention as an output; each with its public report.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/cases/call_test.h"
#include "tests/cases/direct_call.h"

namespace attnc::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class NumberCases : public CallTest {};
ATTNC_FOR_EACH_TARGET(NumberCases);

// What makes rows without keys zero also turned NaN in the data into zeros (pytorch/pytorch#141128).
TEST_P(NumberCases, NanInDataIsNeverTurnedIntoZero) {
    const LayerCall call = random_call("d32_h4_f32_noin_noout:b2_q16_kv16", 7);
    LayerCall all = call;
    for (float& x : all.query.values) x += kNan;
    for (const float y : run(all).out) ASSERT_TRUE(std::isnan(y));
    LayerCall one_row = call;
    for (int64_t c = 0; c < 32; ++c) one_row.query.at(0, 4, c) = kNan;
    EXPECT_TRUE(matches_reference(one_row, target()));
    LayerCall one = call;
    one.query.at(1, 3, 9) = kNan;  // head 1 of one row
    EXPECT_TRUE(matches_reference(one, target()));
    LayerCall key = call;
    key.key.at(0, 5, 2) = kNan;  // every row of head 0 of item 0
    const RunResult got = run(key);
    EXPECT_TRUE(matches_reference(key, got, {.target = target()}));
    for (int64_t i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(row(got, i, 32)[0]));
}

// Products beyond the range of half precision became infinity minus infinity, because one backend scaled late
// (pytorch/pytorch#119131). Scores up to 16e4, 16e20, 16e37: the largest takes all, two of them share.
TEST_P(NumberCases, LargeScoresNeitherOverflowNorVanish) {
    for (const float size : {2e2F, 2e10F, 1e18F, 9e18F}) {
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

// 16 products of 1e38 don't fit a float, but scaled by 1/64 they do: the scale comes before the sum.
TEST_P(NumberCases, ScaledScoresThatFitAreFinite) {
    LayerCall call = random_call("d16_h1_f32_noin_noout:b1_q2_kv3", 35);
    for (float& x : call.query.values) x = 1e19F;
    for (float& x : call.key.values) x = 1e19F;
    call.qk_scale = 0x1p-6F;
    EXPECT_TRUE(matches_reference(call, target()));
}

// A score that doesn't fit is infinite: +inf makes its row NaN, -inf is a weight of 0. The same for all instruction
// sets, with masks and without.
TEST_P(NumberCases, ScoresThatOverflowAreInfinite) {
    for (const bool masked : {false, true}) {
        LayerCall call = random_call("d16_h1_f32_noin_noout:b1_q2_kv3", 36);
        if (masked) call.bias = filled<float>({1, 1, 2, 3}, 0);
        for (int64_t c = 0; c < 16; ++c) call.query.at(0, 1, c) = call.key.at(0, 1, c) = 1e25F;
        for (int64_t c = 0; c < 16; ++c) call.query.at(0, 0, c) = -1;
        const RunResult positive = run(call);
        for (const float y : row(positive, 1, 16)) EXPECT_TRUE(std::isnan(y)) << masked;
        for (const float y : row(positive, 0, 16)) EXPECT_FALSE(std::isnan(y)) << masked;

        for (int64_t c = 0; c < 16; ++c) call.query.at(0, 1, c) = -1e25F;
        for (int64_t c = 0; c < 16; ++c) call.key.at(0, 0, c) = call.key.at(0, 2, c) = 0;
        const RunResult negative = run(call);
        for (int64_t c = 0; c < 16; ++c) {
            const double mean = (static_cast<double>(call.value.at(0, 0, c)) + call.value.at(0, 2, c)) / 2;
            EXPECT_NEAR(row(negative, 1, 16)[static_cast<size_t>(c)], mean, 1e-6) << masked;
        }
    }
}

// Denormal weights and activations made layers ten times slower (microsoft/onnxruntime#5472, #5117, #13968,
// pytorch/pytorch#4737). They count as zero here, which no timing has to show: the bits do.
TEST_P(NumberCases, DenormalWeightsAndActivationsCountAsZero) {
    const LayerCall call = random_call("d48_h3_f32:b2_q9_kv11", 38);
    const std::vector<Array<float> LayerCall::*> tensors = {
        &LayerCall::wq, &LayerCall::wk,    &LayerCall::wv,  &LayerCall::wo,
        &LayerCall::bv, &LayerCall::query, &LayerCall::key, &LayerCall::value};
    for (size_t n = 0; n < tensors.size(); ++n) {
        LayerCall denormal = call, zero = call;
        for (float& x : (denormal.*tensors[n]).values) x *= 1e-40F;
        for (float& x : (zero.*tensors[n]).values) x = 0;
        const RunResult got = run(denormal), want = run(zero);
        for (size_t i = 0; i < want.out.size(); ++i) {
            ASSERT_EQ(got.out[i], want.out[i]) << "tensor " << n;
        }
    }
    LayerCall bare = random_call("d48_h3_f32_noin_noout:b1_q5_kv7", 39);
    for (float& x : bare.value.values) x *= 1e-40F;
    for (const float y : run(bare).out) ASSERT_EQ(y, 0.0F);
}

// The same with weights of attention near e^-90, which only very large values would make visible.
TEST_P(NumberCases, DenormalWeightsOfAttentionCountAsZero) {
    LayerCall call = random_call("d16_h1_f32_noin_noout:b1_q3_kv5", 40);
    for (float& x : call.query.values) x = 0;
    for (float& x : call.value.values) x = 1e30F;
    for (int64_t c = 0; c < 16; ++c) call.value.at(0, 0, c) = 0;
    for (const float bias : {-87.5F, -88.0F, -90.0F, -100.0F}) {  // e^-87.5 is 1e-38
        call.bias = filled<float>({1, 1, 1, 5}, bias);
        call.bias.at(0, 0, 0, 0) = 0;
        call.probs = true;
        const RunResult got = run(call);
        for (const float y : got.out) ASSERT_EQ(y, 0.0F) << bias;
        for (size_t n = 0; n < got.probs.size(); ++n) {
            ASSERT_EQ(got.probs[n], n % 5 == 0 ? 1.0F : 0.0F) << bias;
        }
    }
}

// Words that a thread may come with: rounding upwards, denormals flushed, all of the flags raised, none.
constexpr unsigned int kWords[] = {0x1f80, 0x1f80 | 0x4000, 0x1f80 | 0x8040, 0x1f80 | 0x3f, 0x1f80 | 0xe07f};

// Runs its tasks on a thread of its own with a control word of its own, and keeps the word that they leave.
struct WordedThread {
    unsigned int before = 0, after = 0;
    static int parallel_for(void* context, int64_t count, int (*task)(void*, int64_t), void* data) {
        auto& self = *static_cast<WordedThread*>(context);
        int failed = 0;
        std::thread([&] {
            _mm_setcsr(self.before);
            for (int64_t n = 0; n < count; ++n) failed |= task(data, n);
            self.after = _mm_getcsr();
        }).join();
        return failed;
    }
};

// A layer that flushes denormals must not leave its caller's threads that way: the control word comes back bit for bit.
TEST_P(NumberCases, ControlWordComesBackBitForBit) {
    const LayerCall call = random_call("d48_h3_f32:b2_q9_kv11", 41);
    const LayerPointer layer = make_layer(call, target());
    const std::vector<float> usual = forward(layer.get(), call);
    Array<float> out = filled<float>({2, 9, 48}, 0);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = out.view();
    const attnc_inputs in = call.inputs();
    Workspace workspace;
    ASSERT_TRUE(forward(layer.get(), in, outputs, workspace).ok());
    for (const unsigned int word : kWords) {
        const unsigned int mine = _mm_getcsr();
        _mm_setcsr(word);
        const DirectResult here = forward(layer.get(), in, outputs, workspace);
        const unsigned int after = _mm_getcsr();
        _mm_setcsr(mine);
        EXPECT_TRUE(here.ok()) << here.error;
        EXPECT_EQ(after, word);
        EXPECT_TRUE(same_bits(usual, out.values));

        WordedThread thread{word};
        const attnc_executor executor = {&thread, 1, WordedThread::parallel_for};
        const DirectResult there = forward(layer.get(), in, outputs, workspace, &executor);
        EXPECT_TRUE(there.ok()) << there.error;
        EXPECT_EQ(thread.after, word);
        EXPECT_TRUE(same_bits(usual, out.values));
    }
}

// Weights came averaged over heads without a choice, or not at all, depending on the path taken (pytorch/pytorch#47583,
// #34537, #109528, keras-team/keras#19303). Asked for or not, in one form or both, out has the same bits.
TEST_P(NumberCases, WeightsInEveryFormAgree) {
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

}  // namespace
}  // namespace attnc::test
