// Calls that share a cache, over kernels in plain C++: each has the bits of the same call with all keys given, whatever kind
// of cache it is and wherever it lies, and the cache's own functions do what they say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/harness/cached_run.h"
#include "tests/support/device_fixture.h"

namespace attnc::test {
namespace {

constexpr attnc_cache_kind kKinds[] = {ATTNC_CACHE_SLOTS, ATTNC_CACHE_RING, ATTNC_CACHE_PAGED};

::testing::AssertionResult same(const RunResult& a, const RunResult& b) {
    if (a.status != ATTNC_OK || b.status != ATTNC_OK)
        return ::testing::AssertionFailure() << a.error << " / " << b.error;
    const auto equal = [](const std::vector<float>& x, const std::vector<float>& y) {
        return x.size() == y.size() &&
               (x.empty() || memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
    };
    if (!equal(a.out, b.out)) return ::testing::AssertionFailure() << "out differs";
    if (!equal(a.probs, b.probs)) return ::testing::AssertionFailure() << "probs differ";
    if (!equal(a.probs_averaged, b.probs_averaged))
        return ::testing::AssertionFailure() << "probs_averaged differ";
    if (!equal(a.lse, b.lse)) return ::testing::AssertionFailure() << "lse differs";
    return ::testing::AssertionSuccess();
}

// The call in chunks of these sizes, each as it is with all its keys given.
void expect_chunks(CachedLayer& cached, const LayerCall& call, const std::vector<int64_t>& chunks) {
    int64_t first = 0;
    for (const int64_t count : chunks) {
        EXPECT_TRUE(
            same(cached.append(appended(call, first, count)), cached.plain(whole(call, first, count))))
            << "keys " << first << " and " << count << " more";
        first += count;
        for (int64_t b = 0; b < call.sizes.batch; ++b) EXPECT_EQ(cached.length(b), first);
    }
}

// A library for the CPU and a device, and layers of it on one of them.
class OnTarget {
public:
    OnTarget(const Config& config, bool device, FakeLayout layout = {})
        : target_(device ? "cuda" : "x86-64-linux"), library_(config, with_device(layout)) {}
    CachedLayer cached(const LayerCall& call, const CacheShape& shape) const {
        return {library_.get(), call, shape, target_};
    }

private:
    static FakeLayout with_device(FakeLayout layout) {
        layout.device = true;
        return layout;
    }
    const char* target_;
    FakeLibrary library_;
};

// On the CPU, and on a device.
class Everywhere : public DeviceTest, public ::testing::WithParamInterface<bool> {
protected:
    static bool on_device() { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Cache, Everywhere, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "OnDevice" : "OnCpu"; });

using KindAndDevice = std::tuple<attnc_cache_kind, bool>;
class EveryKind : public DeviceTest, public ::testing::WithParamInterface<KindAndDevice> {
protected:
    static attnc_cache_kind kind() { return std::get<0>(GetParam()); }
    static bool on_device() { return std::get<1>(GetParam()); }
    // Enough for 90 keys; a ring has fewer rows than that.
    static CacheShape shape(int64_t slots) { return {kind(), slots, kind() == ATTNC_CACHE_RING ? 64 : 90}; }
    static void set_window(LayerCall& call) {
        if (kind() == ATTNC_CACHE_RING) call.window_left = 30;
    }
};
INSTANTIATE_TEST_SUITE_P(Cache, EveryKind, ::testing::Combine(::testing::ValuesIn(kKinds), ::testing::Bool()),
                         [](const auto& test) {
                             const attnc_cache_kind kind = std::get<0>(test.param);
                             const std::string name = kind == ATTNC_CACHE_SLOTS  ? "Slots"
                                                      : kind == ATTNC_CACHE_RING ? "Ring"
                                                                                 : "Paged";
                             return name + (std::get<1>(test.param) ? "OnDevice" : "OnCpu");
                         });

TEST_P(EveryKind, ChunksHaveTheBitsOfCallsWithAllKeys) {
    for (const char* problem :
         {"d32_h4_kv2_f32_cache_page16:b2_q90_kv90", "d20_h4_f32_noin_noout_cache_page32:b2_q90_kv90",
          "d32_h2_hd16_vhd5_f32_sink_zeroattn_cache_page16:b2_q90_kv90"}) {
        LayerCall call = self_attention(problem, 1);
        if (call.config.v_head_dim != call.config.head_dim) call.key = call.query;
        set_window(call);
        call.probs = call.probs_averaged = call.lse = true;
        const OnTarget library(call.config, on_device());
        CachedLayer cached = library.cached(call, shape(2));
        expect_chunks(cached, call, {16, 17, 1, 20, 1, 1, 1, 9, 24});
    }
}

TEST_P(EveryKind, MasksCountAllKeys) {
    LayerCall call = self_attention("d32_h2_f32_cache_page16:b2_q90_kv90", 2);
    set_window(call);
    Random random(21);
    call.keep_mask = filled<uint8_t>({1, 2, 90, 90}, 1);
    for (uint8_t& element : call.keep_mask.values) element = random.chance(0.8) ? 1 : 0;
    call.bias = random_array({2, 1, 1, 90}, 22, 2);
    call.key_drop_mask = filled<uint8_t>({2, 90}, 0);
    for (uint8_t& element : call.key_drop_mask.values) element = random.chance(0.1) ? 1 : 0;
    call.probs_averaged = call.lse = true;
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, shape(2));
    expect_chunks(cached, call, {33, 1, 30, 26});
}

// Columns of keys that no item has are as those past an item's length.
TEST_P(EveryKind, MaxKeysAreSeqKvOfTheCall) {
    LayerCall call = self_attention("d32_h2_f32_cache_page16:b2_q60_kv60", 29);
    set_window(call);
    call.probs = call.lse = true;
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, shape(2));
    ASSERT_EQ(cached.append(appended(call, 0, 30)).status, ATTNC_OK);
    constexpr int64_t kKeys = 40, kMaxKeys = 55;
    LayerCall part = appended(call, 30, 10);
    part.sizes.seq_kv = kMaxKeys;
    attnc_inputs in = part.inputs();
    in.max_keys = kMaxKeys;
    CachedLayer::Places places;
    cached.place(in, places, {}, 2);
    const RunResult got = cached.run(part, in), want = cached.plain(whole(call, 30, 10));
    ASSERT_EQ(got.status, ATTNC_OK) << got.error;
    EXPECT_EQ(got.out, want.out);
    EXPECT_EQ(got.lse, want.lse);
    for (size_t row = 0; row < size_t{2} * 2 * 10; ++row) {
        for (size_t j = 0; j < kMaxKeys; ++j)
            ASSERT_EQ(got.probs[row * kMaxKeys + j], j < kKeys ? want.probs[row * kKeys + j] : 0)
                << row << " " << j;
    }
}

TEST_P(EveryKind, ItemsHaveLengthsOfTheirOwn) {
    LayerCall call = self_attention("d32_h2_f32_cache_page16:b3_q20_kv20", 3);
    set_window(call);
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, shape(3));
    call.query_lengths = {{3}, {20, 7, 0}};
    call.key_lengths = call.query_lengths;
    ASSERT_EQ(cached.append(call).status, ATTNC_OK);
    EXPECT_EQ(cached.length(0), 20);
    EXPECT_EQ(cached.length(1), 7);
    EXPECT_EQ(cached.length(2), 0);
    // Item b of the next call has what it had and 5 more.
    LayerCall next = self_attention("d32_h2_f32_cache_page16:b3_q5_kv5", 4);
    next.window_left = call.window_left;
    next.sizes.seq_kv = 25;
    next.lse = true;
    const RunResult got = cached.append(next);
    for (int64_t b = 0; b < 3; ++b) {
        const int64_t held = call.key_lengths.at(b);
        LayerCall alone = item_of(next, b);
        alone.key = filled<float>({1, held + 5, 32}, 0);
        for (int64_t j = 0; j < held + 5; ++j) {
            for (int64_t n = 0; n < 32; ++n)
                alone.key.at(0, j, n) = j < held ? call.query.at(b, j, n) : next.query.at(b, j - held, n);
        }
        alone.sizes.seq_kv = held + 5;
        const RunResult want = cached.plain(alone);
        ASSERT_EQ(want.status, ATTNC_OK) << want.error;
        for (size_t n = 0; n < want.out.size(); ++n)
            ASSERT_EQ(got.out[static_cast<size_t>(b) * want.out.size() + n], want.out[n]) << b << " " << n;
    }
}

TEST_P(EveryKind, AnyTasksHaveTheSameBits) {
    LayerCall call = self_attention("d128_h8_f32_biaskv_cache_page16:b2_q60_kv60", 5);
    set_window(call);
    call.probs_averaged = true;
    const OnTarget library(call.config, on_device(), {.panel = 16});
    const auto threads = [](void*, int64_t count, int (*task)(void*, int64_t), void* data) {
        std::vector<std::thread> running;
        std::atomic<int> result{0};
        for (int64_t i = 0; i < count; ++i) running.emplace_back([&, i] { result |= task(data, i); });
        for (auto& thread : running) thread.join();
        return result.load();
    };
    CachedLayer alone = library.cached(call, shape(2));
    for (const int64_t concurrency : {2, 5, 40}) {
        const attnc_executor executor = {nullptr, concurrency, threads};
        CachedLayer cached = library.cached(call, shape(2));
        for (const int64_t first : {0, 30}) {
            const LayerCall part = appended(call, first, 30);
            if (alone.length(0) == first) alone.append(part);
            EXPECT_TRUE(same(cached.append(part, {}, &executor), alone.plain(whole(call, first, 30))));
        }
    }
}

// Calls of which each item brings so many rows, one after another on the first layer and padded on the second.
struct PackedRound {
    std::vector<int64_t> lengths;
    int64_t gap = 0;
};
void expect_packed_as_padded(CachedLayer& packed, CachedLayer& padded, const LayerCall& like,
                             const std::vector<PackedRound>& rounds) {
    const auto batch = static_cast<size_t>(like.sizes.batch);
    const std::vector<int64_t> slots = {2, 0, 1};
    std::vector<int64_t> held(batch, 0);
    uint64_t seed = 100;
    for (const PackedRound& round : rounds) {
        LayerCall call = like;
        call.sizes.seq_q = *std::ranges::max_element(round.lengths);
        call.query = random_array({like.sizes.batch, call.sizes.seq_q, like.query.shape[2]}, seed++, 1);
        call.query_lengths = call.key_lengths = {{like.sizes.batch}, round.lengths};
        for (size_t b = 0; b < batch; ++b) held[b] += round.lengths[b];
        call.sizes.seq_kv = *std::ranges::max_element(held);
        if (call.key_bias.given())
            call.key_bias = random_array({like.sizes.batch, call.sizes.seq_kv}, seed++, 3);
        if (call.query_positions.given()) {
            call.query_positions = filled<int64_t>({like.sizes.batch, call.sizes.seq_q}, 0);
            for (int64_t& position : call.query_positions.values)
                position = static_cast<int64_t>(mixed_bits(seed, 5) % 1000) - 500, ++seed;
        }
        const RunResult want = padded.append(call, slots);
        ASSERT_EQ(want.status, ATTNC_OK) << want.error;
        EXPECT_TRUE(same(packed.append_packed(call, slots, {.gap = round.gap}), want))
            << to_string(like.config) << " gap " << round.gap << " after " << held[0];
        for (size_t b = 0; b < batch; ++b) EXPECT_EQ(packed.length(slots[b]), held[b]);
    }
}

// Of as many queries at least as go to a device's attend, whose sums have another order than those of attend_decode.
TEST_P(EveryKind, PackedSequencesAppendTheirRows) {
    for (const char* problem :
         {"d32_h4_kv2_f32_cache_page16:b3_q20_kv20", "d20_h4_f32_noin_noout_cache_page32:b3_q20_kv20",
          "d32_h2_f32_biaskv_zeroattn_sink_qknorm_cache_page16:b3_q20_kv20",
          "d32_h2_hd16_vhd5_f32_noout_cache_page16:b3_q20_kv20"}) {
        LayerCall call = self_attention(problem, 6);
        set_window(call);
        call.probs = call.probs_averaged = call.lse = true;
        call.key_bias = random_array({3, 20}, 1, 1);
        const OnTarget library(call.config, on_device());
        CachedLayer packed = library.cached(call, shape(3)), padded = library.cached(call, shape(3));
        expect_packed_as_padded(
            packed, padded, call,
            {{{7, 13, 0}}, {{1, 4, 20}, 3}, {{30, 29, 30}}, {{3, 1, 1}}, {{17, 0, 22}, 1}, {{16, 16, 16}}});
    }
}

TEST_P(EveryKind, PackedSequencesRotateByTheKeysThatTheyHave) {
    for (const char* problem : {"d32_h4_kv2_f32_rope_cache_page16:b3_q20_kv20",
                                "d32_h2_f32_ropepairs_qknorm_cache_page16:b3_q20_kv20"}) {
        for (const int positions : {0, 1, 2}) {
            LayerCall call = self_attention(problem, 7);
            set_window(call);
            if (positions == 1) call.query_positions = filled<int64_t>({3, 20}, 0);
            if (positions == 2) call.position_offsets = {{3}, {-7, 1000, 0}};
            const OnTarget library(call.config, on_device());
            CachedLayer packed = library.cached(call, shape(3)), padded = library.cached(call, shape(3));
            expect_packed_as_padded(packed, padded, call,
                                    {{{7, 13, 0}}, {{1, 4, 20}, 3}, {{30, 29, 30}}, {{3, 1, 1}, 2}});
        }
    }
}

// Key and value of their own, one after another: appended by calls that have queries, and by those that have none.
TEST_P(EveryKind, PackedSequencesBringKeysOfTheirOwn) {
    LayerCall call = random_call("d32_h2_kdim20_vdim24_f32_rope_cache_page16:b3_q12_kv30", 8);
    set_window(call);
    call.query_lengths = {{3}, {12, 3, 5}};
    call.key_lengths = {{3}, {30, 11, 0}};
    call.lse = call.probs = true;
    const OnTarget library(call.config, on_device());
    CachedLayer packed = library.cached(call, shape(3)), padded = library.cached(call, shape(3));
    ASSERT_EQ(packed.memory_packed(call, {2, 0, 1}).status, ATTNC_OK);
    ASSERT_EQ(padded.memory(call, {2, 0, 1}).status, ATTNC_OK);
    for (const int64_t slot : {0, 1, 2}) EXPECT_EQ(packed.length(slot), padded.length(slot));
    EXPECT_EQ(packed.length(0), 11);
    EXPECT_TRUE(same(packed.read_packed(call, {2, 0, 1}), padded.read(call, {2, 0, 1})));
    call.sizes.seq_kv = 60;
    for (const int64_t gap : {0, 2}) {
        EXPECT_TRUE(same(packed.append_packed(call, {2, 0, 1}, {.gap = gap}), padded.append(call, {2, 0, 1})))
            << "gap " << gap;
        EXPECT_EQ(packed.length(0), padded.length(0));
        call.sizes.seq_kv = 90;
    }
}

// A row of the mean of the values needs those of all keys.
TEST_P(EveryKind, MeansOfValuesTakeAllKeys) {
    if (kind() == ATTNC_CACHE_RING) return;
    LayerCall call = self_attention("d32_h2_f32_cache_page16:b2_q60_kv60", 8);
    call.empty_rows = ATTNC_EMPTY_ROWS_MEAN_OF_VALUES;
    call.keep_mask = filled<uint8_t>({1, 1, 60, 60}, 1);
    for (int64_t j = 0; j < 60; ++j) call.keep_mask.at(0, 0, 40, j) = 0;
    call.probs = true;
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, shape(2));
    expect_chunks(cached, call, {30, 30});
}

TEST_P(EveryKind, NothingReadsWhatItDoesNotHold) {
    LayerCall call = self_attention("d32_h2_f32_cache_page16:b1_q90_kv90", 9);
    set_window(call);
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, shape(1));
    LayerCall spoilt = appended(call, 0, 40);
    spoilt.key_lengths = spoilt.query_lengths = {{1}, {30}};
    spoilt.sizes.seq_kv = 40;
    for (int64_t n = 0; n < 32; ++n)
        for (int64_t i = 30; i < 40; ++i) spoilt.query.at(0, i, n) = NAN;
    ASSERT_EQ(cached.append(spoilt).status, ATTNC_OK);
    EXPECT_TRUE(same(cached.append(appended(call, 30, 20)), cached.plain(whole(call, 30, 20))));
}

// A failed call leaves the cache as it was, a ring too.
TEST_P(EveryKind, FailuresLeaveWhatARepetitionNeeds) {
    LayerCall call = self_attention("d32_h2_f32_cache_page16:b1_q90_kv90", 10);
    set_window(call);
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, shape(1));
    expect_chunks(cached, call, {60});
    // Each launch of a call but the first ones comes after something was launched already.
    constexpr int64_t kLaunches = 9;
    for (int64_t n = 2; on_device() && n < kLaunches; ++n) {
        stand_in::fail_call(n, 700);
        EXPECT_EQ(cached.append(appended(call, 60, 20)).status, ATTNC_DEVICE_FAILED);
        EXPECT_TRUE(stand_in::has_failed());
        EXPECT_EQ(cached.length(0), 60);
    }
    for (const int kernel : {ATTNC_KERNEL_PROJECT_HEADS, ATTNC_KERNEL_ATTEND, ATTNC_KERNEL_PROJECT_OUT}) {
        if (on_device()) break;
        fail_next_call(kernel, FakeFailure::kHook);
        EXPECT_EQ(cached.append(appended(call, 60, 20)).status, ATTNC_KERNEL_FAILED);
        EXPECT_EQ(cached.length(0), 60);
    }
    EXPECT_TRUE(same(cached.append(appended(call, 60, 20)), cached.plain(whole(call, 60, 20))));
}

TEST_P(EveryKind, WithoutQueriesACallOnlyAppends) {
    LayerCall call = self_attention("d32_h2_f32_cache_page16:b2_q40_kv40", 11);
    set_window(call);
    call.key = call.query;
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, shape(2));
    const RunResult none = cached.append(part_of(call, {0, 0, 0, 25}));
    EXPECT_EQ(none.status, ATTNC_OK) << none.error;
    EXPECT_EQ(cached.length(1), 25);
    EXPECT_TRUE(same(cached.append(part_of(call, {25, 15, 25, 15})), cached.plain(whole(call, 25, 15))));
}

TEST_P(EveryKind, MemoriesAreProjectedOnceAndReadManyTimes) {
    LayerCall call = random_call("d32_h2_kdim20_vdim24_f32_cache_page16:b3_q12_kv40", 12);
    set_window(call);
    call.key_lengths = {{3}, {40, 11, 29}};
    call.lse = call.probs = true;
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, shape(3));
    const RunResult memory = cached.memory(call);
    ASSERT_EQ(memory.status, ATTNC_OK) << memory.error;
    EXPECT_EQ(cached.length(1), 11);
    fake_counts().reset();
    for (int round = 0; round < 2; ++round) {
        LayerCall next = call;
        next.query = random_call("d32_h2_f32:b3_q12_kv1", static_cast<uint64_t>(round) + 13).query;
        const RunResult got = cached.read(next);
        EXPECT_TRUE(same(got, cached.plain(next)));
        EXPECT_EQ(cached.length(1), 11);
    }
    // Items may share what they only read.
    LayerCall shared = call;
    for (int64_t b = 0; b < 3; ++b) shared.key_lengths.at(b) = 11;
    for (int64_t b : {0, 2}) {
        std::copy_n(call.key.values.begin() + 40 * 20, 40 * 20, shared.key.values.begin() + b * 40 * 20);
        std::copy_n(call.value.values.begin() + 40 * 24, 40 * 24, shared.value.values.begin() + b * 40 * 24);
    }
    shared.probs = false;
    EXPECT_TRUE(same(cached.read(shared, {1, 1, 1}), cached.plain(shared)));
}

TEST_P(EveryKind, ExportAndImportKeepEveryBit) {
    LayerCall call = self_attention("d20_h4_kv2_hd5_vhd7_f32_cache_page16:b2_q80_kv80", 14);
    call.key = call.query;
    set_window(call);
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, shape(2)), copy = library.cached(call, shape(2));
    ASSERT_EQ(cached.append(appended(call, 0, 30)).status, ATTNC_OK);
    ASSERT_EQ(cached.append(appended(call, 30, 30)).status, ATTNC_OK);
    const int64_t first = 10;
    Array<float> key = filled<float>({2, 2, 50, 5}, 0), value = filled<float>({2, 2, 50, 7}, 0);
    const attnc_tensor k = key.view(), v = value.view();
    const auto range_of = [&](const CachedLayer& side, CachedLayer::Places& places, int64_t from,
                              int64_t count) {
        attnc_inputs in = ATTNC_INPUTS_INIT;
        side.place(in, places, {0, 1}, 2);
        attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;
        range.slots = in.cache_slots, range.block_table = in.block_table;
        range.first = from, range.count = count;
        return range;
    };
    attnc_error error = {};
    if (kind() != ATTNC_CACHE_RING) {  // which may begin anywhere
        CachedLayer::Places from, to;
        const attnc_cache_range begin = range_of(cached, from, 0, first),
                                same_place = range_of(copy, to, 0, first);
        Array<float> k0 = filled<float>({2, 2, first, 5}, 0), v0 = filled<float>({2, 2, first, 7}, 0);
        const attnc_tensor kt = k0.view(), vt = v0.view();
        ASSERT_EQ(attnc_cache_export(cached.cache(), &begin, &kt, &vt, &error), ATTNC_OK) << error.text;
        ASSERT_EQ(attnc_cache_import(copy.cache(), &same_place, &kt, &vt, &error), ATTNC_OK) << error.text;
    }
    CachedLayer::Places from, to;
    const attnc_cache_range out = range_of(cached, from, first, 50), in = range_of(copy, to, first, 50);
    ASSERT_EQ(attnc_cache_export(cached.cache(), &out, &k, nullptr, &error), ATTNC_OK) << error.text;
    ASSERT_EQ(attnc_cache_export(cached.cache(), &out, nullptr, &v, &error), ATTNC_OK) << error.text;
    ASSERT_EQ(attnc_cache_import(copy.cache(), &in, &k, &v, &error), ATTNC_OK) << error.text;
    for (const int64_t slot : {0, 1}) copy.set_paged_length(slot, 60);
    EXPECT_EQ(copy.length(1), 60);
    const LayerCall next = appended(call, 60, 20);
    EXPECT_TRUE(same(cached.append(next), copy.append(next)));
    // What is kept is the projection: key . wk + bk.
    for (int64_t n = 0; n < 5; ++n) {
        double sum = static_cast<double>(call.bk.at(5 + n));
        for (int64_t i = 0; i < 20; ++i)
            sum += static_cast<double>(call.wk.at(5 + n, i)) * static_cast<double>(call.key.at(1, 12, i));
        EXPECT_NEAR(key.at(1, 1, 2, n), sum, 1e-4);
    }
}

// Beam search: whatever the sequences become, each has the bits of one that was never moved.
TEST_P(Everywhere, ReorderingIsRightForDuplicatesAndCycles) {
    for (const attnc_cache_kind kind : {ATTNC_CACHE_SLOTS, ATTNC_CACHE_RING}) {
        LayerCall call = self_attention("d32_h2_f32_cache:b6_q90_kv90", 15);
        call.window_left = 30;
        const OnTarget library(call.config, on_device());
        const CacheShape shape = {kind, 6, kind == ATTNC_CACHE_RING ? 64 : 96};
        CachedLayer cached = library.cached(call, shape);
        Random random(16);
        std::vector<int64_t> beams(6);  // which item's keys a slot has
        std::iota(beams.begin(), beams.end(), 0);
        ASSERT_EQ(cached.append(appended(call, 0, 40)).status, ATTNC_OK);
        for (int64_t first = 40; first < 80; ++first) {
            std::vector<int64_t> from(static_cast<size_t>(random.between(0, 6)));
            for (int64_t& slot : from) slot = random.between(0, 5);
            if (random.chance(0.3) && from.size() == 6) from = {1, 2, 0, 4, 3, 5};
            ASSERT_EQ(
                attnc_cache_reorder(cached.cache(), from.data(), static_cast<int64_t>(from.size()), nullptr),
                ATTNC_OK);
            const std::vector<int64_t> before = beams;
            for (size_t i = 0; i < from.size(); ++i) beams[i] = before[static_cast<size_t>(from[i])];
            // The items of the call are those that the slots stand for.
            LayerCall beam = call;
            for (size_t i = 0; i < 6; ++i) {
                std::copy_n(call.query.values.begin() + beams[i] * 90 * 32, 90 * 32,
                            beam.query.values.begin() + static_cast<int64_t>(i) * 90 * 32);
            }
            ASSERT_TRUE(same(cached.append(appended(beam, first, 1)), cached.plain(whole(beam, first, 1))))
                << "key " << first;
        }
    }
}

TEST_P(Everywhere, ReorderingMovesLengthsToo) {
    LayerCall call = self_attention("d32_h2_f32_cache:b4_q20_kv20", 17);
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, {ATTNC_CACHE_SLOTS, 5, 64});
    call.query_lengths = call.key_lengths = {{4}, {20, 3, 0, 9}};
    ASSERT_EQ(cached.append(call).status, ATTNC_OK);
    const int64_t from[] = {3, 0, 1, 0, 2};
    ASSERT_EQ(attnc_cache_reorder(cached.cache(), from, 5, nullptr), ATTNC_OK);
    const int64_t want[] = {9, 20, 3, 20, 0};
    for (int64_t slot = 0; slot < 5; ++slot) EXPECT_EQ(cached.length(slot), want[slot]);
}

TEST_P(Everywhere, ASlidingWindowRingGoesRoundManyTimes) {
    LayerCall call = self_attention("d32_h2_f32_cache:b1_q400_kv400", 18);
    call.window_left = 21;
    call.lse = true;
    const OnTarget library(call.config, on_device());
    CachedLayer ring = library.cached(call, {ATTNC_CACHE_RING, 1, 48}),
                full = library.cached(call, {ATTNC_CACHE_SLOTS, 1, 400});
    Random random(19);
    for (int64_t first = 0; first < 400;) {
        const int64_t count = std::min<int64_t>(random.chance(0.5) ? 1 : random.between(2, 27), 400 - first);
        ASSERT_TRUE(
            same(ring.append(appended(call, first, count)), full.append(appended(call, first, count))))
            << first << " and " << count << " more";
        first += count;
    }
}

TEST_P(Everywhere, RewindingForgetsTheEnd) {
    LayerCall call = self_attention("d32_h2_f32_cache:b1_q60_kv60", 20);
    call.window_left = 10;
    const OnTarget library(call.config, on_device());
    for (const attnc_cache_kind kind : {ATTNC_CACHE_SLOTS, ATTNC_CACHE_RING}) {
        CachedLayer cached = library.cached(call, {kind, 1, 64});
        LayerCall other = call;
        std::reverse(other.query.values.begin(), other.query.values.end());
        ASSERT_EQ(cached.append(appended(call, 0, 30)).status, ATTNC_OK);
        ASSERT_EQ(cached.append(appended(other, 30, 25)).status, ATTNC_OK);
        ASSERT_EQ(attnc_cache_rewind(cached.cache(), 0, 30, nullptr), ATTNC_OK);
        EXPECT_TRUE(same(cached.append(appended(call, 30, 12)), cached.plain(whole(call, 30, 12))));
        ASSERT_EQ(attnc_cache_rewind(cached.cache(), 0, 0, nullptr), ATTNC_OK);
        EXPECT_TRUE(same(cached.append(appended(call, 0, 12)), cached.plain(whole(call, 0, 12))));
    }
}

TEST_P(Everywhere, MayBeMovedWithItsBytes) {
    const LayerCall call = self_attention("d32_h2_f32_cache:b1_q40_kv40", 23);
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, {ATTNC_CACHE_SLOTS, 1, 60});
    attnc_cache_options options = ATTNC_CACHE_OPTIONS_INIT;
    options.slots = 1, options.capacity = 60;
    size_t bytes = 0;
    ASSERT_EQ(attnc_cache_bytes(cached.layer(), &options, &bytes, nullptr), ATTNC_OK);
    size_t on_device_bytes = 0;
    ASSERT_EQ(attnc_cache_device_bytes(cached.layer(), &options, &on_device_bytes, nullptr), ATTNC_OK);
    const size_t contents = 2 * 2 * 64 * 16 * sizeof(float);  // rows are rounded up to 64
    if (on_device()) {
        EXPECT_EQ(on_device_bytes, 2 * 256 + contents);
        EXPECT_LT(bytes, 1024U);
    } else {
        EXPECT_EQ(on_device_bytes, 0U);
        EXPECT_EQ(bytes, 192U + 3 * 64 + contents);
    }
    ASSERT_EQ(cached.append(appended(call, 0, 20)).status, ATTNC_OK);
    const GuardedMemory moved(bytes, Placement::kAtEnd, 64);
    memcpy(moved.data(), cached.cache(), bytes);
    const LayerCall next = appended(call, 20, 20);
    attnc_inputs in = next.inputs();
    in.cache = static_cast<attnc_cache*>(moved.data());
    EXPECT_TRUE(same(cached.run(next, in), cached.plain(whole(call, 20, 20))));
    EXPECT_EQ(attnc_cache_length(in.cache, 0), 40);
    EXPECT_EQ(cached.length(0), on_device() ? 40 : 20);  // on a device only the head was moved
}

// Two sequences that begin with the same page, which is full, and go on in pages of their own.
TEST_P(Everywhere, PagesOfACommonBeginningAreShared) {
    const LayerCall call = self_attention("d32_h2_f32_cache_page16:b2_q40_kv40", 28);
    LayerCall common = call;
    std::copy_n(call.query.values.begin(), 16 * 32, common.query.values.begin() + 40 * 32);
    const OnTarget library(call.config, on_device());
    CachedLayer cached = library.cached(call, {ATTNC_CACHE_PAGED, 2, 64});
    const int32_t first_table[] = {4, -1, -1}, table[] = {4, 1, 3, 4, 2, 5};
    const int64_t none[] = {0}, held[] = {16, 16};
    const LayerCall beginning = item_of(appended(common, 0, 16), 0);
    attnc_inputs in = beginning.inputs();
    in.cache = cached.cache();
    in.block_table = attnc_tensor_2d(ATTNC_I32, first_table, 1, 3);
    in.cache_lengths = attnc_tensor_1d(ATTNC_I64, none, 1);
    ASSERT_EQ(cached.run(beginning, in).status, ATTNC_OK);
    const LayerCall rest = appended(common, 16, 24);
    in = rest.inputs();
    in.cache = cached.cache();
    in.block_table = attnc_tensor_2d(ATTNC_I32, table, 2, 3);
    in.cache_lengths = attnc_tensor_1d(ATTNC_I64, held, 2);
    EXPECT_TRUE(same(cached.run(rest, in), cached.plain(whole(common, 16, 24))));
}

TEST_P(Everywhere, OtherSlotsMayBeUsedAtTheSameTime) {
    const LayerCall call = self_attention("d32_h2_f32_cache_page16:b1_q60_kv60", 24);
    const OnTarget library(call.config, on_device());
    for (const attnc_cache_kind kind : {ATTNC_CACHE_SLOTS, ATTNC_CACHE_PAGED}) {
        CachedLayer cached = library.cached(call, {kind, 4, 64});
        std::vector<std::thread> threads;
        std::vector<std::vector<float>> results(4);
        for (int64_t slot = 0; slot < 4; ++slot) {
            threads.emplace_back([&, slot] {
                for (int64_t first = 0; first < 60; first += 12) {
                    LayerCall part = appended(call, first, 12);
                    const RunResult got = cached.append(part, {slot});
                    auto& all = results[static_cast<size_t>(slot)];
                    all.insert(all.end(), got.out.begin(), got.out.end());
                }
            });
        }
        for (auto& thread : threads) thread.join();
        const RunResult want = cached.plain(call);
        for (const auto& result : results) EXPECT_EQ(result, want.out);
    }
}

// Sizes alone: lengths that are not there yet count as the most that they can be.
TEST_P(Everywhere, WorkspaceOfUnknownLengthsSuffices) {
    for (const attnc_cache_kind kind : kKinds) {
        LayerCall call = self_attention("d32_h2_f32_cache_page16:b2_q4_kv4", 25);
        call.window_left = 20;
        call.key_bias = random_array({2, 50}, 26, 1);
        call.key_drop_mask = filled<uint8_t>({2, 50}, 0);
        const OnTarget library(call.config, on_device());
        CachedLayer cached = library.cached(call, {kind, 2, 64});
        LayerCall first = self_attention("d32_h2_f32_cache_page16:b2_q30_kv30", 27);
        ASSERT_EQ(cached.append(first).status, ATTNC_OK);
        attnc_inputs in = call.inputs();
        CachedLayer::Places places;
        cached.place(in, places, {0, 1}, 2);
        in.key_bias = attnc_tensor_2d(ATTNC_F32, call.key_bias.values.data(), 2, 34);
        in.key_drop_mask = attnc_tensor_2d(ATTNC_U8, call.key_drop_mask.values.data(), 2, 34);
        if (on_device()) in.max_keys = 34;
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = attnc_tensor_3d(ATTNC_F32, nullptr, 2, 4, 32);
        size_t known = 0, unknown = 0;
        attnc_error error = {};
        ASSERT_EQ(attnc_layer_workspace(cached.layer(), &in, &outputs, nullptr, &known, &error), ATTNC_OK)
            << error.text;
        in.cache_slots.data = in.cache_lengths.data = in.block_table.data = in.query.data = nullptr;
        in.key_bias.data = in.key_drop_mask.data = nullptr;
        ASSERT_EQ(attnc_layer_workspace(cached.layer(), &in, &outputs, nullptr, &unknown, &error), ATTNC_OK)
            << error.text;
        EXPECT_GE(unknown, known);
    }
}

}  // namespace
}  // namespace attnc::test
