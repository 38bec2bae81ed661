// Attention that finds keys by runs of rows: what kernels of a library with cache give is what those of one without give for
// the same keys in rows one after another, bit for bit; and whole calls of a cache, from lengths to contexts.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "append_rows.h"
#include "attend_48_80.h"
#include "attend_48_80_cache.h"
#include "attend_64.h"
#include "attend_64_cache.h"
#include "attend_64_cache_shared.h"
#include "attend_decode_64.h"
#include "attend_decode_64_cache.h"
#include "attend_decode_64_cache_shared.h"
#include "attend_guarded_64.h"
#include "attend_guarded_64_cache.h"
#include "attend_guarded_64_cache_shared.h"
#include "attend_masked_64.h"
#include "attend_masked_64_cache.h"
#include "attend_masked_64_cache_shared.h"
#include "attend_probs_64.h"
#include "attend_probs_64_cache.h"
#include "attend_probs_64_cache_shared.h"
#include "attend_scores_64.h"
#include "attend_scores_64_cache.h"
#include "attend_scores_64_cache_shared.h"
#include "fill_cache.h"
#include "fill_empty_48.h"
#include "fill_empty_48_cache.h"
#include "fill_runs.h"
#include "keep_lengths.h"
#include "runtime/attnc.h"
#include "runtime/kernel_abi.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/device_table.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

constexpr int kRun = ATTNC_RUN_KEYS, kSplit = 128;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int runs_of(int keys) { return (keys + kRun - 1) / kRun; }

// Puts a key and its value of an item into a row of a cache.
void put_key(const AttentionOperands& in, int item, int key, int row, Floats& k, Floats& v) {
    for (int h = 0; h < in.spec.kv_heads; ++h) {
        for (int d = 0; d < in.spec.head_dim; ++d) k(d, row, h) = in.k(d, in.k_row(item, key), h);
        for (int d = 0; d < in.spec.v_head_dim; ++d) v(d, row, h) = in.v(d, in.k_row(item, key), h);
    }
}

// The keys that count, in runs in any order; rows of no key are NaN. What the items say of first rows is wrong.
struct Scattered {
    Floats k, v;
    Ints items, key_runs;

    explicit Scattered(const AttentionOperands& in) {
        const int count = static_cast<int>(in.spec.items.size()), runs = runs_of(in.seq_kv) + 1;
        const Table places = shuffled(count * runs, 11);
        const int rows = count * runs * kRun;
        k = filled<float, Halide::Runtime::AnyDims>({in.spec.head_dim, rows, in.spec.kv_heads}, kNan);
        v = filled<float, Halide::Runtime::AnyDims>({in.spec.v_head_dim, rows, in.spec.kv_heads}, kNan);
        items = in.items.copy();
        key_runs = filled<int32_t, Halide::Runtime::AnyDims>({runs, count}, 0);
        for (int b = 0; b < count; ++b) {
            const int keys = in.spec.items[static_cast<size_t>(b)].keys;
            items(ATTNC_ITEM_KEY_ROW, b) = 3 * b + 1;
            for (int r = 0; r < runs_of(keys); ++r)
                key_runs(r, b) = places[static_cast<size_t>(b * runs + r)] * kRun;
            for (int key = 0; key < keys; ++key)
                put_key(in, b, key, key_runs(key / kRun, b) + key % kRun, k, v);
        }
        for (halide_buffer_t* buffer :
             {k.raw_buffer(), v.raw_buffer(), items.raw_buffer(), key_runs.raw_buffer()})
            buffer->set_host_dirty();
    }

    // Kernels of a library with cache, which get these keys instead of the operands'.
    using B = halide_buffer_t*;
    template <typename Kernel>
    AttendKernel attend(Kernel kernel) {
        return [kernel, this](B q, B, B, int seq_q, int seq_kv, float scale, B, B context, B row_stats) {
            return kernel(q, k, items, seq_q, seq_kv, scale, v, key_runs, context, row_stats);
        };
    }
    template <typename Kernel>
    MaskedKernel masked(Kernel kernel) {
        return
            [kernel, this](B q, B, B, int seq_q, int seq_kv, float scale, B key_bias, B bias, B keep, B drop,
                           B key_blocks, int flags, B, float softcap, B slopes, B context, B row_stats) {
                return kernel(q, k, items, seq_q, seq_kv, scale, key_bias, bias, keep, drop, key_blocks,
                              flags, v, key_runs, softcap, slopes, context, row_stats);
            };
    }
    template <typename Kernel>
    DecodeKernel decode(Kernel kernel) {
        return [kernel, this](B q, B, B, int seq_q, int seq_kv, float scale, B key_bias, B bias, B keep,
                              B drop, int flags, B, float softcap, B slopes, B context, B row_stats) {
            return kernel(q, k, items, seq_q, seq_kv, scale, key_bias, bias, keep, drop, flags, v, key_runs,
                          softcap, slopes, context, row_stats);
        };
    }
};

// Bits are equal, or both are NaN.
bool same_numbers(const Floats& a, const Floats& b) {
    if (a.size_in_bytes() != b.size_in_bytes()) return false;
    return std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
        return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) || (std::isnan(x) && std::isnan(y));
    });
}

void expect_same(const AttentionResults& a, const AttentionResults& b, const AttentionSpec& spec) {
    EXPECT_TRUE(same_bits(a.context, b.context)) << spec.text();
    EXPECT_TRUE(same_bits(a.row_stats, b.row_stats)) << spec.text();
}

TEST(GpuCacheAttend, HasTheBitsOfKeysInOrder) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : plain_specs(64, 64)) {
        AttentionOperands in(spec);
        Scattered cache(in);
        const AttentionResults want = call_attend(attend_64, in);
        expect_same(call_attend(cache.attend(attend_64_cache), in), want, spec);
        expect_same(call_attend(cache.attend(attend_64_cache_shared), in), want, spec);
    }
}

TEST(GpuCacheAttend, OfHeadsWithoutACommonDivisorHasTheBitsOfKeysInOrder) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : plain_specs(48, 80)) {
        AttentionOperands in(spec);
        Scattered cache(in);
        expect_same(call_attend(cache.attend(attend_48_80_cache), in), call_attend(attend_48_80, in), spec);
    }
}

TEST(GpuCacheAttendMasked, HasTheBitsOfKeysInOrder) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : masked_specs(64, 64)) {
        AttentionOperands in(spec);
        Scattered cache(in);
        const AttentionResults want = call_masked(attend_masked_64, in);
        expect_same(call_masked(cache.masked(attend_masked_64_cache), in), want, spec);
        expect_same(call_masked(cache.masked(attend_masked_64_cache_shared), in), want, spec);
    }
}

TEST(GpuCacheAttendDecode, HasTheBitsOfKeysInOrder) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (AttentionSpec spec : masked_specs(64, 64)) {
        spec.mask_flags &= ~ATTNC_MASK_BLOCKS;
        AttentionOperands in(spec);
        Scattered cache(in);
        const AttentionResults want = call_decode(attend_decode_64, in, kSplit);
        expect_same(call_decode(cache.decode(attend_decode_64_cache), in, kSplit), want, spec);
        expect_same(call_decode(cache.decode(attend_decode_64_cache_shared), in, kSplit), want, spec);
    }
}

// The other forms take the row statistics of attend_masked.
TEST(GpuCacheAttendProbs, HaveTheBitsOfKeysInOrder) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : masked_specs(64, 64)) {
        AttentionOperands in(spec);
        Scattered cache(in);
        AttentionResults attended = call_masked(attend_masked_64, in);
        const std::vector<int> extents = {in.seq_kv, in.seq_q, spec.heads,
                                          static_cast<int>(spec.items.size())};
        const auto run = [&](const auto& kernel) {
            Floats pairs = filled<float, Halide::Runtime::AnyDims>(extents, -7.0F);
            EXPECT_EQ(kernel(pairs), 0);
            EXPECT_EQ(pairs.copy_to_host(), 0);
            return pairs;
        };
        const Floats probs = run([&](Floats& to) {
            return attend_probs_64(in.q, in.k, in.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias,
                                   in.bias, in.keep_mask, in.drop_mask, in.key_blocks, spec.mask_flags,
                                   attended.row_stats, ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, spec.softcap,
                                   in.alibi_slopes, to);
        });
        for (const auto& kernel : {attend_probs_64_cache, attend_probs_64_cache_shared}) {
            const Floats got = run([&](Floats& to) {
                return kernel(in.q, cache.k, cache.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias,
                              in.bias, in.keep_mask, in.drop_mask, in.key_blocks, spec.mask_flags,
                              attended.row_stats, ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, cache.key_runs,
                              spec.softcap, in.alibi_slopes, to);
            });
            EXPECT_TRUE(same_bits(got, probs)) << spec.text();
        }
        const Floats scores = run([&](Floats& to) {
            return attend_scores_64(in.q, in.k, in.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias,
                                    in.bias, in.keep_mask, in.drop_mask, in.key_blocks, spec.mask_flags,
                                    spec.softcap, in.alibi_slopes, to);
        });
        for (const auto& kernel : {attend_scores_64_cache, attend_scores_64_cache_shared}) {
            const Floats got = run([&](Floats& to) {
                return kernel(in.q, cache.k, cache.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias,
                              in.bias, in.keep_mask, in.drop_mask, in.key_blocks, spec.mask_flags,
                              cache.key_runs, spec.softcap, in.alibi_slopes, to);
            });
            EXPECT_TRUE(same_bits(got, scores)) << spec.text();
        }
    }
}

// Values that are dropped or seen and not finite, beside rows of the cache that are no key's.
TEST(GpuCacheAttendGuarded, HasTheNumbersOfKeysInOrder) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    AttentionSpec spec;
    spec.heads = 4;
    spec.items = {{.queries = 40, .rows = 40, .keys = 210, .key_rows = 210, .last = 90},
                  {.queries = 70, .rows = 70, .keys = 300, .key_rows = 300}};
    spec.mask_flags = ATTNC_MASK_KEY_BIAS | ATTNC_MASK_KEEP;
    AttentionOperands in(spec);
    for (const int b : {0, 1}) in.v(5, in.k_row(b, 100 + b), 0) = kNan;
    in.v.set_host_dirty();
    Scattered cache(in);
    Ints suspects = filled<int32_t, Halide::Runtime::AnyDims>({spec.heads, 2}, 1);
    suspects.set_host_dirty();
    const auto guarded = [&](const auto& kernel, Floats& k, Ints& items, Floats& v, auto&... key_runs) {
        AttentionResults out = {
            .context = filled<float, Halide::Runtime::AnyDims>({64, spec.heads, in.rows}, -7.0F),
            .row_stats = filled<float, Halide::Runtime::AnyDims>({in.rows, spec.heads, 2}, -7.0F)};
        EXPECT_EQ(kernel(in.q, k, items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias, in.bias, in.keep_mask,
                         in.drop_mask, in.key_blocks, spec.mask_flags, v, suspects, key_runs..., spec.softcap,
                         in.alibi_slopes, out.context, out.row_stats),
                  0);
        EXPECT_EQ(out.context.copy_to_host(), 0);
        EXPECT_EQ(out.row_stats.copy_to_host(), 0);
        return out;
    };
    const AttentionResults want = guarded(attend_guarded_64, in.k, in.items, in.v);
    const auto spoilt =
        std::count_if(want.context.begin(), want.context.end(), [](float x) { return std::isnan(x); });
    EXPECT_GT(spoilt, 10);
    EXPECT_LT(spoilt, 220);
    for (const auto& kernel : {attend_guarded_64_cache, attend_guarded_64_cache_shared}) {
        const AttentionResults got = guarded(kernel, cache.k, cache.items, cache.v, cache.key_runs);
        EXPECT_TRUE(same_numbers(got.context, want.context));
        EXPECT_TRUE(same_bits(got.row_stats, want.row_stats));
    }
}

TEST(GpuCacheFillEmpty, HasTheMeanOfTheItemsKeys) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    AttentionSpec spec = {.head_dim = 16, .v_head_dim = 48, .heads = 4, .kv_heads = 2, .items = {}};
    spec.items = {{.queries = 40, .rows = 44, .keys = 210, .key_rows = 211},
                  {.queries = 7, .rows = 7, .keys = 0, .key_rows = 3},
                  {.queries = 70, .rows = 70, .keys = 301, .key_rows = 301}};
    AttentionOperands in(spec);
    Scattered cache(in);
    Floats stats = filled<float, Halide::Runtime::AnyDims>({in.rows, spec.heads, 2}, 0.0F);
    stats.set_host_dirty();
    const auto filled_by = [&](const auto& kernel, Floats& v, Ints& items, auto&... key_runs) {
        Floats context = filled<float, Halide::Runtime::AnyDims>({48, spec.heads, in.rows}, -7.0F);
        context.set_host_dirty();
        EXPECT_EQ(kernel(stats, v, items, in.seq_q, ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, key_runs..., context),
                  0);
        EXPECT_EQ(context.copy_to_host(), 0);
        return context;
    };
    const Floats want = filled_by(fill_empty_48, in.v, in.items);
    EXPECT_TRUE(same_bits(filled_by(fill_empty_48_cache, cache.v, cache.items, cache.key_runs), want));
}

// ---- Calls of a cache, one after another

// Sequences in the order in which items read them at last, one of them twice.
constexpr int kSequences = 3, kMostKeys = 333;
const Table kKeys = {300, 333, 210}, kReads = {1, 0, 2, 0};

struct CacheKind {
    std::string name;
    int given;
    int slot_rows, capacity;  // capacity is that of a ring, else as slot_rows
    int page_size = 0, pages = 0;
    int window = kMostKeys;                             // keys that are attended
    int seq() const { return ring() ? capacity : 60; }  // most keys that an item brings
    bool paged() const { return given == ATTNC_GIVEN_PAGED; }
    bool ring() const { return window < kMostKeys; }
};

void PrintTo(const CacheKind& kind, std::ostream* to) { *to << kind.name; }

// Keys of sequence s come by the first item that reads it.
int item_of(int sequence) {
    return static_cast<int>(std::find(kReads.begin(), kReads.end(), sequence) - kReads.begin());
}

AttentionOperands operands_of(const CacheKind& kind) {
    AttentionSpec spec;
    spec.heads = 4;
    for (const int32_t sequence : kReads) {
        const int keys = kKeys[static_cast<size_t>(sequence)];
        spec.items.push_back({.queries = 40, .rows = 40, .keys = keys, .key_rows = keys});
        if (kind.ring()) spec.items.back().first = keys - kind.window;
    }
    AttentionOperands in(spec);
    for (int b = 0; b < static_cast<int>(kReads.size()); ++b) {
        const int from = item_of(kReads[static_cast<size_t>(b)]);
        for (int key = 0; key < spec.items[static_cast<size_t>(b)].keys; ++key)
            put_key(in, from, key, in.k_row(b, key), in.k, in.v);
    }
    in.k.set_host_dirty();
    in.v.set_host_dirty();
    return in;
}

class DeviceCache {
public:
    DeviceCache(const AttentionOperands& in, const CacheKind& kind)
        : kind_(kind),
          lengths_(filled<int32_t, Halide::Runtime::AnyDims>({kSlots}, 0)),
          first_held_(filled<int32_t, Halide::Runtime::AnyDims>({kSlots}, 0)),
          pages_(shuffled(kind.pages, 7)) {
        const int rows = kind.paged() ? kind.pages * kind.page_size : kSlots * kind.slot_rows;
        k = filled<float, Halide::Runtime::AnyDims>({in.spec.head_dim, rows, in.spec.kv_heads}, kNan);
        v = filled<float, Halide::Runtime::AnyDims>({in.spec.v_head_dim, rows, in.spec.kv_heads}, kNan);
        for (halide_buffer_t* buffer :
             {k.raw_buffer(), v.raw_buffer(), lengths_.raw_buffer(), first_held_.raw_buffer()})
            buffer->set_host_dirty();
    }

    Floats k, v;

    // What kernels know of the items of a call.
    struct Call {
        Ints held, counts, slots, key_runs;
    };
    // Items of these sequences bring `brought` keys each, none: the call reads.
    Call begin(const Table& sequences, const Table& brought) {
        const int items = static_cast<int>(sequences.size());
        Table slots, lengths;
        for (const int32_t sequence : sequences) {
            slots.push_back(kSlotOf[static_cast<size_t>(sequence)]);
            lengths.push_back(kept_[static_cast<size_t>(sequence)]);
        }
        const int runs = runs_of(kMostKeys),
                  table_pages = kind_.paged() ? runs * kRun / kind_.page_size + 1 : 1;
        Call call = {.held = Ints(std::vector<int>{items}),
                     .counts = Ints(std::vector<int>{items}),
                     .slots = Ints(std::vector<int>{items}),
                     .key_runs = Ints(std::vector<int>{runs, items})};
        DeviceTable slot_table(slots, items, true), brought_table(brought, items, true),
            paged_lengths(lengths, items, true);
        halide_buffer_t* held_lengths = kind_.paged() ? paged_lengths.get() : lengths_.raw_buffer();
        const int given = brought.empty() ? 0 : ATTNC_GIVEN_KEY_LENGTHS;
        EXPECT_EQ(fill_cache(held_lengths, slot_table.get(), brought_table.get(),
                             given | ATTNC_GIVEN_CACHE_SLOTS | (kind_.given & ATTNC_GIVEN_PAGED),
                             brought.empty() ? 0 : kind_.seq(), kMostKeys, kSlots, call.held, call.counts,
                             call.slots),
                  0);
        Ints table(std::vector<int>{table_pages, items});
        table.for_each_element([&](int page, int b) {
            const int place = sequences[static_cast<size_t>(b)] * table_pages + page;
            table(page, b) = kind_.paged() ? pages_[static_cast<size_t>(place)] : -9;
        });
        table.set_host_dirty();
        Ints no_items = filled<int32_t, Halide::Runtime::AnyDims>({ATTNC_ITEM_COLUMNS, items}, -9);
        no_items.set_host_dirty();
        EXPECT_EQ(fill_runs(no_items, call.counts, call.slots, table, kind_.given, kind_.slot_rows,
                            kind_.capacity, kind_.page_size, kind_.pages, call.key_runs),
                  0);
        return call;
    }

    // The next keys of all sequences, those of `in`.
    void append(const AttentionOperands& in, const Table& brought) {
        Table sequences;
        for (int s = 0; s < kSequences; ++s) sequences.push_back(s);
        Call call = begin(sequences, brought);
        const int seq = kind_.seq();
        Floats new_k =
                   filled<float, Halide::Runtime::AnyDims>({64, kSequences * seq, in.spec.kv_heads}, kNan),
               new_v = new_k.copy();
        for (int s = 0; s < kSequences; ++s) {
            int32_t& kept = kept_[static_cast<size_t>(s)];
            for (int i = 0; i < brought[static_cast<size_t>(s)]; ++i, ++kept)
                put_key(in, item_of(s), kept, s * seq + i, new_k, new_v);
        }
        new_k.set_host_dirty();
        new_v.set_host_dirty();
        Table rows;
        for (int s = 0; s < kSequences; ++s) rows.push_back(s * seq);
        DeviceTable first_rows(rows, kSequences, false);
        EXPECT_EQ(append_rows(new_k, first_rows.get(), call.held, call.counts, call.key_runs, seq, k), 0);
        EXPECT_EQ(append_rows(new_v, first_rows.get(), call.held, call.counts, call.key_runs, seq, v), 0);
        if (kind_.paged()) return;
        if (kind_.ring()) {
            EXPECT_EQ(keep_lengths(call.counts, call.slots, kind_.capacity, first_held_), 0);
        }
        EXPECT_EQ(keep_lengths(call.counts, call.slots, 0, lengths_), 0);
    }

    bool holds_all() const { return std::equal(kKeys.begin(), kKeys.end(), std::begin(kept_)); }
    int left(int sequence) const {
        return kKeys[static_cast<size_t>(sequence)] - kept_[static_cast<size_t>(sequence)];
    }
    void expect_lengths() {
        ASSERT_EQ(lengths_.copy_to_host(), 0);
        ASSERT_EQ(first_held_.copy_to_host(), 0);
        Table lengths(kSlots, 0), first(kSlots, 0);
        for (int s = 0; s < kSequences; ++s) {
            const auto slot = static_cast<size_t>(kSlotOf[static_cast<size_t>(s)]);
            lengths[slot] = kKeys[static_cast<size_t>(s)];
            first[slot] = kind_.ring() ? lengths[slot] - kind_.capacity : 0;
        }
        EXPECT_EQ(Table(lengths_.begin(), lengths_.end()), lengths);
        EXPECT_EQ(Table(first_held_.begin(), first_held_.end()), first);
    }

private:
    static constexpr int kSlots = 5;
    static constexpr int32_t kSlotOf[kSequences] = {4, 0, 2};
    CacheKind kind_;
    Ints lengths_, first_held_;
    Table pages_;
    int32_t kept_[kSequences] = {};
};

class GpuCacheCalls : public testing::TestWithParam<CacheKind> {};

TEST_P(GpuCacheCalls, AttendWhatManyCallsHaveAppended) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    const CacheKind& kind = GetParam();
    AttentionOperands in = operands_of(kind);
    DeviceCache cache(in, kind);
    int calls = 0;
    for (; !cache.holds_all(); ++calls) {
        ASSERT_LT(calls, 100);
        Table brought;
        for (int s = 0; s < kSequences; ++s) {
            const auto most = static_cast<uint64_t>(kind.seq() + 1);
            const auto chunk =
                static_cast<int>(mixed_bits(static_cast<uint64_t>(s), static_cast<uint64_t>(calls)) % most);
            brought.push_back(std::min(chunk, cache.left(s)));
        }
        cache.append(in, brought);
    }
    EXPECT_GT(calls, 4);
    if (!kind.paged()) cache.expect_lengths();

    DeviceCache::Call read = cache.begin(kReads, {});
    ASSERT_EQ(read.counts.copy_to_host(), 0);
    for (int b = 0; b < static_cast<int>(kReads.size()); ++b)
        ASSERT_EQ(read.counts(b), in.spec.items[static_cast<size_t>(b)].keys);
    AttentionResults got = call_attend(
        [&](auto* q, auto*, auto* items, int seq_q, int seq_kv, float scale, auto*, auto* context,
            auto* row_stats) {
            return attend_64_cache(q, cache.k, items, seq_q, seq_kv, scale, cache.v, read.key_runs, context,
                                   row_stats);
        },
        in);
    expect_same(got, call_attend(attend_64, in), in.spec);
    EXPECT_EQ(context_fault(in, got, blocks_of(in.spec, in.seq_kv)), "");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, GpuCacheCalls,
    testing::Values(
        CacheKind{.name = "slots", .given = ATTNC_GIVEN_CACHE_SLOTS, .slot_rows = 336, .capacity = 336},
        CacheKind{
            .name = "rings", .given = ATTNC_GIVEN_CACHE_SLOTS, .slot_rows = 96, .capacity = 96, .window = 90},
        CacheKind{.name = "pages",
                  .given = ATTNC_GIVEN_PAGED,
                  .slot_rows = 0,
                  .capacity = 0,
                  .page_size = 48,
                  .pages = 40}));

}  // namespace
}  // namespace attnc::test
