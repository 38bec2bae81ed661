// What a row's bits do not depend on: other items, heads and keys, padding, other outputs, tasks, chunks.
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

// The part [first, first + count) of a result.
std::vector<float> part(const std::vector<float>& values, int64_t first, int64_t count) {
    return {values.begin() + first, values.begin() + first + count};
}

// One block of keys, and blocks of 32.
class Rows : public ScheduledTest {};
ATTNC_FOR_EACH_SCHEDULE(Rows, "", "tile_kv:32");

// Masks of every kind at once.
void add_masks(LayerCall& call, uint64_t seed) {
    const Sizes& s = call.sizes;
    call.keep_mask = filled<uint8_t>({s.batch, 1, s.seq_q, s.seq_kv}, 1);
    call.bias = random_array({s.batch, call.config.num_heads, s.seq_q, s.seq_kv}, seed, 2);
    call.key_bias = random_array({s.batch, s.seq_kv}, seed + 1, 2);
    call.key_drop_mask = filled<uint8_t>({s.batch, s.seq_kv}, 0);
    Random random(seed + 2);
    for (uint8_t& element : call.keep_mask.values) element = random.chance(0.8) ? 1 : 0;
    for (uint8_t& element : call.key_drop_mask.values) element = random.chance(0.1) ? 1 : 0;
}

TEST_P(Rows, DoNotDependOnOtherItems) {
    for (const bool masked : {false, true}) {
        LayerCall call = random_call("d48_h3_f32:b3_q19_kv50", 11);
        if (masked) add_masks(call, 12);
        call.probs = call.lse = true;
        LayerCall other = call;
        for (float& x : other.query.values) x += 1;
        for (float& x : other.key.values) x = -x;
        for (float& x : other.value.values) x *= 1000;
        for (auto [from, to] : {std::pair(&call.query, &other.query), std::pair(&call.key, &other.key),
                                std::pair(&call.value, &other.value)}) {
            const int64_t each = from->count() / 3;  // item 1 stays as it was
            std::copy_n(from->values.begin() + each, each, to->values.begin() + each);
        }
        const RunResult a = run(call), b = run(other);
        EXPECT_TRUE(same_bits(part(a.out, 19 * 48, 19 * 48), part(b.out, 19 * 48, 19 * 48)));
        EXPECT_TRUE(
            same_bits(part(a.probs, 3 * 19 * 50, 3 * 19 * 50), part(b.probs, 3 * 19 * 50, 3 * 19 * 50)));
        EXPECT_FALSE(same_bits(a.out, b.out));
        EXPECT_TRUE(same_bits(part(a.out, 19 * 48, 19 * 48), run(item_of(call, 1)).out));
    }
}

TEST_P(Rows, DoNotDependOnOtherHeads) {
    LayerCall call = random_call("d48_h3_f32_noin_noout:b2_q19_kv50", 13);
    LayerCall other = call;
    for (auto* tokens : {&other.query, &other.key, &other.value}) {
        for (size_t n = 0; n < tokens->values.size(); ++n) {
            if (n / 16 % 3 == 1) tokens->values[n] = 3 - tokens->values[n];
        }
    }
    const RunResult a = run(call), b = run(other);
    for (size_t n = 0; n < a.out.size(); ++n) {
        if (n / 16 % 3 != 1) {
            ASSERT_EQ(a.out[n], b.out[n]) << "element " << n;
        } else {
            ASSERT_NE(a.out[n], b.out[n]) << "element " << n;
        }
    }
}

TEST_P(Rows, DoNotDependOnFutureKeys) {
    for (const bool masked : {false, true}) {
        LayerCall call = random_call("d48_h3_f32:b2_q70_kv70", 14);
        if (masked) add_masks(call, 15);
        call.causal = ATTNC_CAUSAL_TOP_LEFT;
        for (const int64_t future : {1, 17, 32, 33, 69}) {
            LayerCall other = call;
            for (int64_t item = 0; item < 2; ++item) {
                for (int64_t key = future; key < 70; ++key) {
                    for (int64_t c = 0; c < 48; ++c) {
                        other.key.at(item, key, c) = key % 2 == 0 ? 1e30F : kNan;
                        other.value.at(item, key, c) = key % 3 == 0 ? -1e30F : kNan;
                    }
                }
            }
            const RunResult a = run(call), b = run(other);
            for (int64_t item = 0; item < 2; ++item) {
                EXPECT_TRUE(same_bits(part(a.out, item * 70 * 48, future * 48),
                                      part(b.out, item * 70 * 48, future * 48)))
                    << "keys from " << future << (masked ? ", masked" : "");
            }
        }
    }
}

TEST_P(Rows, OfRepeatedKvHeadsEqualThoseOfFullHeads) {
    LayerCall grouped = random_call("d96_h6_kv2_f32:b2_q19_kv50", 16);
    grouped.probs = grouped.lse = true;
    LayerCall full = random_call("d96_h6_f32:b2_q19_kv50", 16);
    full.probs = full.lse = true;
    full.wq = grouped.wq, full.bq = grouped.bq, full.wo = grouped.wo, full.bo = grouped.bo;
    full.query = grouped.query, full.key = grouped.key, full.value = grouped.value;
    for (int64_t n = 0; n < 96; ++n) {
        const int64_t from = n / 48 * 16 + n % 16;  // heads 0 to 2 read key and value head 0
        for (int64_t k = 0; k < 96; ++k)
            full.wk.at(n, k) = grouped.wk.at(from, k), full.wv.at(n, k) = grouped.wv.at(from, k);
        full.bk.at(n) = grouped.bk.at(from), full.bv.at(n) = grouped.bv.at(from);
    }
    EXPECT_TRUE(same_bits(run(grouped), run(full)));
}

TEST_P(Rows, DoNotDependOnTheOutputsAskedFor) {
    for (const bool masked : {false, true}) {
        LayerCall call = random_call("d48_h3_f32:b2_q37_kv70", 17);
        if (masked) add_masks(call, 18);
        const RunResult alone = run(call);
        for (int n = 1; n < 8; ++n) {
            call.probs = (n & 1) != 0, call.probs_averaged = (n & 2) != 0, call.lse = (n & 4) != 0;
            const RunResult more = run(call);
            EXPECT_TRUE(same_bits(alone, more)) << "outputs " << n;
            EXPECT_EQ(more.probs.empty(), !call.probs);
            EXPECT_EQ(more.lse.empty(), !call.lse);
        }
    }
}

TEST_P(Rows, DoNotDependOnWhatPaddingHolds) {
    for (const bool masked : {false, true}) {
        LayerCall call = random_call("d48_h3_f32:b3_q37_kv70", 19);
        if (masked) add_masks(call, 20);
        call.key_lengths = {{3}, {70, 33, 7}};
        call.query_lengths = {{3}, {37, 0, 20}};
        call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        call.probs = call.lse = true;
        const RunResult usual = run(call);
        EXPECT_TRUE(matches_reference(call, usual, options()));
        for (const float padding : {0.0F, 1e30F, kNan, -std::numeric_limits<float>::infinity()}) {
            LayerCall padded = call;
            for (int64_t item = 0; item < 3; ++item) {
                for (int64_t c = 0; c < 48; ++c) {
                    for (int64_t row = call.query_length(item); row < 37; ++row)
                        padded.query.at(item, row, c) = padding;
                    for (int64_t key = call.key_length(item); key < 70; ++key) {
                        padded.key.at(item, key, c) = padded.value.at(item, key, c) = padding;
                    }
                }
                for (int64_t key = call.key_length(item); masked && key < 70; ++key) {
                    padded.key_bias.at(item, key) = padding;
                    for (int64_t row = 0; row < 37; ++row) padded.bias.at(item, 1, row, key) = padding;
                }
            }
            EXPECT_TRUE(same_bits(usual, run(padded))) << "padding " << padding << (masked ? ", masked" : "");
        }
    }
}

// An item of a padded batch, cut to its lengths, alone.
LayerCall solo(const LayerCall& batch, int64_t item) {
    LayerCall call = item_of(batch, item);
    const int64_t queries = batch.query_length(item), keys = batch.key_length(item), width = 48;
    call.sizes = {1, queries, keys};
    call.query_lengths = call.key_lengths = {};
    const auto cut = [&](Array<float>& tokens, int64_t length) {
        tokens.shape[1] = length;
        tokens.values.resize(static_cast<size_t>(length * width));
    };
    cut(call.query, queries), cut(call.key, keys), cut(call.value, keys);
    if (!call.keep_mask.given()) return call;
    const LayerCall uncut = item_of(batch, item);
    call.keep_mask = filled<uint8_t>({1, 1, queries, keys}, 0);
    call.bias = filled<float>({1, call.config.num_heads, queries, keys}, 0);
    call.key_bias = filled<float>({1, keys}, 0);
    call.key_drop_mask = filled<uint8_t>({1, keys}, 0);
    for (int64_t key = 0; key < keys; ++key) {
        call.key_bias.at(0, key) = uncut.key_bias.at(0, key);
        call.key_drop_mask.at(0, key) = uncut.key_drop_mask.at(0, key);
        for (int64_t row = 0; row < queries; ++row) {
            call.keep_mask.at(0, 0, row, key) = uncut.keep_mask.at(0, 0, row, key);
            for (int64_t head = 0; head < call.config.num_heads; ++head) {
                call.bias.at(0, head, row, key) = uncut.bias.at(0, head, row, key);
            }
        }
    }
    return call;
}

TEST_P(Rows, OfAPaddedBatchEqualTheSoloRuns) {
    for (const bool masked : {false, true}) {
        LayerCall call = random_call("d48_h3_f32:b4_q70_kv70", 21);
        if (masked) add_masks(call, 22);
        call.key_lengths = call.query_lengths = {{4}, {3, 70, 12, 33}};
        const RunResult batch = run(call);
        for (int64_t item = 0; item < 4; ++item) {
            const int64_t queries = call.query_length(item);
            EXPECT_TRUE(same_bits(part(batch.out, item * 70 * 48, queries * 48), run(solo(call, item)).out))
                << "item " << item << (masked ? ", masked" : "");
            const std::vector<float> rest = part(batch.out, (item * 70 + queries) * 48, (70 - queries) * 48);
            EXPECT_TRUE(same_bits(rest, std::vector<float>(rest.size(), 0.0F))) << "item " << item;
        }
    }
}

TEST_P(Rows, DoNotDependOnTasksOrExecutors) {
    for (const char* problem :
         {"d48_h3_f32:b2_q70_kv70", "d56_h4_f32:b1_q129_kv129", "d48_h3_f32:b1_q1_kv1"}) {
        LayerCall call = random_call(problem, 23);
        add_masks(call, 24);
        call.probs = call.probs_averaged = call.lse = true;
        const RunResult alone = run(call);
        for (const Executor executor : {Executor::kSequential, Executor::kPool}) {
            for (const int64_t tasks : {1, 2, 3, 8}) {
                RunOptions many = options();
                many.executor = executor;
                many.concurrency = tasks;
                EXPECT_TRUE(same_bits(alone, run_call(call, many)))
                    << problem << ", " << tasks << " tasks, executor " << static_cast<int>(executor);
            }
        }
    }
}

TEST_P(Rows, OfPrefillInChunksEqualThoseOfPrefillAtOnce) {
    const int64_t seq = 113;
    for (const bool bare : {false, true}) {
        LayerCall call =
            random_call(bare ? "d48_h3_f32_noin_noout:b1_q113_kv113" : "d48_h3_f32:b1_q113_kv113", 25);
        call.causal = ATTNC_CAUSAL_TOP_LEFT;
        const RunResult at_once = run(call);
        for (const int64_t chunk : {16, 17, 31, 48, 64}) {
            for (int64_t first = 0; first < seq;) {
                // A rest too short for a chunk of its own joins the last one.
                const int64_t count = seq - first - chunk < 16 ? seq - first : chunk;
                LayerCall some = call;
                const int64_t keys = first + count;  // those that exist by then
                some.sizes = {1, count, keys};
                some.query = {{1, count, 48}, part(call.query.values, first * 48, count * 48)};
                some.key = {{1, keys, 48}, part(call.key.values, 0, keys * 48)};
                some.value = {{1, keys, 48}, part(call.value.values, 0, keys * 48)};
                some.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
                EXPECT_TRUE(same_bits(part(at_once.out, first * 48, count * 48), run(some).out))
                    << "chunk of " << chunk << " from " << first << (bare ? ", bare" : "");
                some.causal = ATTNC_CAUSAL_OFFSET;
                some.causal_offsets = {{1}, {first}};
                EXPECT_TRUE(same_bits(part(at_once.out, first * 48, count * 48), run(some).out))
                    << "chunk of " << chunk << " from " << first << ", by offset" << (bare ? ", bare" : "");
                first += count;
            }
        }
    }
}

TEST_P(Rows, UnderAnAllTrueMaskEqualThoseWithoutMask) {
    LayerCall call = random_call("d48_h3_f32:b2_q37_kv70", 26);
    const RunResult plain = run(call);
    call.keep_mask = filled<uint8_t>({1, 1, 1, 1}, 1);
    EXPECT_TRUE(same_bits(plain, run(call)));
    call.drop_mask = filled<uint8_t>({2, 1, 37, 70}, 0);
    EXPECT_TRUE(same_bits(plain, run(call)));
    call.key_keep_mask = filled<uint8_t>({2, 70}, 1);
    EXPECT_TRUE(same_bits(plain, run(call)));
}

// The same mask as bytes of either polarity, as per-key bytes and as -inf in a bias.
TEST_P(Rows, DoNotDependOnHowAKeyIsDropped) {
    LayerCall call = random_call("d48_h3_f32:b2_q37_kv70", 27);
    Array<uint8_t> keep = filled<uint8_t>({2, 70}, 1);
    Random random(28);
    for (uint8_t& element : keep.values) element = random.chance(0.7) ? 1 : 0;
    LayerCall calls[6] = {call, call, call, call, call, call};
    calls[0].key_keep_mask = keep;
    calls[1].keep_mask = {{2, 1, 1, 70}, keep.values};
    calls[2].drop_mask = filled<uint8_t>({2, 3, 1, 70}, 0);
    calls[3].bias = filled<float>({2, 1, 37, 70}, 0);
    calls[4].key_bias = filled<float>({2, 70}, 0);
    calls[5].key_drop_mask = filled<uint8_t>({2, 70}, 0);
    for (int64_t item = 0; item < 2; ++item) {
        for (int64_t key = 0; key < 70; ++key) {
            if (keep.at(item, key) != 0) continue;
            for (int64_t head = 0; head < 3; ++head) calls[2].drop_mask.at(item, head, 0, key) = 1;
            for (int64_t row = 0; row < 37; ++row) {
                calls[3].bias.at(item, 0, row, key) = -std::numeric_limits<float>::infinity();
            }
            calls[4].key_bias.at(item, key) = -std::numeric_limits<float>::infinity();
            calls[5].key_drop_mask.at(item, key) = 7;
        }
    }
    const RunResult first = run(calls[0]);
    for (int n = 1; n < 6; ++n) EXPECT_TRUE(same_bits(first, run(calls[n]))) << "form " << n;
}

TEST_P(Rows, DoNotDependOnHowTokensAreLaidOut) {
    // [batch, heads, seq, features] and [batch, seq, heads * features] are the same tokens.
    LayerCall merged = random_call("d96_h6_kv3_f32_noin_noout:b2_q19_kv50", 29);
    LayerCall split = merged;
    const auto split_heads = [](const Array<float>& tokens, int64_t heads) {
        const int64_t batch = tokens.shape[0], seq = tokens.shape[1], dim = tokens.shape[2] / heads;
        Array<float> out = filled<float>({batch, heads, seq, dim}, 0);
        for (int64_t b = 0; b < batch; ++b) {
            for (int64_t h = 0; h < heads; ++h) {
                for (int64_t s = 0; s < seq; ++s) {
                    for (int64_t d = 0; d < dim; ++d) out.at(b, h, s, d) = tokens.at(b, s, h * dim + d);
                }
            }
        }
        return out;
    };
    split.query = split_heads(merged.query, 6);
    split.key = split_heads(merged.key, 3), split.value = split_heads(merged.value, 3);
    const RunResult a = run(merged), b = run(split);
    Array<float> out = {{2, 19, 96}, a.out};
    EXPECT_TRUE(same_bits(split_heads(out, 6).values, b.out));
}

}  // namespace
}  // namespace attnc::test
