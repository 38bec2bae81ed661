// Soft caps and ALiBi through the runtime: which kernel is called, with which numbers, for which keys.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

TEST(ScoreSteps, MatchTheReference) {
    for (const char* options :
         {"_softcap", "_alibi", "_alibi_softcap", "_nomask_softcap", "_nomask_alibi", "_causal_alibi",
          "_zeroattn_alibi_softcap", "_biaskv_zeroattn_softcap", "_sink_alibi_softcap", "_noprobs_softcap"}) {
        for (const char* sizes : {":b2_q20_kv40", ":b2_q5_kv7", ":b2_q9_kv0", ":b1_q1_kv33"}) {
            LayerCall call = everything("d40_h4_kv2_f32" + std::string(options) + sizes, 1);
            FakeOptions run;
            run.concurrency = 3, run.executor = FakeExecutor::kBackwards;
            EXPECT_TRUE(matches(call, run));
            call.key_lengths = filled<int64_t>({call.sizes.batch}, call.sizes.seq_kv / 2);
            call.query_lengths = filled<int64_t>({call.sizes.batch}, call.sizes.seq_q / 2 + 1);
            EXPECT_TRUE(matches(call, run));
            call.window_left = 5, call.window_right = 2;
            EXPECT_TRUE(matches(call, run));
        }
    }
}

TEST(ScoreSteps, TakeTheCallsDiagonal) {
    LayerCall call = everything("d40_h4_f32_alibi_softcap:b3_q20_kv40", 2);
    for (const attnc_causal causal : {ATTNC_CAUSAL_NONE, ATTNC_CAUSAL_TOP_LEFT, ATTNC_CAUSAL_BOTTOM_RIGHT}) {
        call.causal = causal;
        EXPECT_TRUE(matches(call)) << causal;
    }
    call.causal = ATTNC_CAUSAL_OFFSET;
    call.causal_offsets = {{3}, {-7, 5, 100}};
    EXPECT_TRUE(matches(call));
}

TEST(ScoreSteps, CombineWithMasksAndBiases) {
    LayerCall call = everything("d40_h4_f32_alibi_softcap:b2_q20_kv40", 3);
    call.bias = random_array({2, 4, 20, 40}, 4, 3);
    call.key_bias = random_array({2, 40}, 5, 3);
    call.keep_mask = filled<uint8_t>({1, 4, 20, 40}, 1);
    Random random(6);
    for (uint8_t& element : call.keep_mask.values) element = random.chance(0.5) ? 1 : 0;
    EXPECT_TRUE(matches(call));
}

TEST(ScoreSteps, GoThroughTheMaskedKernelOnlyWhereALayerHasThem) {
    LayerCall call = random_call("d40_h4_f32_zeroattn_alibi_softcap:b1_q5_kv7", 7);
    const auto calls = [&](float softcap, bool alibi) {
        LayerCall changed = call;
        changed.softcap = softcap;
        if (!alibi) changed.alibi_slopes = {};
        fake_counts().reset();
        EXPECT_TRUE(matches(changed));
        return std::pair(fake_counts().calls[ATTNC_KERNEL_ATTEND].load(),
                         fake_counts().calls[ATTNC_KERNEL_ATTEND_MASKED].load());
    };
    EXPECT_EQ(calls(0, false), std::pair(int64_t{8}, int64_t{0}));
    EXPECT_EQ(calls(4, false), std::pair(int64_t{0}, int64_t{8}));
    EXPECT_EQ(calls(0, true), std::pair(int64_t{4}, int64_t{4}));  // the appended key has no distance
    EXPECT_EQ(calls(4, true), std::pair(int64_t{0}, int64_t{8}));
}

// Distances of keys that are far beyond any, and slopes whose product overflows: the scores stay numbers.
TEST(ScoreSteps, OfHugeDistancesAndSlopes) {
    LayerCall call = everything("d40_h4_f32_alibi:b1_q5_kv7", 8);
    call.causal = ATTNC_CAUSAL_OFFSET;
    call.causal_offsets = {{1}, {int64_t{1} << 60}};
    call.alibi_slopes = filled<float>({4}, 0x1p-20F);
    const FakeResult far = run_fake(call);
    ASSERT_EQ(far.status, ATTNC_OK) << far.error;
    for (const float lse : far.lse) EXPECT_TRUE(std::isfinite(lse));
    call.causal_offsets = {{1}, {2}};
    call.alibi_slopes = filled<float>({4}, 3e38F);
    EXPECT_TRUE(matches(call));
}

}  // namespace
}  // namespace attnc::test
