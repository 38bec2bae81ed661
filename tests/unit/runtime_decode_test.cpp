// Items with few queries through the runtime: attended split by split by attend_decode, which gets keys from wherever they
// are and at most as many rows as it takes; joined in order.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

FakeOptions options(int64_t split_kv = 16) {
    FakeOptions run;
    run.layout.tile_kv = 32, run.layout.split_kv = split_kv;
    run.concurrency = 3, run.executor = FakeExecutor::kBackwards;
    return run;
}

TEST(Decode, MatchesTheReference) {
    for (const char* suffix :
         {"", "_nomask_noprobs", "_causal", "_sink", "_zeroattn_biaskv", "_alibi_softcap"}) {
        for (const char* sizes : {":b2_q1_kv100", ":b1_q8_kv16", ":b3_q5_kv33", ":b2_q3_kv0", ":b2_q1_kv1"}) {
            const LayerCall call = everything("d40_h4_kv2_f32" + std::string(suffix) + "_cache" + sizes, 1);
            for (const int64_t split_kv : {16, 48, 256}) EXPECT_TRUE(matches(call, options(split_kv)));
        }
    }
}

TEST(Decode, MasksLengthsAndWindows) {
    for (const int64_t seq_q : {2, 12}) {
        LayerCall call = everything("d40_h4_kv2_f32_cache:b3_q" + std::to_string(seq_q) + "_kv70", 2);
        call.bias = random_array({3, 4, seq_q, 70}, 3, 3);
        call.key_bias = random_array({3, 70}, 4, 3);
        call.keep_mask = filled<uint8_t>({1, 4, seq_q, 70}, 1);
        call.drop_mask = filled<uint8_t>({3, 1, 1, 70}, 0);
        Random random(5);
        for (uint8_t& element : call.keep_mask.values) element = random.chance(0.5) ? 1 : 0;
        for (uint8_t& element : call.drop_mask.values) element = random.chance(0.2) ? 1 : 0;
        EXPECT_TRUE(matches(call, options()));
        call.key_lengths = {{3}, {70, 17, 0}};
        call.query_lengths = {{3}, {seq_q, 1, 2}};
        EXPECT_TRUE(matches(call, options()));
        call.window_left = 20, call.window_right = 3;
        for (const attnc_empty_rows policy :
             {ATTNC_EMPTY_ROWS_ZERO, ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, ATTNC_EMPTY_ROWS_NAN}) {
            call.empty_rows = policy;
            EXPECT_TRUE(matches(call, options()));
        }
    }
}

TEST(Decode, TakesTokensWhereTheyAre) {
    LayerCall call = everything("d64_h4_kv2_f32_noin_noout_cache:b2_q4_kv50", 6);
    FakeOptions run = options();
    run.row_gap = 5, run.item_gap = 7;
    for (const bool rank4 : {false, true}) {
        run.rank4 = rank4;
        EXPECT_TRUE(matches(call, run));
    }
}

TEST(Decode, CutsGroupsToTheRowsOfACall) {
    // The scalar kernel refuses more than 64 rows.
    EXPECT_TRUE(matches(everything("d384_h24_kv1_f32_cache:b1_q8_kv40", 7), options()));
    EXPECT_TRUE(matches(everything("d1600_h100_kv1_f32_noprobs_cache:b1_q1_kv40", 8), options()));
    FakeOptions few_rows = options();  // in a task's memory for statistics
    few_rows.layout.tile_q = 1;
    EXPECT_TRUE(matches(everything("d64_h4_kv2_f32_cache:b1_q7_kv40", 9), few_rows));
}

TEST(Decode, IsChosenByTheValidQueriesOfAnItem) {
    const auto calls = [](const LayerCall& call) {
        fake_counts().reset();
        EXPECT_TRUE(matches(call, options()));
        return std::pair(fake_counts().calls[ATTNC_KERNEL_ATTEND_DECODE] > 0,
                         fake_counts().calls[ATTNC_KERNEL_ATTEND] > 0);
    };
    LayerCall call = random_call("d40_h4_kv2_f32_cache:b2_q8_kv40", 10);
    EXPECT_EQ(calls(call), std::pair(true, false));
    call = random_call("d40_h4_kv2_f32:b2_q8_kv40", 10);  // no cache, no such kernel
    EXPECT_EQ(calls(call), std::pair(false, true));
    call = random_call("d40_h4_kv2_f32_cache:b2_q9_kv40", 10);
    EXPECT_EQ(calls(call), std::pair(false, true));
    call.query_lengths = {{2}, {9, 8}};
    EXPECT_EQ(calls(call), std::pair(true, true));
    call.query_lengths = {{2}, {0, 8}};
    EXPECT_EQ(calls(call), std::pair(true, false));
}

TEST(Decode, ReadsTheKeysOfAGroupOnce) {
    fake_counts().reset();
    const LayerCall call = random_call("d128_h8_kv2_f32_noprobs_cache:b1_q2_kv100", 11);
    FakeOptions run = options(32);
    EXPECT_TRUE(matches(call, run));
    EXPECT_EQ(fake_counts().calls[ATTNC_KERNEL_ATTEND_DECODE], 2 * 4);  // KV heads, splits
    EXPECT_EQ(fake_counts().calls[ATTNC_KERNEL_ATTEND_MERGE], 8 * 3);   // heads, joins
    EXPECT_EQ(fake_counts().pairs_attended, int64_t{8} * 2 * 100);      // every head and query with every key
}

// 128 keys and values of 8 heads of 64 floats are half a MiB; the weights of a layer come in between two calls, too.
TEST(Decode, AsksAheadForWhatL2CannotHaveKept) {
    for (const auto& [problem, asks] : {std::pair("d512_h8_f32_noin_noout_cache:b1_q1_kv128", false),
                                        {"d512_h8_f32_noin_noout_cache:b1_q1_kv256", true},
                                        {"d512_h8_kv2_f32_noin_noout_cache:b1_q1_kv256", false},
                                        {"d512_h8_kv2_f32_noin_noout_cache:b4_q1_kv256", true},
                                        {"d512_h8_f32_cache:b1_q1_kv16", true}}) {
        FakeOptions run = options(64);
        run.concurrency = 1;
        fake_counts().reset();
        EXPECT_TRUE(matches(random_call(problem, 8), run)) << problem;
        const int64_t calls = fake_counts().calls[ATTNC_KERNEL_ATTEND_DECODE];
        EXPECT_GT(calls, 0) << problem;
        EXPECT_EQ(fake_counts().asked_ahead, asks ? calls : 0) << problem;
    }
}

TEST(Decode, AnyTasksHaveTheSameBits) {
    LayerCall call = everything("d40_h4_kv2_f32_cache:b3_q5_kv90", 12);
    call.query_lengths = {{3}, {5, 1, 3}};
    FakeOptions run = options();
    run.concurrency = 1, run.executor = FakeExecutor::kNone;
    const FakeResult alone = run_fake(call, run);
    ASSERT_EQ(alone.status, ATTNC_OK) << alone.error;
    for (const FakeExecutor executor :
         {FakeExecutor::kInOrder, FakeExecutor::kBackwards, FakeExecutor::kThreads}) {
        run.executor = executor, run.concurrency = 4;
        EXPECT_TRUE(equal_bits(alone, run_fake(call, run)));
    }
}

TEST(Decode, AKernelsRefusalIsTheCalls) {
    LayerCall call = random_call("d40_h4_kv2_f32_cache:b1_q2_kv40", 13);
    fail_next_call(ATTNC_KERNEL_ATTEND_DECODE, FakeFailure::kCodeOnly);
    const FakeResult result = run_fake(call, options());
    EXPECT_EQ(result.status, ATTNC_KERNEL_FAILED);
    EXPECT_NE(result.error.find("attend_decode"), std::string::npos) << result.error;
}

}  // namespace
}  // namespace attnc::test
