// Caches on generated kernels: a sequence has the same bits in chunks as at once, in whatever kind of cache it is, moved or
// not; steps of a few queries are within the bounds of the call with all keys given.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/harness/cached_run.h"
#include "tests/harness/libraries.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

// One block of keys, and blocks of 64.
class Caches : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
protected:
    void SetUp() override {
        if (!cpu_runs(target())) GTEST_SKIP() << "this CPU does not run " << target();
    }
    const std::string& target() const { return std::get<0>(GetParam()); }
    RunOptions options() const { return {.target = target(), .schedule = std::get<1>(GetParam())}; }
    CachedLayer cached(const LayerCall& call, const CacheShape& shape) const {
        return {library_of(call.config, options().schedule), call, shape, target().c_str()};
    }
};

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, std::string>>& test) {
    return short_name(std::get<0>(test.param)) +
           (std::get<1>(test.param).empty() ? "_one_block" : "_blocks_of_64");
}
INSTANTIATE_TEST_SUITE_P(Cpu, Caches,
                         ::testing::Combine(::testing::ValuesIn(all_targets()),
                                            ::testing::Values("", "tile_kv:64")),
                         name_of);

// Rows first .. first + count of out [batch, seq, features].
std::vector<float> rows_of(const std::vector<float>& out, const Sizes& sizes, int64_t first, int64_t count) {
    const int64_t features = static_cast<int64_t>(out.size()) / (sizes.batch * sizes.seq_q);
    std::vector<float> rows;
    for (int64_t b = 0; b < sizes.batch; ++b) {
        const auto begin = out.begin() + (b * sizes.seq_q + first) * features;
        rows.insert(rows.end(), begin, begin + count * features);
    }
    return rows;
}

constexpr attnc_cache_kind kKinds[] = {ATTNC_CACHE_SLOTS, ATTNC_CACHE_RING, ATTNC_CACHE_PAGED};

constexpr const char* kProblem = "d64_h4_kv2_f32_cache_page16:b2_q300_kv300";

TEST_P(Caches, ChunksOf16OrMoreAreTheCallAtOnce) {
    for (const attnc_cache_kind kind : kKinds) {
        LayerCall call = self_attention(kProblem, 1);
        call.window_left = 90;
        CachedLayer layer = cached(call, {kind, 2, kind == ATTNC_CACHE_RING ? 192 : 300});
        const RunResult at_once = layer.plain(call);
        ASSERT_EQ(at_once.status, ATTNC_OK) << at_once.error;
        int64_t first = 0;
        for (const int64_t count : {16, 33, 100, 17, 64, 54, 16}) {
            const RunResult got = layer.append(appended(call, first, count));
            ASSERT_EQ(got.status, ATTNC_OK) << got.error;
            EXPECT_TRUE(same_bits(got.out, rows_of(at_once.out, call.sizes, first, count)))
                << "kind " << kind << ", " << count << " from " << first;
            first += count;
        }
    }
}

TEST_P(Caches, MasksAndStatisticsAreThoseOfAllKeys) {
    for (const attnc_cache_kind kind : kKinds) {
        LayerCall call = self_attention("d64_h4_kv2_f32_sink_cache_page32:b2_q150_kv150", 2);
        call.window_left = 70;
        call.keep_mask = filled<uint8_t>({1, 4, 150, 150}, 0);
        Random random(21);
        for (uint8_t& element : call.keep_mask.values) element = random.chance(0.7) ? 1 : 0;
        call.bias = random_array({2, 1, 150, 150}, 22, 2);
        call.probs = call.probs_averaged = call.lse = true;
        CachedLayer layer = cached(call, {kind, 2, kind == ATTNC_CACHE_RING ? 160 : 150});
        int64_t first = 0;
        for (const int64_t count : {70, 20, 60}) {
            EXPECT_TRUE(
                same_bits(layer.append(appended(call, first, count)), layer.plain(whole(call, first, count))))
                << "kind " << kind << " from " << first;
            first += count;
        }
    }
}

TEST_P(Caches, StepsOfAnySizeMatchTheReferenceAndEachOther) {
    LayerCall call = self_attention("d64_h4_kv2_f32_cache_page16:b2_q150_kv150", 3);
    call.window_left = 70;
    call.lse = true;
    CachedLayer slots = cached(call, {ATTNC_CACHE_SLOTS, 2, 150});
    CachedLayer ring = cached(call, {ATTNC_CACHE_RING, 2, 96});
    CachedLayer paged = cached(call, {ATTNC_CACHE_PAGED, 2, 150});
    int64_t first = 0;
    for (const int64_t count : {20, 1, 1, 2, 5, 8, 9, 1, 16, 1, 25, 3, 1, 1, 26, 7, 1, 1, 1, 20}) {
        const LayerCall part = appended(call, first, count);
        const RunResult got = slots.append(part);
        ASSERT_TRUE(matches_reference(whole(call, first, count), got, options()))
            << count << " from " << first;
        ASSERT_TRUE(same_bits(got, ring.append(part))) << "ring: " << count << " from " << first;
        ASSERT_TRUE(same_bits(got, paged.append(part))) << "pages: " << count << " from " << first;
        first += count;
    }
    EXPECT_EQ(first, 150);
}

TEST_P(Caches, ARingFarBeyondItsCapacityIsAFullCache) {
    LayerCall call = self_attention("d64_h4_kv2_f32_cache_page16:b1_q700_kv700", 4);
    call.window_left = 21;
    CachedLayer ring = cached(call, {ATTNC_CACHE_RING, 1, 48}),
                full = cached(call, {ATTNC_CACHE_SLOTS, 1, 700});
    Random random(41);
    for (int64_t first = 0; first < 700;) {
        const int64_t count = std::min<int64_t>(random.chance(0.5) ? 1 : random.between(2, 27), 700 - first);
        const LayerCall part = appended(call, first, count);
        ASSERT_TRUE(same_bits(ring.append(part), full.append(part))) << count << " from " << first;
        first += count;
    }
}

// Beam search: after each step the sequences are some of those before. In the end each is what it would be if it had been
// alone in a slot from the beginning.
TEST_P(Caches, ReorderedSequencesAreFreshOnes) {
    for (const attnc_cache_kind kind : {ATTNC_CACHE_SLOTS, ATTNC_CACHE_RING}) {
        LayerCall call = self_attention("d64_h4_kv2_f32_cache_page16:b5_q80_kv80", 5);
        call.window_left = 40;
        const CacheShape shape = {kind, 5, kind == ATTNC_CACHE_RING ? 64 : 80};
        CachedLayer beams = cached(call, shape), fresh = cached(call, shape);
        LayerCall history = call;  // what the slots' sequences are made of
        Random random(51);
        ASSERT_EQ(beams.append(appended(call, 0, 40)).status, ATTNC_OK);
        RunResult last;
        for (int64_t first = 40; first < 60; ++first) {
            std::vector<int64_t> from(5);
            for (int64_t& slot : from) slot = random.between(0, 4);
            if (first % 3 == 0) from = {1, 2, 0, 4, 3};
            ASSERT_EQ(attnc_cache_reorder(beams.cache(), from.data(), 5, nullptr), ATTNC_OK);
            LayerCall next = history;
            for (int64_t b = 0; b < 5; ++b) {
                std::copy_n(history.query.values.begin() + from[static_cast<size_t>(b)] * 80 * 64, first * 64,
                            next.query.values.begin() + b * 80 * 64);
            }
            history = next;
            last = beams.append(appended(history, first, 1));
            ASSERT_EQ(last.status, ATTNC_OK) << last.error;
        }
        for (const int64_t first : {0, 20, 40})
            ASSERT_EQ(fresh.append(appended(history, first, first < 40 ? 20 : 19)).status, ATTNC_OK);
        EXPECT_TRUE(same_bits(last, fresh.append(appended(history, 59, 1)))) << "kind " << kind;
    }
}

TEST_P(Caches, AMemoryIsDirectCrossAttention) {
    for (const attnc_cache_kind kind : {ATTNC_CACHE_SLOTS, ATTNC_CACHE_PAGED}) {
        LayerCall call = random_call("d64_h4_kdim48_vdim40_f32_cache_page16:b3_q33_kv150", 6);
        call.key_lengths = {{3}, {150, 70, 1}};
        call.probs = call.lse = true;
        CachedLayer layer = cached(call, {kind, 3, 150});
        const RunResult memory = layer.memory(call);
        ASSERT_EQ(memory.status, ATTNC_OK) << memory.error;
        for (const int64_t queries : {33, 16, 3, 1}) {
            const LayerCall part = part_of(call, {0, queries, 0, 150});
            const RunResult got = layer.read(part);
            EXPECT_TRUE(matches_reference(part, got, options())) << queries << " queries";
            if (queries < 16) continue;
            EXPECT_TRUE(same_bits(got, layer.plain(part))) << queries << " queries";
        }
    }
}

TEST_P(Caches, TasksDoNotMatter) {
    for (const attnc_cache_kind kind : kKinds) {
        LayerCall call = self_attention(kProblem, 7);
        call.window_left = 90;
        const CacheShape shape = {kind, 2, kind == ATTNC_CACHE_RING ? 192 : 300};
        CachedLayer alone = cached(call, shape);
        std::vector<RunResult> results;
        const auto steps = {50, 3, 1, 40, 1};
        int64_t first = 0;
        for (const int64_t count : steps) {
            results.push_back(alone.append(appended(call, first, count)));
            first += count;
        }
        for (const int64_t threads : {2, 3}) {
            attnc_pool* pool = nullptr;
            ASSERT_EQ(attnc_pool_create(threads, &pool, nullptr), ATTNC_OK);
            CachedLayer layer = cached(call, shape);
            first = 0;
            size_t step = 0;
            for (const int64_t count : steps) {
                EXPECT_TRUE(same_bits(results[step++], layer.append(appended(call, first, count), {},
                                                                    attnc_pool_executor(pool))))
                    << "kind " << kind << ", " << count << " from " << first;
                first += count;
            }
            attnc_pool_destroy(pool);
        }
    }
}

// Each sequence is the same whoever else is in the call, and in which slots they are.
TEST_P(Caches, SequencesDoNotDependOnEachOther) {
    LayerCall call = self_attention("d64_h4_kv2_f32_cache_page16:b3_q60_kv60", 8);
    CachedLayer together = cached(call, {ATTNC_CACHE_SLOTS, 7, 64});
    CachedLayer apart = cached(call, {ATTNC_CACHE_PAGED, 3, 64});
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 40}, {40, 1}, {41, 7}, {48, 12}}) {
        const LayerCall part = appended(call, first, count);
        const RunResult got = together.append(part, {5, 2, 0});
        for (int64_t b = 0; b < 3; ++b) {
            const RunResult alone = apart.append(item_of(part, b), {b});
            const auto begin = got.out.begin() + b * count * 64;
            EXPECT_TRUE(same_bits(std::vector<float>(begin, begin + count * 64), alone.out))
                << "item " << b << ", " << count << " from " << first;
        }
    }
}

}  // namespace
}  // namespace attnc::test
