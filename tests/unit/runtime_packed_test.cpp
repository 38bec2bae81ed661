// Packed batches: sequences one after another are what the padded batch with their lengths is, and cost only their rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "tests/harness/packed_run.h"
#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

::testing::AssertionResult equal(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size())
        return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " elements";
    for (size_t i = 0; i < a.size(); ++i) {
        if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]))
            return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
    }
    return ::testing::AssertionSuccess();
}

// The longest item has seq - gap rows, so that a packing with that gap has the sizes of the padded batch.
void set_lengths(LayerCall& call, int64_t gap, bool self) {
    const int64_t batch = call.sizes.batch;
    call.query_lengths = filled<int64_t>({batch}, 0);
    call.key_lengths = filled<int64_t>({batch}, 0);
    for (int64_t b = 0; b < batch; ++b) {
        call.query_lengths.at(b) = b == 1 ? call.sizes.seq_q - gap : (b * 7) % (call.sizes.seq_q - gap);
        call.key_lengths.at(b) = b == 2 ? call.sizes.seq_kv - gap : (b * 11 + 3) % (call.sizes.seq_kv - gap);
    }
    if (self) {
        call.key = {}, call.value = {};
        call.key_lengths = call.query_lengths;
    }
}

::testing::AssertionResult packed_equals_padded(const LayerCall& call, const Packing& packing) {
    const FakeLibrary library(call.config);
    const RunResult packed = run_packed(library.get(), call, packing);
    if (packed.status != ATTNC_OK) return ::testing::AssertionFailure() << packed.error;
    const FakeResult padded = run_fake(call);
    if (padded.status != ATTNC_OK) return ::testing::AssertionFailure() << padded.error;
    for (const auto& [name, a, b] :
         {std::tuple("out", &packed.out, &padded.out), std::tuple("probs", &packed.probs, &padded.probs),
          std::tuple("probs_averaged", &packed.probs_averaged, &padded.probs_averaged),
          std::tuple("lse", &packed.lse, &padded.lse)}) {
        const ::testing::AssertionResult same = equal(*a, *b);
        if (!same) return ::testing::AssertionFailure() << name << ": " << same.message();
    }
    return ::testing::AssertionSuccess();
}

TEST(PackedBatch, IsThePaddedBatchWithItsLengths) {
    for (const char* const problem :
         {"d32_h2_f32:b5_q20_kv20", "d48_h4_kv2_f32_noout:b5_q20_kv20", "d32_h2_f32_causal:b4_q33_kv33"}) {
        for (const int64_t gap : {0, 3}) {
            LayerCall call = random_call(problem, 3);
            set_lengths(call, gap, true);
            call.probs = call.probs_averaged = call.lse = true;
            EXPECT_TRUE(packed_equals_padded(call, {.gap = gap})) << problem << " gap " << gap;
        }
    }
}

TEST(PackedBatch, HasKeysOfItsOwn) {
    for (const int64_t gap : {0, 2}) {
        LayerCall call = random_call("d32_h2_kdim24_vdim40_f32:b6_q17_kv40", 4);
        set_lengths(call, gap, false);
        call.lse = true;
        call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        EXPECT_TRUE(packed_equals_padded(call, {.gap = gap})) << "gap " << gap;
    }
}

TEST(PackedBatch, MayBeSplitIntoHeads) {
    for (const bool split : {false, true}) {
        for (const char* const problem : {"d32_h2_f32_noin_noout:b4_q9_kv13", "d32_h2_f32_noin:b4_q9_kv13",
                                          "d24_h3_f32_noin_noout:b4_q9_kv13"}) {
            LayerCall call = random_call(problem, 5);
            set_lengths(call, 0, false);
            call.probs = true;
            EXPECT_TRUE(packed_equals_padded(call, {.split = split}))
                << problem << (split ? " split" : " merged");
        }
    }
}

TEST(PackedBatch, TakesMasksOfThePaddedBatch) {
    LayerCall call = random_call("d32_h2_f32:b5_q20_kv31", 6);
    set_lengths(call, 0, false);
    call.bias = random_array({5, 2, 20, 31}, 1, 4);
    call.keep_mask = filled<uint8_t>({1, 1, 20, 31}, 1);
    for (int64_t i = 0; i < 20; ++i) call.keep_mask.at(0, 0, i, (i * 5) % 31) = 0;
    call.key_bias = random_array({5, 31}, 2, 4);
    EXPECT_TRUE(packed_equals_padded(call, {}));
}

// More rows than a wave holds: some waves are full of short items, and one item has a wave to itself.
TEST(PackedBatch, GoesThroughTheWorkspaceInWaves) {
    LayerCall call = random_call("d8_h1_f32:b300_q200_kv200", 7);
    call.key = {}, call.value = {};
    call.query_lengths = filled<int64_t>({300}, 0);
    for (int64_t b = 0; b < 300; ++b) call.query_lengths.at(b) = b == 150 ? 200 : b % 61;
    call.key_lengths = call.query_lengths;
    EXPECT_TRUE(packed_equals_padded(call, {}));
}

// An item that is longer than a wave has one to itself, in parts, though shorter ones would fit beside it.
TEST(PackedBatch, LongItemsGoThroughInParts) {
    LayerCall call = random_call("d8_h2_f32:b6_q9000_kv5", 10);
    call.query_lengths = {{6}, {30, 9000, 20, 4000, 4500, 4100}};
    call.key_lengths = {{6}, {5, 3, 5, 2, 5, 4}};
    call.lse = call.probs_averaged = true;
    EXPECT_TRUE(packed_equals_padded(call, {}));
}

TEST(PackedBatch, ComputesNoPadding) {
    LayerCall call = random_call("d32_h2_f32:b3_q50_kv50", 8);
    call.key = {}, call.value = {};
    call.query_lengths = filled<int64_t>({3}, 2);
    call.query_lengths.at(1) = 50;
    call.key_lengths = call.query_lengths;
    const FakeLibrary library(call.config);
    fake_counts().reset();
    ASSERT_EQ(run_packed(library.get(), call).status, ATTNC_OK);
    EXPECT_EQ(fake_counts().rows_projected, 3 * 2 * (50 + 2 + 2));  // q, k, v; a panel is a head
    EXPECT_EQ(fake_counts().pairs_attended, 2 * (50 * 50 + 2 * 2 + 2 * 2));
}

TEST(PackedBatch, MayBeEmpty) {
    LayerCall call = random_call("d32_h2_f32:b3_q4_kv4", 9);
    call.key = {}, call.value = {};
    call.query_lengths = filled<int64_t>({3}, 0);
    call.key_lengths = call.query_lengths;
    const FakeLibrary library(call.config);
    const RunResult result = run_packed(library.get(), call);
    EXPECT_EQ(result.status, ATTNC_OK) << result.error;
    EXPECT_TRUE(std::all_of(result.out.begin(), result.out.end(), [](float x) { return x == 0; }));
}

}  // namespace
}  // namespace attnc::test
