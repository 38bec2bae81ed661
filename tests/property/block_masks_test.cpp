// Block masks on generated kernels: the bits of a mask of the same pairs, whatever is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/harness/scheduled_test.h"

namespace attnc::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// One block of keys, and blocks of 64.
class BlockMasks : public ScheduledTest {};
ATTNC_FOR_EACH_SCHEDULE(BlockMasks, "", "tile_kv:64");

constexpr const char* kProblem = "d64_h4_kv2_f32_noout_scores:b2_q150_kv300";

int64_t blocks_of(int64_t seq, int64_t size) { return (seq + size - 1) / size; }

// Blocks of the call, each kept with this probability.
void add_random_blocks(LayerCall& call, int64_t block_q, int64_t block_kv, double kept, uint64_t seed) {
    call.block_q = block_q, call.block_kv = block_kv;
    call.block_keep_mask =
        filled<uint8_t>({call.sizes.batch, call.config.num_heads, blocks_of(call.sizes.seq_q, block_q),
                         blocks_of(call.sizes.seq_kv, block_kv)},
                        0);
    Random random(seed);
    for (uint8_t& element : call.block_keep_mask.values) element = random.chance(kept) ? 1 : 0;
}

// The call with a mask of all pairs instead of its block mask.
LayerCall with_dense_mask(const LayerCall& call) {
    LayerCall other = call;
    const Array<uint8_t>& blocks = call.block_keep_mask;
    other.keep_mask =
        filled<uint8_t>({blocks.shape[0], blocks.shape[1], call.sizes.seq_q, call.sizes.seq_kv}, 0);
    for (int64_t b = 0; b < blocks.shape[0]; ++b) {
        for (int64_t h = 0; h < blocks.shape[1]; ++h) {
            for (int64_t i = 0; i < call.sizes.seq_q; ++i) {
                for (int64_t j = 0; j < call.sizes.seq_kv; ++j)
                    other.keep_mask.at(b, h, i, j) = blocks.at(b, h, i / call.block_q, j / call.block_kv);
            }
        }
    }
    other.block_keep_mask = {};
    other.block_q = other.block_kv = 0;
    return other;
}

// Queries first .. first + count of a call of batch 1 with a mask of all pairs. So few that nothing is looked for in the
// mask: each pair is dropped by itself.
LayerCall chunk_of(const LayerCall& call, int64_t first, int64_t count) {
    LayerCall chunk = call;
    chunk.sizes.seq_q = count;
    const int64_t width = call.query.shape[2], keys = call.sizes.seq_kv;
    chunk.query = filled<float>({1, count, width}, 0);
    std::copy_n(call.query.values.begin() + first * width, count * width, chunk.query.values.begin());
    chunk.keep_mask = filled<uint8_t>({1, call.keep_mask.shape[1], count, keys}, 0);
    for (int64_t h = 0; h < call.keep_mask.shape[1]; ++h) {
        for (int64_t i = 0; i < count; ++i) {
            for (int64_t j = 0; j < keys; ++j)
                chunk.keep_mask.at(0, h, i, j) = call.keep_mask.at(0, h, first + i, j);
        }
    }
    return chunk;
}

constexpr std::pair<int64_t, int64_t> kBlocks[] = {{16, 16}, {16, 64}, {64, 16}, {48, 80}, {64, 64}};

TEST_P(BlockMasks, HaveTheBitsOfADenseMask) {
    uint64_t seed = 1;
    for (const auto& [block_q, block_kv] : kBlocks) {
        for (const double kept : {0.2, 0.5, 0.9}) {
            LayerCall call = everything(kProblem, ++seed);
            add_random_blocks(call, block_q, block_kv, kept, seed);
            EXPECT_TRUE(same_bits(run(call), run(with_dense_mask(call))))
                << block_q << " " << block_kv << " " << kept;
            call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
            call.window_left = 120;
            call.key_lengths = {{2}, {300, 211}};
            call.query_lengths = {{2}, {131, 150}};
            call.bias = random_array({1, 4, 150, 300}, seed, 2);
            EXPECT_TRUE(same_bits(run(call), run(with_dense_mask(call))))
                << block_q << " " << block_kv << " " << kept;
        }
    }
}

// Against rows of which each pair is dropped by itself.
TEST_P(BlockMasks, SkipNothingThatCounts) {
    LayerCall call = random_call("d64_h4_kv2_f32_noout_scores:b1_q150_kv240", 20);
    call.lse = true;
    add_random_blocks(call, 16, 16, 0.4, 21);
    const RunResult skipped = run(call);
    const LayerCall dense = with_dense_mask(call);
    EXPECT_TRUE(same_bits(skipped, run(dense)));
    for (int64_t first = 0; first < 150; first += 15) {
        const std::vector<float> want(skipped.out.begin() + first * 64,
                                      skipped.out.begin() + (first + 15) * 64);
        EXPECT_TRUE(same_bits(run(chunk_of(dense, first, 15)).out, want)) << "from query " << first;
    }
}

TEST_P(BlockMasks, MatchTheReferenceInTasksOfAnySize) {
    LayerCall call = everything(kProblem, 30);
    add_random_blocks(call, 32, 48, 0.5, 31);
    call.key_lengths = {{2}, {300, 211}};
    call.query_lengths = {{2}, {131, 150}};
    const RunResult alone = run(call);
    EXPECT_TRUE(matches_reference(call, alone, options()));
    for (const int64_t tasks : {2, 7, 40}) {
        RunOptions many = options();
        many.executor = Executor::kSequential, many.concurrency = tasks;
        EXPECT_TRUE(same_bits(alone, run_call(call, many))) << tasks << " tasks";
    }
}

TEST_P(BlockMasks, LeaveEmptyRowsToThePolicy) {
    for (const attnc_empty_rows policy :
         {ATTNC_EMPTY_ROWS_ZERO, ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, ATTNC_EMPTY_ROWS_NAN}) {
        LayerCall call = everything(kProblem, 40);
        call.empty_rows = policy;
        add_random_blocks(call, 16, 64, 0.15, 41);
        EXPECT_TRUE(matches_reference(call, options())) << policy;
        std::fill(call.block_keep_mask.values.begin(), call.block_keep_mask.values.end(), uint8_t{0});
        EXPECT_TRUE(matches_reference(call, options())) << policy;
    }
}

// What masks of other kinds drop in tiles is skipped too; the rows don't know.
TEST_P(BlockMasks, OfEveryKindHaveTheSameBits) {
    LayerCall blocks = everything(kProblem, 50);
    add_random_blocks(blocks, 64, 32, 0.3, 51);
    const RunResult want = run(blocks);
    LayerCall keep = with_dense_mask(blocks), drop = keep, bias = keep;
    drop.keep_mask = bias.keep_mask = {};
    drop.drop_mask = keep.keep_mask;
    for (uint8_t& element : drop.drop_mask.values) element = element == 0 ? 1 : 0;
    bias.bias = filled<float>({2, 4, 150, 300}, 0);
    for (size_t n = 0; n < bias.bias.values.size(); ++n)
        bias.bias.values[n] = keep.keep_mask.values[n] != 0 ? 0 : kMinusInfinity;
    EXPECT_TRUE(same_bits(want, run(keep)));
    EXPECT_TRUE(same_bits(want, run(drop)));
    EXPECT_TRUE(same_bits(want, run(bias)));
}

TEST_P(BlockMasks, KeepNonFiniteDataWhereItIsDropped) {
    LayerCall call = everything("d64_h4_kv2_f32_noout_scores:b1_q150_kv300", 60);
    call.scores_stage = ATTNC_SCORES_NOT_GIVEN;
    add_random_blocks(call, 16, 16, 0.3, 61);
    const RunResult clean = run(call);
    for (const int64_t key : {0, 17, 64, 150, 299}) {
        LayerCall spoilt = call;
        for (int64_t n = 0; n < 64; ++n) spoilt.value.at(0, key, n) = kNan;
        const RunResult got = run(spoilt);
        for (int64_t i = 0; i < 150; ++i) {
            for (int64_t n = 0; n < 64; ++n) {
                const auto at = static_cast<size_t>(i * 64 + n);
                if (call.block_keep_mask.at(0, n / 16, i / 16, key / 16) != 0) {
                    ASSERT_TRUE(std::isnan(got.out[at])) << "key " << key << " query " << i;
                } else {
                    ASSERT_EQ(got.out[at], clean.out[at]) << "key " << key << " query " << i;
                }
            }
        }
    }
}

// Sequences one after another as one item, each attending itself (what block-diagonal biases of other layers are): the
// bits of each alone, causal or not.
TEST_P(BlockMasks, SequencesOfOneItemAreAsEachAlone) {
    if (!std::get<1>(GetParam()).empty()) GTEST_SKIP() << "sequences would lie in other blocks of keys";
    const std::vector<int64_t> lengths = {64, 16, 128, 32};
    for (const attnc_causal causal : {ATTNC_CAUSAL_NONE, ATTNC_CAUSAL_BOTTOM_RIGHT}) {
        LayerCall all = random_call("d64_h4_kv2_f32_noout_scores:b1_q240_kv240", 70);
        all.causal = causal;
        all.block_q = all.block_kv = 16;
        all.block_keep_mask = filled<uint8_t>({1, 1, 15, 15}, 0);
        int64_t first = 0;
        for (const int64_t length : lengths) {
            for (int64_t i = first / 16; i < (first + length) / 16; ++i) {
                for (int64_t j = first / 16; j < (first + length) / 16; ++j)
                    all.block_keep_mask.at(0, 0, i, j) = 1;
            }
            first += length;
        }
        const RunResult together = run(all);
        EXPECT_TRUE(matches_reference(all, together, options()));
        first = 0;
        for (const int64_t length : lengths) {
            LayerCall alone = all;
            alone.block_keep_mask = {};
            alone.block_q = alone.block_kv = 0;
            alone.sizes.seq_q = alone.sizes.seq_kv = length;
            for (auto* tokens : {&alone.query, &alone.key, &alone.value}) {
                const auto begin = tokens->values.begin() + first * 64;
                *tokens = {{1, length, 64}, std::vector<float>(begin, begin + length * 64)};
            }
            const std::vector<float> want(together.out.begin() + first * 64,
                                          together.out.begin() + (first + length) * 64);
            EXPECT_TRUE(same_bits(run(alone).out, want)) << "sequence of " << length;
            first += length;
        }
    }
}

// Queries of one sequence over keys of another one: the block-diagonal mask of sequences whose lengths differ.
TEST_P(BlockMasks, SequencesOfOtherKeyLengthsMatchTheReference) {
    LayerCall call = everything("d64_h4_kv2_f32_noout_scores:b1_q96_kv240", 80);
    call.block_q = 32, call.block_kv = 48;
    call.block_keep_mask = filled<uint8_t>({1, 1, 3, 5}, 0);
    for (const auto& [q, kv] :
         {std::pair(0, 0), std::pair(0, 1), std::pair(1, 2), std::pair(2, 3), std::pair(2, 4)})
        call.block_keep_mask.at(0, 0, q, kv) = 1;
    EXPECT_TRUE(matches_reference(call, options()));
    EXPECT_TRUE(same_bits(run(call), run(with_dense_mask(call))));
}

}  // namespace
}  // namespace attnc::test
