// Calls with few queries on generated kernels: within the bounds of their splits, and of bits that depend on nothing but the
// row and its keys.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/harness/cached_run.h"
#include "tests/harness/libraries.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

class Decode : public TargetTest {
protected:
    RunOptions options(const std::string& schedule = "") const {
        return {.target = target(), .schedule = schedule};
    }
    RunResult run(const LayerCall& call, const RunOptions& how) const {
        RunResult result = run_call(call, how);
        EXPECT_EQ(result.status, ATTNC_OK) << result.error;
        return result;
    }
};
ATTNC_FOR_EACH_TARGET(Decode);

void add_masks(LayerCall& call, uint64_t seed) {
    const int64_t batch = call.sizes.batch, heads = call.config.num_heads, q = call.sizes.seq_q,
                  kv = call.sizes.seq_kv;
    Random random(seed);
    call.bias = random_array({1, heads, q, kv}, seed, 3);
    call.key_bias = random_array({batch, kv}, seed + 1, 3);
    call.keep_mask = filled<uint8_t>({batch, 1, q, kv}, 1);
    call.drop_mask = filled<uint8_t>({1, heads, 1, kv}, 0);
    for (uint8_t& element : call.keep_mask.values) element = random.chance(0.8) ? 1 : 0;
    for (uint8_t& element : call.drop_mask.values) element = random.chance(0.2) ? 1 : 0;
    for (float& element : call.bias.values) {
        if (random.chance(0.1)) element = -std::numeric_limits<float>::infinity();
    }
}

TEST_P(Decode, MatchesTheReference) {
    for (const char* config : {"d64_h1_f32_noin_noout_cache", "d512_h8_kv1_f32_noin_noout_cache",
                               "d48_h3_kv1_hd32_vhd48_f32_cache", "d160_h2_f32_noin_noout_cache"}) {
        for (const char* sizes :
             {":b1_q1_kv1", ":b1_q1_kv16", ":b2_q1_kv100", ":b2_q3_kv53", ":b1_q8_kv130"}) {
            LayerCall call = everything(std::string(config) + sizes, 1);
            EXPECT_TRUE(matches_reference(call, options("split_kv:32")));
            call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
            EXPECT_TRUE(matches_reference(call, options("split_kv:32")));
            add_masks(call, 2);
            EXPECT_TRUE(matches_reference(call, options("split_kv:32")));
        }
    }
}

TEST_P(Decode, TakesEveryStepOfTheScores) {
    LayerCall call = everything("d64_h4_kv2_f32_noin_noout_alibi_softcap_cache:b2_q4_kv90", 3);
    EXPECT_TRUE(matches_reference(call, options("split_kv:32")));
    call.softcap = 2;
    EXPECT_TRUE(matches_reference(call, options("split_kv:32")));
    add_masks(call, 4);
    call.window_left = 30, call.window_right = 10;
    EXPECT_TRUE(matches_reference(call, options("split_kv:32")));
}

TEST_P(Decode, SplitsBeyondABlockOfKeys) {
    const LayerCall call = everything("d32_h2_f32_noin_noout_noprobs_cache:b1_q2_kv3000", 5);
    for (const char* schedule : {"", "tile_kv:48,split_kv:64"})
        EXPECT_TRUE(matches_reference(call, options(schedule))) << schedule;
}

// Each query by itself, each item by itself, more tasks: the same bits. So in blocks of rows as alone.
TEST_P(Decode, ARowsBitsAreItsOwn) {
    LayerCall call = random_call("d192_h6_kv2_f32_noin_noout_cache:b2_q7_kv77", 6);
    call.causal = ATTNC_CAUSAL_OFFSET;
    call.causal_offsets = {{2}, {60, 70}};
    add_masks(call, 7);
    const RunOptions how = options("split_kv:32");
    const RunResult all = run(call, how);
    RunOptions pool = how;
    pool.executor = Executor::kPool, pool.concurrency = 3;
    EXPECT_TRUE(same_bits(all, run(call, pool)));
    const int64_t width = 192, heads = 6;
    for (int64_t b = 0; b < 2; ++b) {
        for (int64_t i = 0; i < 7; ++i) {
            LayerCall one = call;
            one.sizes.batch = one.sizes.seq_q = 1;
            one.causal_offsets = {{1}, {call.causal_offsets.at(b) + i}};
            one.query = filled<float>({1, 1, width}, 0);
            one.key = filled<float>({1, 77, 64}, 0);
            one.value = one.key;
            for (int64_t n = 0; n < width; ++n) one.query.at(0, 0, n) = call.query.at(b, i, n);
            one.bias = filled<float>({1, heads, 1, 77}, 0);
            one.key_bias = filled<float>({1, 77}, 0);
            one.keep_mask = filled<uint8_t>({1, 1, 1, 77}, 1);
            for (int64_t j = 0; j < 77; ++j) {
                for (int64_t n = 0; n < 64; ++n) {
                    one.key.at(0, j, n) = call.key.at(b, j, n);
                    one.value.at(0, j, n) = call.value.at(b, j, n);
                }
                for (int64_t h = 0; h < heads; ++h) one.bias.at(0, h, 0, j) = call.bias.at(0, h, i, j);
                one.key_bias.at(0, j) = call.key_bias.at(b, j);
                one.keep_mask.at(0, 0, 0, j) = call.keep_mask.at(b, 0, i, j);
            }
            const RunResult alone = run(one, how);
            const auto first = all.out.begin() + static_cast<ptrdiff_t>((b * 7 + i) * width);
            EXPECT_TRUE(same_bits(alone.out, {first, first + width})) << b << " " << i;
        }
    }
}

// One row is made key by key where its sum has few steps, rows of a block in loops.
TEST_P(Decode, OneRowAloneHasTheBitsOfARowAmongOthers) {
    for (const int64_t width : {16, 48, 64, 128, 144, 256}) {
        const std::string layer =
            "d" + std::to_string(width) + "_h1_f32_noin_noout_nomask_noprobs_cache:b1_q3_kv100";
        const LayerCall call = random_call(layer, 9);
        const RunResult all = run(call, options("split_kv:64"));
        for (int64_t i = 0; i < 3; ++i) {
            LayerCall one = call;
            one.sizes.seq_q = 1;
            const auto row = call.query.values.begin() + static_cast<ptrdiff_t>(i * width);
            one.query = {{1, 1, width}, {row, row + static_cast<ptrdiff_t>(width)}};
            const auto first = all.out.begin() + static_cast<ptrdiff_t>(i * width);
            EXPECT_TRUE(same_bits(run(one, options("split_kv:64")).out,
                                  {first, first + static_cast<ptrdiff_t>(width)}))
                << layer << " query " << i;
        }
    }
}

TEST_P(Decode, DroppedDataChangesNoBit) {
    LayerCall call = random_call("d64_h2_f32_noin_noout_cache:b1_q4_kv60", 8);
    call.causal = ATTNC_CAUSAL_OFFSET;
    call.causal_offsets = {{1}, {40}};
    call.key_drop_mask = filled<uint8_t>({1, 60}, 0);
    for (const int64_t key : {3, 17, 31}) call.key_drop_mask.at(0, key) = 1;
    const RunResult clean = run(call, options("split_kv:16"));
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        LayerCall spoilt = call;
        for (const int64_t key : {3, 17, 31, 44, 59}) {
            for (int64_t n = 0; n < 64; ++n) spoilt.key.at(0, key, n) = spoilt.value.at(0, key, n) = bad;
        }
        EXPECT_TRUE(same_bits(clean, run(spoilt, options("split_kv:16"))));
    }
    // Key 42 is seen by queries 2 and 3 alone.
    call.value.at(0, 42, 5) = std::numeric_limits<float>::quiet_NaN();
    const RunResult some = run(call, options("split_kv:16"));
    for (int64_t n = 0; n < 4 * 64; ++n) {
        const bool is_nan = some.out[static_cast<size_t>(n)] != some.out[static_cast<size_t>(n)];
        EXPECT_EQ(is_nan, n / 64 >= 2 && n % 64 == 5) << n;
    }
}

// Slots, rings and pages anywhere: the same bits as with all keys given, token by token.
TEST_P(Decode, KeysFromACacheHaveTheSameBits) {
    LayerCall call = random_call("d64_h4_kv2_f32_causal_cache_page16:b2_q70_kv70", 9);
    call.key = call.value = {};
    call.window_left = 40;
    for (const attnc_cache_kind kind : {ATTNC_CACHE_SLOTS, ATTNC_CACHE_RING, ATTNC_CACHE_PAGED}) {
        const attnc_library* library = library_of(call.config, "tile_kv:64,split_kv:32");
        CachedLayer cached(library, call, {kind, 2, kind == ATTNC_CACHE_RING ? 128 : 80}, target().c_str());
        LayerCall whole = call;
        whole.key = call.query;
        int64_t first = 0;
        for (const int64_t count : {30, 1, 1, 3, 8, 1, 20, 1, 5}) {
            const RunResult got = cached.append(part_of(call, {first, count, first, count}));
            const RunResult want = cached.plain(part_of(whole, {first, count, 0, first + count}));
            ASSERT_EQ(got.status, ATTNC_OK) << got.error;
            EXPECT_TRUE(same_bits(got, want)) << kind << " keys " << first << " and " << count << " more";
            first += count;
        }
    }
}

}  // namespace
}  // namespace attnc::test
