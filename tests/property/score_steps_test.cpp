// Soft caps and ALiBi on generated kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tests/harness/scheduled_test.h"

namespace attnc::test {
namespace {

// One block of keys, and blocks of 64.
class ScoreSteps : public ScheduledTest {};
ATTNC_FOR_EACH_SCHEDULE(ScoreSteps, "", "tile_kv:64");

constexpr const char* kConfig = "d64_h4_kv2_f32_noout_alibi_softcap";

TEST_P(ScoreSteps, MatchTheReference) {
    LayerCall call = everything(std::string(kConfig) + ":b2_q75_kv150", 1);
    for (const float softcap : {0.0F, 0.5F, 4.0F, 50.0F, 0x1p126F}) {
        for (const bool alibi : {false, true}) {
            LayerCall changed = call;
            changed.softcap = softcap;
            if (!alibi) changed.alibi_slopes = {};
            EXPECT_TRUE(matches_reference(changed, options())) << softcap << (alibi ? " with ALiBi" : "");
            changed.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
            EXPECT_TRUE(matches_reference(changed, options())) << softcap << (alibi ? " with ALiBi" : "");
        }
    }
    call.key_lengths = {{2}, {150, 31}};
    call.query_lengths = {{2}, {60, 75}};
    call.bias = random_array({1, 4, 75, 150}, 2, 3);
    call.keep_mask = filled<uint8_t>({2, 1, 75, 150}, 1);
    Random random(3);
    for (uint8_t& element : call.keep_mask.values) element = random.chance(0.5) ? 1 : 0;
    call.window_left = 40, call.window_right = 7;
    EXPECT_TRUE(matches_reference(call, options()));
}

TEST_P(ScoreSteps, ReachAppendedKeysAsFarAsTheyShould) {
    for (const char* suffix : {"_biaskv_zeroattn", "_zeroattn_sink"}) {
        LayerCall call = everything("d64_h4_f32" + std::string(suffix) + "_alibi_softcap:b2_q20_kv100", 4);
        call.key_lengths = {{2}, {100, 0}};
        EXPECT_TRUE(matches_reference(call, options())) << suffix;
    }
}

TEST_P(ScoreSteps, ADroppedKeyStaysDropped) {
    LayerCall call = everything(std::string(kConfig) + ":b1_q40_kv100", 5);
    call.causal = ATTNC_CAUSAL_TOP_LEFT;
    call.key_drop_mask = filled<uint8_t>({1, 100}, 0);
    call.key_drop_mask.at(0, 3) = 1;
    const RunResult clean = run(call);
    LayerCall spoilt = call;
    for (const int64_t key : {3, 60, 99}) {
        for (int64_t n = 0; n < 64; ++n)
            spoilt.key.at(0, key, n) = spoilt.value.at(0, key, n) = std::numeric_limits<float>::quiet_NaN();
    }
    EXPECT_TRUE(same_bits(clean, run(spoilt)));
}

// An infinite score is a score: capped, it is +-softcap.
TEST_P(ScoreSteps, CapInfiniteScores) {
    LayerCall call = everything("d32_h2_f32_noin_noout_softcap:b1_q20_kv40", 6);
    const float infinity = std::numeric_limits<float>::infinity();
    for (int64_t row = 0; row < 20; ++row) call.query.at(0, row, 0) = 1, call.query.at(0, row, 16) = -1;
    call.key.at(0, 5, 0) = infinity;
    call.key.at(0, 5, 16) = infinity;
    EXPECT_TRUE(matches_reference(call, options()));
}

TEST_P(ScoreSteps, InTasksAndChunksAreTheSame) {
    LayerCall call = random_call(std::string(kConfig) + ":b1_q150_kv300", 7);
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    call.lse = true;
    const RunResult all = run(call);
    for (const int64_t tasks : {2, 7, 40}) {
        RunOptions many = options();
        many.executor = Executor::kSequential, many.concurrency = tasks;
        EXPECT_TRUE(same_bits(all, run_call(call, many))) << tasks << " tasks";
    }
    for (const int64_t first : {0, 50, 100}) {
        LayerCall chunk = call;
        chunk.sizes.seq_q = 50;
        chunk.query = filled<float>({1, 50, 64}, 0);
        std::copy_n(call.query.values.begin() + first * 64, 50 * 64, chunk.query.values.begin());
        chunk.causal = ATTNC_CAUSAL_OFFSET;
        chunk.causal_offsets = {{1}, {150 + first}};
        const std::vector<float> want(all.out.begin() + first * 64, all.out.begin() + (first + 50) * 64);
        EXPECT_TRUE(same_bits(run(chunk).out, want)) << "from query " << first;
    }
}

TEST_P(ScoreSteps, OfNothingChangeNothing) {
    LayerCall with = random_call("d64_h4_f32_alibi_softcap:b2_q40_kv100", 8);
    with.lse = true;
    with.softcap = 0, with.alibi_slopes = {};
    LayerCall without = with;
    without.config = parse_config("d64_h4_f32");
    EXPECT_TRUE(same_bits(run(with), run(without)));
    with.alibi_slopes = filled<float>({4}, 0);
    EXPECT_TRUE(same_bits(run(with), run(without)));
}

}  // namespace
}  // namespace attnc::test
