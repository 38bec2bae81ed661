// Key sequences longer than a block: the blocks' results are joined, and all claims hold as for one block.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/harness/layer_run.h"
#include "tests/harness/libraries.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

const std::string kSmallBlocks = "tile_kv:32";

class KeyBlocks : public TargetTest {
protected:
    RunOptions options() const { return {.target = target(), .schedule = kSmallBlocks}; }
};
ATTNC_FOR_EACH_TARGET(KeyBlocks);

TEST_P(KeyBlocks, AreAsSmallAsAsked) {
    EXPECT_EQ(key_blocks_of(library_of(parse_config("d48_h3_f32"), kSmallBlocks), target()).tile_kv, 32);
}

TEST_P(KeyBlocks, OfEveryCountMatchTheReference) {
    for (const int64_t seq_kv : {1, 31, 32, 33, 63, 64, 65, 96, 129, 200}) {
        LayerCall call =
            random_call(parse_config("d48_h3_f32"), {2, 19, seq_kv}, static_cast<uint64_t>(seq_kv));
        call.probs = call.lse = true;
        EXPECT_TRUE(matches_reference(call, options())) << seq_kv << " keys";
        call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        EXPECT_TRUE(matches_reference(call, options())) << seq_kv << " keys, causal";
    }
}

TEST_P(KeyBlocks, WithMasksMatchTheReference) {
    LayerCall call = random_call("d48_h3_f32:b2_q37_kv129", 7);
    call.keep_mask = filled<uint8_t>({2, 3, 37, 129}, 1);
    call.bias = random_array({1, 1, 37, 129}, 71, 3);
    Random random(72);
    for (uint8_t& element : call.keep_mask.values) element = random.chance(0.5) ? 1 : 0;
    for (int64_t key = 32; key < 64;
         ++key) {  // a row whose second block is dropped whole, one that keeps only that
        for (int64_t head = 0; head < 3; ++head) call.keep_mask.at(0, head, 5, key) = 0;
    }
    for (int64_t key = 0; key < 129; ++key) {
        call.keep_mask.at(0, 0, 6, key) = key >= 32 && key < 64 ? 1 : 0;
        call.keep_mask.at(1, 0, 0, key) = 0;  // and an empty one
    }
    call.key_lengths = {{2}, {129, 70}};
    call.probs = call.probs_averaged = call.lse = true;
    for (const attnc_empty_rows policy :
         {ATTNC_EMPTY_ROWS_ZERO, ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, ATTNC_EMPTY_ROWS_NAN}) {
        call.empty_rows = policy;
        EXPECT_TRUE(matches_reference(call, options())) << "policy " << policy;
    }
}

TEST_P(KeyBlocks, WithAppendedKeysMatchTheReference) {
    for (const char* suffix : {"_biaskv", "_zeroattn", "_biaskv_zeroattn"}) {
        LayerCall call = random_call("d48_h3_f32" + std::string(suffix) + ":b2_q7_kv70", 8);
        call.key_lengths = {{2}, {70, 0}};
        call.key_drop_mask = filled<uint8_t>({2, 70}, 0);
        for (int64_t key = 0; key < 40; ++key) call.key_drop_mask.at(0, key) = 1;
        call.probs = call.lse = true;
        EXPECT_TRUE(matches_reference(call, options())) << suffix;
    }
}

// NaN of one block survives the joining with the others, and stays away from rows that drop its key.
TEST_P(KeyBlocks, CarryNanToTheRowsThatAttendIt) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const bool masked : {false, true}) {
        LayerCall clean = random_call("d48_h3_f32_noin_noout:b1_q35_kv70", 10);
        if (masked) {
            clean.keep_mask = filled<uint8_t>({1, 3, 35, 70}, 1);
            Random random(101);
            for (uint8_t& element : clean.keep_mask.values) element = random.chance(0.5) ? 1 : 0;
        } else {
            clean.causal = ATTNC_CAUSAL_TOP_LEFT;
        }
        clean.probs = clean.probs_averaged = clean.lse = true;
        const RunResult usual = run_call(clean, options());
        for (const int64_t key : {3, 31, 32, 34, 63, 69}) {
            for (auto* tokens : {&clean.key, &clean.value}) {
                const float before = tokens->at(0, key, 20);
                tokens->at(0, key, 20) = nan;
                const RunResult got = run_call(clean, options());
                EXPECT_TRUE(matches_reference(clean, got, options()))
                    << "key " << key << (masked ? ", masked" : "");
                for (int64_t row = 0; row < 35; ++row) {  // head 1 is the one with NaN
                    const bool dropped = masked ? clean.keep_mask.at(0, 1, row, key) == 0 : key > row;
                    const auto part = [&](const RunResult& r) {
                        const auto first = r.out.begin() + row * 48;
                        return std::vector<float>(first + (dropped ? 0 : 32), first + 48);
                    };
                    EXPECT_TRUE(same_bits(part(usual), part(got))) << "key " << key << ", row " << row;
                }
                tokens->at(0, key, 20) = before;
            }
        }
    }
}

// The one block of a short sequence is the first block of a long one: rows that see no further have equal bits.
TEST_P(KeyBlocks, ShortFormIsTheOneBlockCaseOfTheLongForm) {
    LayerCall call = random_call("d48_h3_f32:b1_q50_kv96", 9);
    call.causal = ATTNC_CAUSAL_TOP_LEFT;
    call.lse = true;
    const RunResult all = run_call(call, options());
    LayerCall first = call;
    first.sizes.seq_kv = 32;
    first.key = {{1, 32, 48}, {call.key.values.begin(), call.key.values.begin() + 32 * 48}};
    first.value = {{1, 32, 48}, {call.value.values.begin(), call.value.values.begin() + 32 * 48}};
    const RunResult block = run_call(first, options());
    ASSERT_EQ(all.status, ATTNC_OK) << all.error;
    ASSERT_EQ(block.status, ATTNC_OK) << block.error;
    const auto rows = [](const RunResult& r) {
        return std::vector<float>(r.out.begin(), r.out.begin() + 32 * 48);
    };
    EXPECT_TRUE(same_bits(rows(all), rows(block)));
}

}  // namespace
}  // namespace attnc::test
