// Laws of attention through twin libraries: random calls against float64, and what must not change one bit of a result.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "compiler/verify_layer.h"
#include "tests/harness/cached_run.h"
#include "tests/harness/layer_call.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/libraries.h"

namespace attnc::test {
namespace {

std::string name_of(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

const RunOptions kOnDevice = {.target = kDevice};

class RandomCallsOnDevice : public ::testing::TestWithParam<const char*> {};

TEST_P(RandomCallsOnDevice, AreWithinTheirBounds) {
    ATTNC_SKIP_WITHOUT_TWINS();
    constexpr uint64_t kCalls = 16;
    const Config config = parse_config(GetParam());
    const attnc_library* const library = twin_library_of(config);
    for (uint64_t seed = 1; seed <= kCalls; ++seed) {
        const auto call = attnc::random_call(config, seed);
        EXPECT_EQ(check_call(library, kDevice, *call, reference_of(*call)), "")
            << to_string(call->problem) << ", seed " << seed;
    }
}

INSTANTIATE_TEST_SUITE_P(Layers, RandomCallsOnDevice,
                         ::testing::Values("d48_h3_f32_nomask", "d64_h4_kv2_f32_noprobs",
                                           "d40_h2_hd20_vhd40_f32_biaskv_zeroattn_sink",
                                           "d32_h2_f32_alibi_softcap_scores", "d32_h2_f32_qknorm_rope",
                                           "d64_h4_f32_noin_noout_ropepairs", "d32_h2_f32_qknorm_rope_cache"),
                         name_of);

LayerCall padded_call() {
    LayerCall call = random_call("d32_h2_f32:b3_q40_kv70", 5);
    call.key_lengths = {{3}, {70, 33, 0}};
    call.query_lengths = {{3}, {40, 7, 40}};
    call.lse = call.probs = true;
    return call;
}

TEST(LayersOnDevice, HaveRowsThatDoNotDependOnTheirBatch) {
    ATTNC_SKIP_WITHOUT_TWINS();
    const LayerCall call = padded_call();
    const RunResult all = run_call(call, kOnDevice);
    ASSERT_EQ(all.status, ATTNC_OK) << all.error;
    const size_t rows = all.out.size() / 3;
    for (int64_t item = 0; item < 3; ++item) {
        const RunResult alone = run_call(item_of(call, item), kOnDevice);
        ASSERT_EQ(alone.status, ATTNC_OK) << alone.error;
        const auto begin = all.out.begin() + item * static_cast<int64_t>(rows);
        EXPECT_TRUE(same_bits(alone.out, {begin, begin + static_cast<int64_t>(rows)})) << "item " << item;
    }
}

// Rows past a length are never read.
TEST(LayersOnDevice, DoNotReadPadding) {
    ATTNC_SKIP_WITHOUT_TWINS();
    LayerCall call = padded_call();
    const RunResult clean = run_call(call, kOnDevice);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (int64_t item = 0; item < 3; ++item) {
        for (int64_t d = 0; d < 32; ++d) {
            for (int64_t j = call.key_length(item); j < 70; ++j)
                call.key.at(item, j, d) = call.value.at(item, j, d) = nan;
            for (int64_t i = call.query_length(item); i < 40; ++i) call.query.at(item, i, d) = nan;
        }
    }
    EXPECT_TRUE(same_bits(clean, run_call(call, kOnDevice)));
}

TEST(LayersOnDevice, FutureKeysDoNotChangePastRows) {
    ATTNC_SKIP_WITHOUT_TWINS();
    LayerCall call = random_call("d32_h2_f32:b1_q75_kv75", 6);
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    const RunResult before = run_call(call, kOnDevice);
    ASSERT_EQ(before.status, ATTNC_OK) << before.error;
    constexpr int64_t kPast = 41;  // inside of a tile of queries and of a block of keys
    for (int64_t j = kPast; j < 75; ++j) {
        for (int64_t d = 0; d < 32; ++d) {
            call.key.at(0, j, d) = 100;
            call.value.at(0, j, d) = std::numeric_limits<float>::infinity();
        }
    }
    const RunResult after = run_call(call, kOnDevice);
    ASSERT_EQ(after.status, ATTNC_OK) << after.error;
    EXPECT_TRUE(same_bits({before.out.begin(), before.out.begin() + kPast * 32},
                          {after.out.begin(), after.out.begin() + kPast * 32}));
}

// Asking for more changes no bit of out.
TEST(LayersOnDevice, HaveTheSameOutWithMoreOutputs) {
    ATTNC_SKIP_WITHOUT_TWINS();
    LayerCall call = random_call("d32_h2_f32:b2_q9_kv70", 7);
    const RunResult plain = run_call(call, kOnDevice);
    call.probs = call.probs_averaged = call.lse = true;
    EXPECT_TRUE(same_bits(plain, run_call(call, kOnDevice)));
}

// ---- Calls that share a cache

constexpr attnc_cache_kind kKinds[] = {ATTNC_CACHE_SLOTS, ATTNC_CACHE_RING, ATTNC_CACHE_PAGED};

class CachesOnDevice : public ::testing::TestWithParam<attnc_cache_kind> {
protected:
    // A ring has gone round before the end.
    CachedLayer cached(const LayerCall& call, int64_t slots = 2) const {
        const int64_t capacity = GetParam() == ATTNC_CACHE_RING ? 96 : 150;
        return {twin_library_of(call.config), call, {GetParam(), slots, capacity}, kDevice};
    }
};
INSTANTIATE_TEST_SUITE_P(Kinds, CachesOnDevice, ::testing::ValuesIn(kKinds), [](const auto& test) {
    return test.param == ATTNC_CACHE_SLOTS ? "Slots" : test.param == ATTNC_CACHE_RING ? "Ring" : "Paged";
});

constexpr const char* kCachedProblem = "d32_h4_kv2_f32_cache_page16:b2_q150_kv150";

// Prefill in chunks and steps of generation: each is the call with all its keys given.
TEST_P(CachesOnDevice, ChunksHaveTheBitsOfCallsWithAllKeys) {
    ATTNC_SKIP_WITHOUT_TWINS();
    LayerCall call = self_attention(kCachedProblem, 11);
    call.window_left = 60;
    call.lse = call.probs = true;
    call.bias = random_array({2, 1, 150, 150}, 12, 2);
    CachedLayer layer = cached(call);
    int64_t first = 0;
    for (const int64_t count : {33, 1, 1, 30, 1, 17, 1, 36, 1, 1, 28}) {
        const RunResult got = layer.append(appended(call, first, count));
        ASSERT_EQ(got.status, ATTNC_OK) << got.error;
        EXPECT_TRUE(same_bits(got, layer.plain(whole(call, first, count)))) << count << " from " << first;
        first += count;
    }
    EXPECT_EQ(first, 150);
    EXPECT_EQ(layer.length(1), 150);
}

TEST_P(CachesOnDevice, StepsMatchTheReference) {
    ATTNC_SKIP_WITHOUT_TWINS();
    LayerCall call = self_attention("d32_h4_kv2_f32_biaskv_sink_cache_page16:b2_q90_kv90", 13);
    call.window_left = 50;
    call.lse = true;
    CachedLayer layer = cached(call);
    int64_t first = 0;
    for (const int64_t count : {40, 1, 1, 20, 1, 27}) {
        const LayerCall all = whole(call, first, count);
        EXPECT_TRUE(matches_reference(all, layer.append(appended(call, first, count)), kOnDevice))
            << count << " from " << first;
        first += count;
    }
}

// Sequences of lengths of their own, in any slots, as each would be alone.
TEST_P(CachesOnDevice, SequencesDoNotDependOnEachOther) {
    ATTNC_SKIP_WITHOUT_TWINS();
    LayerCall call = self_attention("d32_h4_kv2_f32_cache_page16:b3_q70_kv70", 14);
    call.window_left = 60;
    CachedLayer together = cached(call, 5), apart = cached(call, 3);
    const std::vector<int64_t> slots = {4, 0, 2};
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 40}, {40, 1}, {41, 29}}) {
        LayerCall part = appended(call, first, count);
        if (count > 1) part.key_lengths = part.query_lengths = {{3}, {count, count, count}};
        const RunResult got = together.append(part, slots);
        ASSERT_EQ(got.status, ATTNC_OK) << got.error;
        for (int64_t b = 0; b < 3; ++b) {
            const RunResult alone = apart.append(item_of(part, b), {b});
            const auto begin = got.out.begin() + b * count * 32;
            EXPECT_TRUE(same_bits({begin, begin + count * 32}, alone.out))
                << "item " << b << " from " << first;
        }
    }
}

// Rows of several sequences one after another append and rotate as padded ones do. More queries than a block of attend_decode
// has rows, in padded calls too where there is more than one split of keys: the form follows from seq_q, which in a packed
// call is the rows of all sequences.
TEST_P(CachesOnDevice, PackedSequencesArePaddedOnes) {
    ATTNC_SKIP_WITHOUT_TWINS();
    for (const char* problem : {kCachedProblem, "d32_h2_f32_qknorm_rope_cache:b3_q70_kv70"}) {
        LayerCall call = self_attention(problem, 17);
        if (GetParam() == ATTNC_CACHE_PAGED && call.config.page_size == 0) continue;
        call.sizes.batch = 3;
        call.window_left = 40;
        CachedLayer packed = cached(call, 3), padded = cached(call, 3);
        std::vector<int64_t> held(3, 0);
        uint64_t seed = 18;
        for (const std::vector<int64_t>& lengths :
             {std::vector<int64_t>{33, 9, 0}, {1, 40, 17}, {30, 1, 12}, {33, 33, 33}}) {
            call.sizes.seq_q = *std::ranges::max_element(lengths);
            call.query = random_array({3, call.sizes.seq_q, 32}, seed++, 1);
            call.query_lengths = call.key_lengths = {{3}, lengths};
            for (size_t b = 0; b < 3; ++b) held[b] += lengths[b];
            call.sizes.seq_kv = *std::ranges::max_element(held);
            const RunResult want = padded.append(call, {1, 2, 0});
            ASSERT_EQ(want.status, ATTNC_OK) << want.error;
            EXPECT_TRUE(same_bits(packed.append_packed(call, {1, 2, 0}, {.gap = 2}), want))
                << to_string(call.config) << " at " << held[0];
        }
    }
}

TEST_P(CachesOnDevice, AMemoryIsDirectCrossAttention) {
    ATTNC_SKIP_WITHOUT_TWINS();
    LayerCall call = random_call("d32_h2_kdim20_vdim24_f32_cache_page16:b3_q20_kv90", 15);
    call.window_left = 80;
    call.key_lengths = {{3}, {90, 50, 1}};
    call.probs = call.lse = true;
    CachedLayer layer = cached(call, 3);
    const RunResult memory = layer.memory(call);
    ASSERT_EQ(memory.status, ATTNC_OK) << memory.error;
    for (const int64_t queries : {20, 3, 1}) {
        const LayerCall part = part_of(call, {0, queries, 0, 90});
        EXPECT_TRUE(same_bits(layer.read(part), layer.plain(part))) << queries << " queries";
    }
}

TEST(SlotsOnDevice, ReorderedSequencesAreFreshOnes) {
    ATTNC_SKIP_WITHOUT_TWINS();
    const LayerCall call = self_attention("d32_h4_kv2_f32_cache_page16:b3_q60_kv60", 16);
    const CacheShape shape = {ATTNC_CACHE_SLOTS, 3, 64};
    const attnc_library* const library = twin_library_of(call.config);
    CachedLayer beams(library, call, shape, kDevice), fresh(library, call, shape, kDevice);
    ASSERT_EQ(beams.append(appended(call, 0, 40)).status, ATTNC_OK);
    ASSERT_EQ(fresh.append(appended(call, 0, 40), {2, 0, 1}).status, ATTNC_OK);
    const int64_t from[] = {1, 2, 0};
    ASSERT_EQ(attnc_cache_reorder(beams.cache(), from, 3, nullptr), ATTNC_OK);
    EXPECT_TRUE(same_bits(beams.append(appended(call, 40, 1)), fresh.append(appended(call, 40, 1))));
}

}  // namespace
}  // namespace attnc::test
