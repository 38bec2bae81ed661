// Which kernels take which rows: tail kernels of projections, and forms of attend for fewer queries.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "runtime/query_tiles.h"
#include "runtime/rows.h"
#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

using RowCounts = std::array<int64_t, 3>;
RowCounts counts(int64_t rows, int64_t tile, int64_t tail) {
    const RowSteps steps = row_steps(rows, tile, tail);
    return {steps.whole, steps.tails, steps.few};
}

TEST(RowStepsOfProjections, OverhangLeast) {
    EXPECT_EQ(counts(12, 6, 5), (RowCounts{12, 0, 0}));
    EXPECT_EQ(counts(50, 6, 5), (RowCounts{30, 20, 0}));
    EXPECT_EQ(counts(128, 6, 5), (RowCounts{108, 20, 0}));
    EXPECT_EQ(counts(10, 6, 5), (RowCounts{0, 10, 0}));
    EXPECT_EQ(counts(1, 6, 5), (RowCounts{0, 0, 1}));
    EXPECT_EQ(counts(7, 6, 5), (RowCounts{0, 5, 2}));
    EXPECT_EQ(counts(8, 6, 5), (RowCounts{6, 0, 2}));
    EXPECT_EQ(counts(9, 6, 5), (RowCounts{0, 9, 0}));  // 10 rows are made, 11 or 12 otherwise
    EXPECT_EQ(counts(13, 6, 5), (RowCounts{6, 5, 2}));
    EXPECT_EQ(counts(14, 6, 5), (RowCounts{12, 0, 2}));
    EXPECT_EQ(counts(3, 2, 1), (RowCounts{2, 1, 0}));
    EXPECT_EQ(counts(13, 6, 0), (RowCounts{13, 0, 0}));  // no tail kernel
    EXPECT_EQ(counts(0, 6, 5), (RowCounts{0, 0, 0}));
    for (int64_t rows = 1; rows < 300; ++rows) {
        const RowSteps steps = row_steps(rows, 6, 5);
        ASSERT_EQ(steps.whole + steps.tails + steps.few, rows);
        ASSERT_LE(steps.few, ATTNC_FEW_ROWS);
        ASSERT_EQ(steps.made, (steps.whole + 5) / 6 * 6 + (steps.tails + 4) / 5 * 5 +
                                  (steps.few > 0 ? ATTNC_FEW_ROWS : 0));
        ASSERT_LE(steps.made, (rows + 5) / 6 * 6) << rows;
        ASSERT_TRUE(steps.made == rows || rows == 1 || rows == 3 || rows == 4 || rows == 9) << rows;
    }
}

// Queries `row` to row + rows of an item whose diagonal ends at the last of its keys.
QueryTiles tiles(int64_t row, int64_t rows, int64_t keys, bool causal) {
    attnc_layer layer = {};
    layer.layout.tile_q = 64, layer.layout.tile_q_narrow = 32, layer.layout.tile_q_single = 16;
    Item item = {};
    item.first_key = kNoFirstKey;
    item.last_key = causal ? 1 : kNoLastKey;
    return next_query_tiles(layer, {&item, 0, row, rows}, 0, keys);
}

bool operator==(const QueryTiles& a, const QueryTiles& b) { return a.kernel == b.kernel && a.rows == b.rows; }

TEST(NextQueryTiles, FitTheQueriesThatAreLeft) {
    const auto wide = [](int64_t rows) { return QueryTiles{ATTNC_KERNEL_ATTEND, rows}; };
    const auto narrow = [](int64_t rows) { return QueryTiles{ATTNC_KERNEL_ATTEND_NARROW, rows}; };
    const auto single = [](int64_t rows) { return QueryTiles{ATTNC_KERNEL_ATTEND_SINGLE, rows}; };
    EXPECT_TRUE(tiles(0, 1, 500, false) == single(1));
    EXPECT_TRUE(tiles(0, 16, 500, false) == single(16));
    EXPECT_TRUE(tiles(0, 17, 500, false) == narrow(17));
    EXPECT_TRUE(tiles(0, 33, 500, false) == narrow(32));  // and one more call
    EXPECT_TRUE(tiles(0, 48, 500, false) == narrow(32));
    EXPECT_TRUE(tiles(0, 49, 500, false) == wide(49));
    EXPECT_TRUE(tiles(0, 64, 500, false) == wide(64));
    EXPECT_TRUE(tiles(0, 197, 500, false) == wide(192));
    // Along a diagonal, unless there are many keys.
    EXPECT_TRUE(tiles(0, 64, 64, true) == narrow(64));
    EXPECT_TRUE(tiles(0, 16, 16, true) == single(16));
    EXPECT_TRUE(tiles(192, 64, 256, true) == narrow(64));
    EXPECT_TRUE(tiles(230, 70, 300, true) == narrow(64));
    EXPECT_TRUE(tiles(210, 90, 300, true) == narrow(90));
    EXPECT_TRUE(tiles(447, 64, 511, true) == narrow(64));
    EXPECT_TRUE(tiles(448, 64, 512, true) == wide(64));
    EXPECT_TRUE(tiles(1000, 64, 1064, true) == wide(64));
    // Behind the diagonal every query sees every key.
    EXPECT_TRUE(tiles(1000, 64, 256, true) == wide(64));
}

TEST(NextQueryTiles, DoWithoutFormsThatATargetLacks) {
    attnc_layer layer = {};
    layer.layout.tile_q = 16;
    Item item = {};
    item.first_key = kNoFirstKey, item.last_key = 1;
    for (const int64_t rows : {1, 15, 16, 40}) {
        const QueryTiles got = next_query_tiles(layer, {&item, 0, 0, rows}, 0, rows);
        EXPECT_EQ(got.kernel, ATTNC_KERNEL_ATTEND) << rows;
        EXPECT_EQ(got.rows, rows > 16 ? 32 : rows);
    }
}

// Whatever takes a row, the result is that of the reference, and the rows of no kernel overlap another's.
TEST(Forward, TakesEveryFormWhereRowsAskForIt) {
    const FakeOptions options = {
        .layout = {.tile_q = 8, .tile_q_narrow = 4, .tile_q_single = 2, .tile_rows = 6, .tail_rows = 5}};
    for (const char* problem : {"d32_h2_f32:b3_q13_kv13", "d32_h4_kv2_f32_causal:b2_q23_kv23",
                                "d32_h2_vhd32_f32:b1_q5_kv40", "d32_h2_f32_noin_noout_causal:b2_q21_kv21"}) {
        fake_counts().reset();
        const LayerCall call = random_call(problem, 7);
        EXPECT_TRUE(matches(call, options)) << problem;
        EXPECT_GT(
            fake_counts().calls[ATTNC_KERNEL_ATTEND_NARROW] + fake_counts().calls[ATTNC_KERNEL_ATTEND_SINGLE],
            0);
        if (call.config.in_proj) {
            EXPECT_GT(fake_counts().calls[ATTNC_KERNEL_PROJECT_HEADS_TAIL], 0) << problem;
            EXPECT_GT(fake_counts().calls[ATTNC_KERNEL_PROJECT_OUT_TAIL], 0) << problem;
        }
        EXPECT_TRUE(equal_bits(run_fake(call, options), run_fake(call))) << problem;
    }
}

// Where a range is one call, as here, each but the first knows what it reads and writes from the call before.
TEST(Forward, TellsEachCallWhatTheNextOneReadsAndWrites) {
    for (const char* problem : {"d32_h2_f32:b3_q13_kv13", "d32_h4_kv2_f32:b2_q9_kv14",
                                "d32_h2_f32_noin_noout:b2_q12_kv16", "d32_h2_vhd32_f32:b2_q5_kv9"}) {
        const LayerCall call = random_call(problem, 7);
        fake_counts().reset();
        EXPECT_TRUE(matches(call, {.layout = {.tile_q = 16}, .rank4 = !call.config.in_proj})) << problem;
        EXPECT_EQ(fake_counts().foretold, fake_counts().calls[ATTNC_KERNEL_ATTEND] - 1) << problem;
    }
}

// Where rows of keys and values lie apart, kernels that want them one after another get copies, which the ranges of a head,
// the heads of a group and the probabilities share; the fake ones refuse anything else.
TEST(Forward, CopiesKeysAndValuesWhoseRowsLieApart) {
    const FakeOptions options = {
        .layout = {.tile_kv = 16, .tile_q = 1, .tile_q_narrow = 0, .tile_q_single = 0}, .row_gap = 5};
    for (const char* problem :
         {"d32_h2_f32_noin_noout:b2_q21_kv40", "d64_h4_kv2_f32_noin_noout_causal:b2_q37_kv37",
          "d64_h4_kv2_hd16_vhd32_f32_noin:b1_q21_kv33"}) {
        LayerCall call = random_call(problem, 7);
        call.probs = call.lse = true;
        EXPECT_TRUE(matches(call, options)) << problem;
        call.window_left = 20;  // a range's first keys are in no block's beginning
        EXPECT_TRUE(matches(call, options)) << problem;
        for (const int64_t threads : {1, 3}) {
            FakeOptions several = options;
            several.executor = FakeExecutor::kThreads;
            several.concurrency = threads;
            EXPECT_TRUE(equal_bits(run_fake(call, several), run_fake(call, options))) << problem;
        }
    }
}

// Scores of all keys leave a copy without values of the block with which the next head of the group begins.
TEST(Forward, CopiesValuesWhereScoresCopiedKeysAlone) {
    LayerCall call = random_call("d64_h4_kv2_f32_noin_noout_causal_scores:b1_q37_kv37", 7);
    call.scores_stage = ATTNC_SCORES_SCALED;
    call.window_left = 0;
    EXPECT_TRUE(matches(call, {.layout = {.tile_kv = 16, .tile_q = 1}, .row_gap = 5}));
}

// A kernel for few queries reads them where they lie.
TEST(Forward, CopiesNothingForFewQueries) {
    const LayerCall call = random_call("d32_h2_f32_noin_noout:b2_q2_kv16", 7);
    const FakeOptions options = {.layout = {.tile_q = 8, .tile_q_narrow = 4, .tile_q_single = 2}};
    fake_counts().reset();
    EXPECT_TRUE(matches(call, options));
    // What is foretold lies at the caller.
    EXPECT_EQ(fake_counts().calls[ATTNC_KERNEL_ATTEND_SINGLE], 4);
    EXPECT_EQ(fake_counts().foretold, 3);
    EXPECT_TRUE(equal_bits(run_fake(call, options), run_fake(call, {.layout = {.tile_q = 8}})));
}

TEST(Forward, TellsNothingOfItemsThatHaveNoQueries) {
    LayerCall call = random_call("d32_h2_f32:b4_q13_kv13", 7);
    call.query_lengths = {{4}, {13, 0, 6, 0}};
    fake_counts().reset();
    EXPECT_TRUE(matches(call, {.layout = {.tile_q = 16}}));
    EXPECT_EQ(fake_counts().foretold, 2);  // the second heads of items 0 and 2
    EXPECT_EQ(fake_counts().mistold, 0);
}

TEST(Forward, NamesTheFormThatRefuses) {
    const FakeOptions options = {
        .layout = {.tile_q = 8, .tile_q_narrow = 4, .tile_q_single = 2, .tile_rows = 6, .tail_rows = 5}};
    const LayerCall call = random_call("d32_h2_f32:b1_q13_kv13", 7);
    for (const auto& [kernel, name] : {std::pair(ATTNC_KERNEL_ATTEND_NARROW, "attend_narrow"),
                                       std::pair(ATTNC_KERNEL_ATTEND_SINGLE, "attend_single"),
                                       std::pair(ATTNC_KERNEL_PROJECT_HEADS_TAIL, "project_heads_tail"),
                                       std::pair(ATTNC_KERNEL_PROJECT_OUT_TAIL, "project_out_tail")}) {
        fail_next_call(kernel, FakeFailure::kCodeOnly);
        const FakeResult got = run_fake(call, options);
        EXPECT_EQ(got.status, ATTNC_KERNEL_FAILED);
        EXPECT_EQ(got.error, std::string("kernel ") + name + " failed with code -7");
    }
}

}  // namespace
}  // namespace attnc::test
