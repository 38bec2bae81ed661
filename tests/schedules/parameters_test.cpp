// Schedule parameters say how a kernel runs: they change no bit of what it computes, on any instruction set.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "schedules/cpu_params.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

const char kProblem[] = "d48_h3_kv1_hd32_vhd48_f32_alibi_softcap_scores:b2_q37_kv53";

// Lengths, a diagonal, a bias, both masks and a block mask, soft caps and ALiBi; every output.
LayerCall masked_call() {
    LayerCall call = random_call(kProblem, 11);
    const int64_t batch = 2, seq_q = 37, seq_kv = 53;
    call.keep_mask.shape = {batch, 1, seq_q, seq_kv};
    call.drop_mask.shape = {1, 3, seq_q, seq_kv};
    call.bias.shape = {1, 3, 1, seq_kv};
    for (int64_t n = 0; n < batch * seq_q * seq_kv; n++) {
        call.keep_mask.values.push_back(n % 5 != 0 ? 1 : 0);
    }
    for (int64_t n = 0; n < 3 * seq_q * seq_kv; n++) {
        call.drop_mask.values.push_back(n % 7 == 0 ? 1 : 0);
    }
    for (int64_t n = 0; n < 3 * seq_kv; n++) {
        call.bias.values.push_back(static_cast<float>(n % 11) * 0.125f);
    }
    call.key_lengths.shape = {batch};
    call.key_lengths.values = {53, 40};
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    call.block_q = 16, call.block_kv = 16;
    call.block_keep_mask = {{1, 3, 3, 4}, std::vector<uint8_t>(36, 1)};
    for (const size_t n : {0, 5, 8, 9, 10, 13, 17, 21, 26, 30, 34}) call.block_keep_mask.values[n] = 0;
    call.probs = call.lse = true;
    call.scores_stage = ATTNC_SCORES_BIASED;
    return call;
}

LayerCall causal_call() {
    LayerCall call = random_call(kProblem, 12);
    call.softcap = 0, call.alibi_slopes = {};
    call.causal = ATTNC_CAUSAL_TOP_LEFT;
    call.lse = true;
    return call;
}

// Few queries of a library with a cache: blocks of rows, and one row.
LayerCall decode_call(int64_t queries) {
    LayerCall call =
        random_call("d48_h3_kv1_hd32_vhd48_f32_cache:b2_q" + std::to_string(queries) + "_kv83", 13);
    call.bias = random_array({1, 3, queries, 83}, 14, 2);
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    call.lse = true;
    return call;
}

void expect_same_bits(const LayerCall& call, const std::string& target, const std::string& schedule) {
    ASSERT_NO_THROW(
        check_schedule(parse_schedule(schedule, default_schedule(call.config, target)), call.config, target));
    // A library of this target alone: others could not have every schedule.
    const RunOptions usual_options = {.target = target};
    const RunResult usual = run_call(call, usual_options);
    ASSERT_EQ(usual.status, ATTNC_OK) << usual.error;
    EXPECT_TRUE(matches_reference(call, usual, usual_options));
    const RunResult other =
        run_call(call, RunOptions{.target = target, .schedule = schedule, .only_target = true});
    ASSERT_EQ(other.status, ATTNC_OK) << other.error;
    EXPECT_TRUE(same_bits(usual, other)) << target << " " << schedule;
}

class Parameters : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Parameters, ChangeNoBit) {
    const auto& [target, schedule] = GetParam();
    if (!cpu_runs(target)) {
        GTEST_SKIP() << "this CPU does not run " << target;
    }
    for (const LayerCall& call : {masked_call(), causal_call()}) expect_same_bits(call, target, schedule);
}

const std::string kOneForm = "attend_narrow.rows:0,attend_single.rows:0";
const std::string kNarrow =
    "attend_narrow.q_vectors:1,attend_narrow.key_rows:1,attend_narrow.tail_rows:1,"
    "attend_narrow.context_rows:1,attend_narrow.context_columns:16,attend_narrow.rows:";
const std::string kSingle =
    "attend_single.q_vectors:1,attend_single.key_rows:2,attend_single.tail_rows:2,"
    "attend_single.context_rows:2,attend_single.context_columns:16,attend_single.rows:";

// Every field with a value that isn't its default, within what the smallest instruction set's registers hold.
INSTANTIATE_TEST_SUITE_P(
    EveryField, Parameters,
    ::testing::Combine(
        ::testing::ValuesIn(all_targets()),
        ::testing::Values("panel:16", "out_panel:16,project_out.rows:2,project_out_tail.rows:1",
                          "project_heads.rows:1,project_heads_tail.rows:0",
                          "project_out.rows:1,project_out_tail.rows:0",
                          "project_heads_tail.rows:0,project_out_tail.rows:0",
                          "project_heads_tail.rows:1,project_out_tail.rows:1", kOneForm + ",attend.rows:8",
                          kOneForm + ",attend.q_vectors:1,attend.rows:16", kOneForm,
                          kNarrow + "8," + kSingle + "4", kNarrow + "8,attend_single.rows:0",
                          "attend_narrow.rows:0," + kSingle + "12", "attend.key_rows:1,attend.tail_rows:1",
                          "attend.context_rows:1", "attend.context_columns:16,attend.context_rows:2",
                          "attend_masked.rows:8,attend_masked.context_rows:1",
                          "attend_masked.key_rows:1,attend_masked.tail_rows:1",
                          "attend_masked.rows:12,attend_masked.context_rows:2",
                          "attend_masked.q_vectors:1,attend_masked.rows:16",
                          "attend_guarded.rows:8,attend_guarded.context_rows:1",
                          "attend_guarded.key_rows:1,attend_guarded.tail_rows:1", "attend_probs.rows:8",
                          "attend_probs.key_rows:1,attend_probs.tail_rows:1")));

class DecodeParameters : public TargetTest {};

TEST_P(DecodeParameters, ChangeNoBit) {
    if (!cpu_runs(target())) GTEST_SKIP() << "this CPU does not run " << target();
    // Blocks whose sums fill a vector of this target, and whose contexts are one wide.
    const int64_t lanes = vector_unit(target()).lanes;
    const std::string tall = "attend_decode.rows:" + std::to_string(lanes == 16 ? 16 : 8) +
                             ",attend_decode.keys:1,attend_decode.columns:" + std::to_string(lanes);
    const std::string flat = "attend_decode.rows:2,attend_decode.keys:" + std::to_string(lanes == 16 ? 8 : 4);
    for (const std::string& schedule : {tall, flat, std::string("attend_decode.single_columns:16")}) {
        for (const int64_t queries : {1, 5}) expect_same_bits(decode_call(queries), target(), schedule);
    }
}

ATTNC_FOR_EACH_TARGET(DecodeParameters);

}  // namespace
}  // namespace attnc::test
