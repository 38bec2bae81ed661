// Scores as an output of generated kernels.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

class Scores : public TargetTest {};
ATTNC_FOR_EACH_TARGET(Scores);

constexpr attnc_scores_stage kStages[] = {ATTNC_SCORES_SCALED, ATTNC_SCORES_SOFTCAPPED, ATTNC_SCORES_BIASED};

TEST_P(Scores, OfEveryStageMatchTheReference) {
    for (const char* schedule : {"", "tile_kv:64"}) {
        const RunOptions options = {.target = target(), .schedule = schedule};
        LayerCall call = random_call("d64_h4_kv2_f32_noout_alibi_softcap_scores:b2_q75_kv150", 1);
        call.key_lengths = {{2}, {150, 31}};
        call.query_lengths = {{2}, {60, 75}};
        call.causal = ATTNC_CAUSAL_TOP_LEFT;
        call.window_left = 20;
        call.bias = random_array({1, 4, 75, 150}, 2, 3);
        call.keep_mask = filled<uint8_t>({2, 1, 75, 150}, 1);
        Random random(3);
        for (uint8_t& element : call.keep_mask.values) element = random.chance(0.7) ? 1 : 0;
        call.probs = call.lse = true;
        const RunResult without = run_call(call, options);
        for (const attnc_scores_stage stage : kStages) {
            call.scores_stage = stage;
            const RunResult got = run_call(call, options);
            EXPECT_TRUE(matches_reference(call, got, options)) << stage;
            EXPECT_TRUE(same_bits(without, got)) << stage;  // of the outputs that both have
        }
    }
}

// The scaled scores of a library are what its softmax sees where nothing is added.
TEST_P(Scores, OfACallWithoutStepsAreTheSameAtEveryStage) {
    LayerCall call = random_call("d64_h4_f32_scores:b1_q40_kv70", 4);
    call.scores_stage = ATTNC_SCORES_SCALED;
    const RunResult scaled = run_call(call, target());
    for (const attnc_scores_stage stage : kStages) {
        call.scores_stage = stage;
        EXPECT_TRUE(same_bits(scaled, run_call(call, target()))) << stage;
    }
}

}  // namespace
}  // namespace attnc::test
