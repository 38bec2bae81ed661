// Scores as an output, through the runtime.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

constexpr attnc_scores_stage kStages[] = {ATTNC_SCORES_SCALED, ATTNC_SCORES_SOFTCAPPED, ATTNC_SCORES_BIASED};
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

LayerCall with_lengths(const std::string& problem, uint64_t seed) {
    LayerCall call = random_call(problem, seed);
    call.key_lengths = {{2}, {call.sizes.seq_kv, call.sizes.seq_kv / 2}};
    call.query_lengths = {{2}, {call.sizes.seq_q, call.sizes.seq_q / 2}};
    return call;
}

TEST(Scores, OfEveryStageMatchTheReference) {
    for (const char* problem :
         {"d40_h4_kv2_f32_scores:b2_q20_kv40", "d40_h4_kv2_f32_alibi_softcap_scores:b2_q20_kv40",
          "d40_h2_f32_nomask_noprobs_scores:b2_q5_kv7",
          "d40_h2_f32_biaskv_zeroattn_softcap_scores:b2_q5_kv20",
          "d40_h2_f32_noin_noout_sink_scores:b2_q5_kv20", "d32_h2_f32_causal_scores:b2_q33_kv40",
          "d32_h2_f32_scores:b2_q5_kv0"}) {
        for (const attnc_scores_stage stage : kStages) {
            LayerCall call = with_lengths(problem, 1);
            call.scores_stage = stage;
            EXPECT_TRUE(matches(call)) << stage;
            call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
            call.window_left = 6;
            FakeOptions options;
            options.executor = FakeExecutor::kBackwards, options.concurrency = 7;
            options.row_gap = 3, options.item_gap = 5;
            EXPECT_TRUE(matches(call, options)) << stage;
            if (!call.config.masks) continue;
            const Sizes& s = call.sizes;
            call.bias = random_array({1, call.config.num_heads, s.seq_q, s.seq_kv}, 2, 3);
            call.keep_mask = filled<uint8_t>({2, 1, s.seq_q, s.seq_kv}, 1);
            call.key_bias = random_array({2, s.seq_kv}, 3, 3);
            call.block_q = call.block_kv = 16;
            call.block_keep_mask = filled<uint8_t>({1, 1, (s.seq_q + 15) / 16, (s.seq_kv + 15) / 16}, 1);
            Random random(4);
            for (uint8_t& element : call.keep_mask.values) element = random.chance(0.5) ? 1 : 0;
            for (uint8_t& element : call.block_keep_mask.values) element = random.chance(0.5) ? 1 : 0;
            EXPECT_TRUE(matches(call, options)) << stage;
        }
    }
}

TEST(Scores, BeforeBiasesHaveEveryKey) {
    LayerCall call = random_call("d32_h2_f32_scores:b1_q20_kv40", 5);
    call.causal = ATTNC_CAUSAL_TOP_LEFT;
    call.key_drop_mask = filled<uint8_t>({1, 40}, 1);
    for (const attnc_scores_stage stage : kStages) {
        call.scores_stage = stage;
        const FakeResult got = run_fake(call);
        ASSERT_EQ(got.status, ATTNC_OK) << got.error;
        for (const float score : got.scores) EXPECT_EQ(score == kMinusInfinity, stage == ATTNC_SCORES_BIASED);
    }
}

TEST(Scores, ChangeNoOtherBit) {
    LayerCall call = with_lengths("d40_h4_kv2_f32_alibi_softcap_scores:b2_q20_kv60", 6);
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    call.window_left = 10;
    call.probs = call.lse = true;
    const FakeResult without = run_fake(call);
    for (const attnc_scores_stage stage : kStages) {
        call.scores_stage = stage;
        EXPECT_TRUE(equal_bits(without, run_fake(call))) << stage;
    }
}

}  // namespace
}  // namespace attnc::test
