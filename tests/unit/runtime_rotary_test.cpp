// Norms and rotations through the runtime, over scalar kernels: which heads, which rows, which positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "runtime/attnc.hpp"
#include "tests/harness/packed_run.h"
#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

TEST(HeadSteps, MatchTheReference) {
    for (const char* const problem :
         {"d32_h2_f32_rope:b3_q7_kv9", "d32_h2_f32_ropepairs:b3_q7_kv9", "d32_h2_f32_qknorm:b3_q7_kv9",
          "d60_h3_f32_qknorm_rope:b2_q5_kv5", "d60_h3_f32_qknorm_ropepairs:b2_q5_kv5",
          "d64_h4_kv2_hd24_f32_noout_qknorm_rope:b2_q9_kv4", "d36_h3_hd12_f32_noin_noout_rope:b2_q6_kv8",
          "d96_h6_kv2_f32_noin_noout_qknorm_ropepairs:b2_q6_kv8",
          "d64_h2_f32_biaskv_zeroattn_qknorm_rope:b2_q5_kv6", "d32_h2_f32_causal_rope_sink:b2_q20_kv37"}) {
        for (const uint64_t seed : {1U, 2U}) EXPECT_TRUE(matches(random_call(problem, seed)));
    }
}

// Panels narrower than a head, and panels of several heads, some of them padding.
TEST(HeadSteps, FindTheirHeadsInEveryPanel) {
    for (const int64_t panel : {16, 32, 64, 128}) {
        for (const char* const problem : {"d96_h3_hd32_f32_qknorm_rope:b2_q30_kv30",
                                          "d160_h5_kv1_hd32_f32_qknorm_ropepairs:b2_q30_kv20"}) {
            const LayerCall call = random_call(problem, 3);
            FakeOptions options;
            options.layout.panel = panel;
            const FakeResult alone = run_fake(call, options);
            EXPECT_TRUE(matches(call, alone, options.layout.tile_kv)) << panel;
            options.executor = FakeExecutor::kThreads, options.concurrency = 5;
            EXPECT_TRUE(equal_bits(alone, run_fake(call, options))) << panel;
        }
    }
}

TEST(HeadSteps, WorkOnCallersStrides) {
    FakeOptions options;
    options.row_gap = 3, options.item_gap = 5, options.rank4 = true, options.wide_lengths = false;
    LayerCall call = random_call("d64_h4_kv2_f32_noin_noout_qknorm_rope:b3_q6_kv8", 4);
    call.position_offsets = {{3}, {-7, 0, 1 << 20}};
    EXPECT_TRUE(matches(call, options));
}

TEST(Positions, AreOffsetsAndRowsOrGiven) {
    LayerCall call = random_call("d32_h2_f32_rope:b2_q4_kv6", 5);
    call.position_offsets = {{2}, {100, -3}};
    EXPECT_TRUE(matches(call));
    call.query_positions = {{2, 4}, {5, 5, -9, 1000000, 0, 3, 2, 2147483647}};
    EXPECT_TRUE(matches(call));
    call.key_positions = {{2, 6}, {0, 1, 2, 3, 4, 5, 9, 8, 7, 6, 5, -2147483647}};
    EXPECT_TRUE(matches(call));
    call.position_offsets = {};
    EXPECT_TRUE(matches(call));
}

// Keys that are the queries' tokens have the queries' positions, whichever way they are given.
TEST(Positions, OfQueriesAreThoseOfKeysInSelfAttention) {
    LayerCall call = random_call("d32_h2_f32_rope:b2_q5_kv5", 6);
    call.key = {}, call.value = {};
    call.query_positions = {{2, 5}, {9, 4, 4, 0, -1, 6, 7, 8, 9, 1000}};
    const FakeResult got = run_fake(call);
    EXPECT_TRUE(matches(call, got, 16));
    LayerCall both = call;
    both.key_positions = call.query_positions;
    EXPECT_TRUE(equal_bits(got, run_fake(both)));

    const FakeLibrary library(call.config);
    const LayerPointer layer = make_layer(library, call);
    attnc_inputs in = call.inputs();
    in.key = in.value = in.query;
    std::vector<float> out(2 * 5 * 32);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = attnc_tensor_3d(ATTNC_F32, out.data(), 2, 5, 32);
    attnc_run run = ATTNC_RUN_INIT;
    ASSERT_EQ(attnc_layer_workspace(layer.get(), &in, &outputs, &run, &run.workspace_bytes, nullptr),
              ATTNC_OK);
    const GuardedMemory workspace(run.workspace_bytes, Placement::kAtEnd, 64);
    run.workspace = workspace.data();
    ASSERT_EQ(attnc_layer_forward(layer.get(), &in, &outputs, &run, nullptr), ATTNC_OK);
    EXPECT_EQ(out, got.out);
}

TEST(Positions, PastALengthAreNotLookedAt) {
    LayerCall call = random_call("d32_h2_f32_rope:b2_q4_kv6", 7);
    constexpr int64_t kBad = std::numeric_limits<int64_t>::max();
    call.query_lengths = {{2}, {3, 0}}, call.key_lengths = {{2}, {2, 5}};
    call.query_positions = {{2, 4}, {5, 5, -9, kBad, kBad, kBad, kBad, kBad}};
    call.key_positions = {{2, 6}, {0, 1, kBad, kBad, kBad, kBad, 9, 8, 7, 6, 5, kBad}};
    EXPECT_TRUE(matches(call));
}

// Rows are rotated by their own positions where windows leave keys out and where the batch comes in waves.
TEST(Positions, FollowRowsThroughWindowsAndWaves) {
    LayerCall call = random_call("d16_h1_f32_nomask_noprobs_causal_rope:b3_q40_kv90", 8);
    call.window_left = 20;
    call.position_offsets = {{3}, {0, 50, 7}};
    EXPECT_TRUE(matches(call));
    LayerCall waves = random_call("d16_h1_f32_nomask_noprobs_rope:b70_q61_kv70", 9);
    waves.query_lengths = filled<int64_t>({70}, 61), waves.key_lengths = filled<int64_t>({70}, 70);
    for (int64_t b = 0; b < 70; ++b)
        waves.query_lengths.at(b) = 61 - b % 4, waves.key_lengths.at(b) = 70 - b % 7;
    FakeOptions threads;
    threads.executor = FakeExecutor::kThreads, threads.concurrency = 3;
    EXPECT_TRUE(matches(waves, threads));
}

TEST(Positions, OfPackedTokensAreThoseOfThePaddedBatch) {
    for (const int64_t gap : {0, 2}) {
        LayerCall call = random_call("d32_h2_f32_qknorm_rope:b3_q8_kv11", 10);
        call.query_lengths = {{3}, {8 - gap, 1, 4}}, call.key_lengths = {{3}, {3, 11 - gap, 0}};
        call.position_offsets = {{3}, {4, -4, 9}};
        const FakeLibrary library(call.config);
        for (const bool given : {false, true}) {
            if (given) {
                call.query_positions = filled<int64_t>({3, 8}, 0),
                call.key_positions = filled<int64_t>({3, 11}, 0);
                for (size_t i = 0; i < 24; ++i)
                    call.query_positions.values[i] = static_cast<int64_t>(i * i % 37);
                for (size_t i = 0; i < 33; ++i)
                    call.key_positions.values[i] = static_cast<int64_t>(i * i % 41);
            }
            const FakeResult padded = run_fake(call);
            ASSERT_EQ(padded.status, ATTNC_OK) << padded.error;
            const RunResult packed = run_packed(library.get(), call, {.gap = gap});
            ASSERT_EQ(packed.status, ATTNC_OK) << packed.error;
            EXPECT_EQ(packed.out, padded.out) << gap << given;
        }
    }
}

// One angle for each row, shared by queries and keys of the same rows at the same positions.
TEST(Angles, AreMadeOnceForEachRow) {
    const auto rows_angled = [](const LayerCall& call) {
        fake_counts().reset();
        const FakeResult result = run_fake(call);
        EXPECT_EQ(result.status, ATTNC_OK) << result.error;
        return fake_counts().rows_angled.load();
    };
    LayerCall call = random_call("d64_h4_f32_rope:b3_q10_kv10", 11);
    EXPECT_EQ(rows_angled(call), 30);
    call.position_offsets = {{3}, {4, 0, 9}};
    call.query_lengths = call.key_lengths = {{3}, {10, 3, 0}};
    EXPECT_EQ(rows_angled(call), 13);
    call.key_lengths = {{3}, {10, 4, 0}};
    EXPECT_EQ(rows_angled(call), 13 + 14);
    call.query_lengths = call.key_lengths = {};
    call.query_positions = filled<int64_t>({3, 10}, 3);
    EXPECT_EQ(rows_angled(call), 60);
    call.key = call.value = {};
    EXPECT_EQ(rows_angled(call), 30);
}

// A cache holds rotated keys, and positions go on behind them.
TEST(Positions, GoOnBehindTheKeysOfACache) {
    for (const char* const problem :
         {"d64_h4_kv2_f32_causal_rope_cache:b2_q40_kv40",
          "d64_h4_kv2_f32_noin_noout_causal_qknorm_ropepairs_cache:b2_q40_kv40"}) {
        LayerCall call = random_call(problem, 18);
        const int64_t features = call.query.shape[2], kv_features = call.key.shape[2];
        const FakeResult whole = run_fake(call);
        ASSERT_EQ(whole.status, ATTNC_OK) << whole.error;
        const FakeLibrary library(call.config);
        const LayerPointer made = make_layer(library, call);
        size_t bytes = 0;
        attnc_cache_options options = ATTNC_CACHE_OPTIONS_INIT;
        options.slots = 2, options.capacity = 40;
        ASSERT_EQ(attnc_cache_bytes(made.get(), &options, &bytes, nullptr), ATTNC_OK);
        const GuardedMemory memory(bytes, Placement::kAtEnd, 64);
        attnc_cache* cache = nullptr;
        ASSERT_EQ(attnc_cache_create(made.get(), &options, memory.data(), bytes, &cache, nullptr), ATTNC_OK);
        int64_t first = 0;
        for (const int64_t count : {17, 1, 22}) {
            const auto rows = [&](const Array<float>& tokens, int64_t width) {
                Array<float> part = filled<float>({2, count, width}, 0);
                for (int64_t b = 0; b < 2; ++b)
                    std::copy_n(&tokens.at(b, first, 0), count * width, &part.at(b, 0, 0));
                return part;
            };
            const Array<float> query = rows(call.query, features), key = rows(call.key, kv_features),
                               value = rows(call.value, kv_features);
            attnc_inputs in = ATTNC_INPUTS_INIT;
            in.query = query.view(), in.key = key.view(), in.value = value.view(), in.cache = cache;
            Array<float> out = filled<float>({2, count, 64}, 0);
            attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
            outputs.out = out.view();
            attnc_run run = ATTNC_RUN_INIT;
            attnc_error error = {};
            ASSERT_EQ(attnc_layer_workspace(made.get(), &in, &outputs, &run, &run.workspace_bytes, &error),
                      ATTNC_OK)
                << error.text;
            const GuardedMemory workspace(run.workspace_bytes, Placement::kAtEnd, 64);
            run.workspace = workspace.data();
            ASSERT_EQ(attnc_layer_forward(made.get(), &in, &outputs, &run, &error), ATTNC_OK) << error.text;
            for (int64_t b = 0; b < 2; ++b) {
                for (int64_t n = 0; n < count * 64; ++n) {
                    const auto at = static_cast<size_t>((b * 40 + first) * 64 + n);
                    ASSERT_NEAR(out.at(b, 0, n), whole.out[at], 1e-5F) << first << " " << n;
                }
            }
            first += count;
        }
    }
}

TEST(Wrapper, RotatesThroughItsOwnTypes) {
    const Config config = parse_config("d32_h2_f32_noin_noout_rope");
    const FakeLibrary library(config);
    const std::vector<double> frequencies = {1, 0.5, 0.25, 0.125, 0.01, 0.001, 1e-4, 1e-5};
    const Layer layer(library.get(), {.rotary_frequencies = frequencies});
    const std::vector<float> narrow(frequencies.begin(), frequencies.end());
    const Layer same(library.get(), {.rotary_frequencies = narrow}, {.rotary = {.magnitude = 2}});
    const Array<float> x = random_array({2, 3, 32}, 1, 1);
    const std::vector<int32_t> positions = {4, 5, 6, -1, 0, 1};
    const std::vector<int64_t> offsets = {4, -1};
    std::vector<float> a(x.values), b(x.values), c(x.values);
    std::vector<std::byte> memory(layer.rotate_workspace() + 64);
    const auto shift = static_cast<size_t>(-reinterpret_cast<intptr_t>(memory.data()) & 63);
    const std::span<std::byte> workspace(memory.data() + shift, layer.rotate_workspace());
    layer.rotate({.x = {x.values, {2, 3, 32}}, .positions = {positions, {2, 3}}, .out = {a, {2, 3, 32}}},
                 workspace);
    layer.rotate({.x = {b, {2, 3, 32}}, .position_offsets = offsets, .out = {b, {2, 3, 32}}}, workspace);
    EXPECT_EQ(a, b);
    EXPECT_NE(a, x.values);
    same.rotate(
        {.heads = ATTNC_HEADS_KEY, .x = {c, {2, 3, 32}}, .position_offsets = offsets, .out = {c, {2, 3, 32}}},
        workspace);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(c[i], 2 * a[i], 1e-6F);
    EXPECT_THROW(layer.rotate({.x = {x.values, {2, 3, 32}}, .out = {a, {2, 3, 32}}}, workspace.first(64)),
                 Error);

    Session session(layer, {.max_batch = 2, .max_seq = 3});
    std::vector<float> out(a.size()), other(a.size());
    session.forward({.query = {x.values, {2, 3, 32}}, .position_offsets = offsets},
                    {.out = {out, {2, 3, 32}}});
    session.forward({.query = {x.values, {2, 3, 32}}, .query_positions = {positions, {2, 3}}},
                    {.out = {other, {2, 3, 32}}});
    EXPECT_EQ(out, other);
}

TEST(Rotary, TakesAPartOfAHead) {
    LayerCall call = random_call("d64_h2_f32_rope:b2_q5_kv5", 12);
    for (const int64_t dim : {2, 6, 10, 16, 24, 30}) {
        call.rotary.dim = dim;
        for (const Rotary layout : {Rotary::kHalf, Rotary::kPairs}) {
            call.config.rotary = layout;
            EXPECT_TRUE(matches(call)) << dim;
        }
    }
}

TEST(Rotary, TakesBasesScalingsAndMagnitudes) {
    LayerCall call = random_call("d64_h2_f32_rope:b2_q5_kv5", 13);
    call.position_offsets = {{2}, {30000, 7}};
    call.rotary.base = 500000, call.rotary.magnitude = 1.25;
    EXPECT_TRUE(matches(call));
    call.rotary.scaling = ATTNC_ROTARY_SCALING_LINEAR, call.rotary.factor = 4;
    EXPECT_TRUE(matches(call));
    call.rotary.scaling = ATTNC_ROTARY_SCALING_LLAMA3, call.rotary.factor = 8;
    call.rotary.low_freq_factor = 1, call.rotary.high_freq_factor = 4, call.rotary.original_positions = 8192;
    EXPECT_TRUE(matches(call));
}

TEST(Rotary, TakesTheCallersFrequenciesAndTables) {
    LayerCall call = random_call("d36_h2_f32_rope:b2_q5_kv5", 14);
    call.rotary.base = 0, call.rotary.magnitude = 0.5;
    call.rotary_frequencies = filled<double>({9}, 0);
    for (size_t i = 0; i < 9; ++i)
        call.rotary_frequencies.values[i] =
            std::ldexp(1 + 0.1 * static_cast<double>(i), 2 - static_cast<int>(i));
    call.rotary_frequencies.values[3] = -0.75;
    EXPECT_TRUE(matches(call));

    LayerCall table = random_call("d36_h2_f32_ropepairs:b2_q5_kv5", 15);
    table.rotary_cos = random_array({12, 9}, 1, 2), table.rotary_sin = random_array({12, 9}, 2, 2);
    table.rotary.base = 0;
    table.position_offsets = {{2}, {7, 0}};
    EXPECT_TRUE(matches(table));
}

// A library with both options serves layers that have one of them, or none.
TEST(HeadSteps, AreLeftOutWhereALayerHasNoWeightsForThem) {
    for (const char* const problem :
         {"d64_h2_f32_qknorm_rope:b2_q5_kv6", "d64_h2_f32_noin_noout_qknorm_ropepairs:b2_q5_kv6"}) {
        for (const bool norm : {false, true}) {
            for (const bool rotation : {false, true}) {
                LayerCall call = random_call(problem, 17);
                if (!norm) call.q_norm = call.k_norm = {};
                if (!rotation) call.rotary = {};
                call.position_offsets = {{2}, {3, 9}};
                fake_counts().reset();
                EXPECT_TRUE(matches(call)) << norm << rotation;
                EXPECT_EQ(fake_counts().calls[ATTNC_KERNEL_NORM_HEADS] != 0, norm);
                EXPECT_EQ(fake_counts().calls[ATTNC_KERNEL_ROTATE_HEADS] != 0, rotation);
                EXPECT_EQ(fake_counts().rows_angled != 0, rotation);
            }
        }
    }
}

TEST(Norm, TakesItsEpsilon) {
    LayerCall call = random_call("d48_h2_f32_qknorm:b2_q5_kv5", 16);
    call.qk_norm_epsilon = 0.75F;
    EXPECT_TRUE(matches(call));
    for (float& x : call.query.values) x = 0;
    for (float& x : call.bq.values) x = 0;
    EXPECT_TRUE(matches(call));
}

}  // namespace
}  // namespace attnc::test
