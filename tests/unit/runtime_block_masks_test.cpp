// Block masks through the runtime: what they drop, and that what masks of any kind drop whole is not computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

int64_t blocks_of(int64_t seq, int64_t size) { return (seq + size - 1) / size; }

void add_random_blocks(LayerCall& call, int64_t block_q, int64_t block_kv, int64_t batch, int64_t heads,
                       uint64_t seed) {
    call.block_q = block_q, call.block_kv = block_kv;
    call.block_keep_mask = filled<uint8_t>(
        {batch, heads, blocks_of(call.sizes.seq_q, block_q), blocks_of(call.sizes.seq_kv, block_kv)}, 0);
    Random random(seed);
    for (uint8_t& element : call.block_keep_mask.values) element = random.chance(0.5) ? 3 : 0;
}

// The same pairs as a mask of all of them.
Array<uint8_t> dense(const LayerCall& call) {
    const Array<uint8_t>& blocks = call.block_keep_mask;
    Array<uint8_t> mask =
        filled<uint8_t>({blocks.shape[0], blocks.shape[1], call.sizes.seq_q, call.sizes.seq_kv}, 0);
    for (int64_t b = 0; b < blocks.shape[0]; ++b) {
        for (int64_t h = 0; h < blocks.shape[1]; ++h) {
            for (int64_t i = 0; i < call.sizes.seq_q; ++i) {
                for (int64_t j = 0; j < call.sizes.seq_kv; ++j)
                    mask.at(b, h, i, j) = blocks.at(b, h, i / call.block_q, j / call.block_kv);
            }
        }
    }
    return mask;
}

FakeOptions layout(int64_t tile_kv, int64_t tile_q) {
    FakeOptions options;
    options.layout.tile_kv = tile_kv, options.layout.tile_q = tile_q;
    return options;
}

TEST(BlockMasks, MatchTheReference) {
    for (const auto& [block_q, block_kv] :
         {std::pair(16, 16), std::pair(32, 16), std::pair(16, 48), std::pair(64, 64)}) {
        for (const auto& [batch, heads] :
             {std::pair(1, 1), std::pair(2, 1), std::pair(1, 4), std::pair(2, 4)}) {
            LayerCall call = everything("d32_h4_kv2_f32:b2_q75_kv150", 1);
            add_random_blocks(call, block_q, block_kv, batch, heads, 2);
            for (const FakeOptions& options :
                 {layout(64, 64), layout(512, 32), layout(48, 8), layout(64, 24)}) {
                EXPECT_TRUE(matches(call, options)) << block_q << " " << block_kv;
            }
            call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
            call.key_lengths = {{2}, {150, 100}};
            call.query_lengths = {{2}, {70, 75}};
            FakeOptions tasks = layout(64, 8);
            tasks.executor = FakeExecutor::kBackwards, tasks.concurrency = 30;
            tasks.row_gap = 3, tasks.item_gap = 5;
            EXPECT_TRUE(matches(call, tasks)) << block_q << " " << block_kv;
        }
    }
}

TEST(BlockMasks, CombineWithAllOtherMasks) {
    LayerCall call = everything("d32_h4_f32_alibi_softcap:b2_q40_kv100", 3);
    add_random_blocks(call, 16, 32, 2, 4, 4);
    call.bias = random_array({1, 4, 40, 100}, 5, 2);
    call.keep_mask = filled<uint8_t>({2, 1, 40, 100}, 1);
    call.key_drop_mask = filled<uint8_t>({2, 100}, 0);
    Random random(6);
    for (uint8_t& element : call.keep_mask.values) element = random.chance(0.8) ? 1 : 0;
    for (uint8_t& element : call.key_drop_mask.values) element = random.chance(0.2) ? 1 : 0;
    EXPECT_TRUE(matches(call, layout(64, 32)));
}

TEST(BlockMasks, LeaveEmptyRowsToThePolicy) {
    for (const attnc_empty_rows policy :
         {ATTNC_EMPTY_ROWS_ZERO, ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, ATTNC_EMPTY_ROWS_NAN}) {
        LayerCall call = everything("d32_h2_f32:b2_q40_kv100", 7);
        call.empty_rows = policy;
        call.block_q = call.block_kv = 16;
        call.block_keep_mask = filled<uint8_t>({2, 1, 3, 7}, 0);
        call.block_keep_mask.at(0, 0, 1, 6) = 1;
        EXPECT_TRUE(matches(call, layout(64, 32))) << policy;
        EXPECT_TRUE(matches(call, layout(64, 8))) << policy;
    }
}

TEST(BlockMasks, ReachNeitherAppendedKeysNorSinks) {
    for (const char* options : {"_biaskv_zeroattn", "_sink"}) {
        LayerCall call = everything("d32_h2_f32" + std::string(options) + ":b2_q40_kv100", 8);
        call.block_q = call.block_kv = 32;
        call.block_keep_mask = filled<uint8_t>({1, 1, 2, 4}, 0);
        EXPECT_TRUE(matches(call, layout(64, 32))) << options;
    }
}

// 192 queries and keys, of which each sees the 64 of its own block, given in every way that masks can be given in.
struct BlockDiagonal {
    LayerCall call = everything("d32_h2_f32:b1_q192_kv192", 9);
    BlockDiagonal() {
        call.probs = call.probs_averaged = false;
        call.block_q = call.block_kv = 64;
        call.block_keep_mask = filled<uint8_t>({1, 1, 3, 3}, 0);
        for (int64_t n = 0; n < 3; ++n) call.block_keep_mask.at(0, 0, n, n) = 1;
    }
    LayerCall without_blocks() const {
        LayerCall other = call;
        other.block_keep_mask = {};
        other.block_q = other.block_kv = 0;
        return other;
    }
};

struct Counts {
    int64_t pairs, calls;
    bool operator==(const Counts&) const = default;
    friend std::ostream& operator<<(std::ostream& to, const Counts& c) {
        return to << c.pairs << " pairs in " << c.calls << " calls";
    }
};

Counts counts_of(const LayerCall& call, const FakeOptions& options) {
    fake_counts().reset();
    EXPECT_TRUE(matches(call, options));
    const FakeCounts& counts = fake_counts();
    return {counts.pairs_attended,
            counts.calls[ATTNC_KERNEL_ATTEND] + counts.calls[ATTNC_KERNEL_ATTEND_MASKED]};
}

TEST(BlockMasks, WhatIsDroppedWholeIsNotComputed) {
    const BlockDiagonal diagonal;
    const LayerCall given = diagonal.call;
    const Array<uint8_t> keep = dense(given);
    LayerCall by_keep = diagonal.without_blocks(), by_drop = by_keep, by_bias = by_keep;
    by_keep.keep_mask = keep;
    by_drop.drop_mask = keep;
    for (uint8_t& element : by_drop.drop_mask.values) element = element == 0 ? 1 : 0;
    by_bias.bias = filled<float>({1, 1, 192, 192}, 0);
    for (size_t n = 0; n < keep.values.size(); ++n)
        by_bias.bias.values[n] = keep.values[n] != 0 ? 0 : kMinusInfinity;
    const LayerCall* const calls[] = {&given, &by_keep, &by_drop, &by_bias};
    // Each of two ranges of queries (128 and 64) calls for one block of keys.
    const FakeOptions one_block = layout(192, 32);
    const Counts want = {2 * 3 * 64 * 64, 4};
    for (const LayerCall* call : calls) {
        EXPECT_EQ(counts_of(*call, one_block), want);
        EXPECT_TRUE(equal_bits(run_fake(*call, one_block), run_fake(by_keep, layout(192, 256))));
    }
    // Blocks of 64 keys: of three blocks each range calls for those that it sees.
    FakeOptions blocks = layout(64, 8);
    for (const LayerCall* call : calls) EXPECT_EQ(counts_of(*call, blocks), (Counts{2 * 3 * 64 * 64, 2 * 3}));
}

TEST(BlockMasks, KeysThatAreDroppedForAllAreNotComputed) {
    LayerCall call = everything("d32_h2_f32:b1_q192_kv192", 10);
    call.probs = call.probs_averaged = false;
    LayerCall by_keep = call, by_drop = call, by_bias = call;
    by_keep.key_keep_mask = filled<uint8_t>({1, 192}, 0);
    by_drop.key_drop_mask = filled<uint8_t>({1, 192}, 1);
    by_bias.key_bias = filled<float>({1, 192}, kMinusInfinity);
    for (int64_t key = 30; key < 130; ++key) {
        by_keep.key_keep_mask.at(0, key) = 1, by_drop.key_drop_mask.at(0, key) = 0;
        by_bias.key_bias.at(0, key) = 1;
    }
    for (const LayerCall* each : {&by_keep, &by_drop, &by_bias}) {
        EXPECT_EQ(counts_of(*each, layout(192, 32)), (Counts{2 * 192 * 128, 4}));  // granules 1 to 8
        EXPECT_EQ(counts_of(*each, layout(16, 192)), (Counts{2 * 192 * 128, 2 * 8}));
    }
}

TEST(BlockMasks, ACallThatDropsAllCallsForNothing) {
    BlockDiagonal diagonal;
    std::fill(diagonal.call.block_keep_mask.values.begin(), diagonal.call.block_keep_mask.values.end(),
              uint8_t{0});
    EXPECT_EQ(counts_of(diagonal.call, layout(64, 32)), (Counts{0, 0}));
    LayerCall by_keep = diagonal.without_blocks();
    by_keep.keep_mask = filled<uint8_t>({1, 2, 192, 192}, 0);
    EXPECT_EQ(counts_of(by_keep, layout(64, 64)), (Counts{0, 0}));
}

TEST(BlockMasks, WithoutEffectCostNoMask) {
    BlockDiagonal diagonal;
    std::fill(diagonal.call.block_keep_mask.values.begin(), diagonal.call.block_keep_mask.values.end(),
              uint8_t{1});
    fake_counts().reset();
    EXPECT_TRUE(matches(diagonal.call, layout(64, 32)));
    EXPECT_EQ(fake_counts().calls[ATTNC_KERNEL_ATTEND_MASKED], 0);
}

// Rows that are not finite are done again, from the beginning of their granules.
TEST(BlockMasks, KeepNonFiniteDataWhereItIsDropped) {
    BlockDiagonal diagonal;
    LayerCall& call = diagonal.call;
    call.lse = true;
    for (int64_t n = 0; n < 32; ++n)
        call.value.at(0, 70, n) = call.key.at(0, 5, n) = std::numeric_limits<float>::quiet_NaN();
    for (const FakeOptions& options : {layout(192, 32), layout(64, 8), layout(192, 192)})
        EXPECT_TRUE(matches(call, options));
    add_random_blocks(call, 32, 16, 1, 2, 11);
    for (const FakeOptions& options : {layout(192, 32), layout(64, 8), layout(192, 192)})
        EXPECT_TRUE(matches(call, options));
}

}  // namespace
}  // namespace attnc::test
