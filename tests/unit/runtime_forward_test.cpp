// The runtime's own part of a forward pass, over kernels in plain C++: slices, waves, masks, lengths,
// merging, empty rows, outputs and strides.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

TEST(Forward, MatchesTheReferenceForManyShapes) {
    for (const char* problem :
         {"d32_h2_f32:b1_q1_kv1", "d32_h2_f32:b2_q7_kv9", "d48_h3_f32:b3_q17_kv16", "d10_h5_f32:b1_q5_kv33",
          "d36_h4_f32:b2_q31_kv3", "d64_h8_f32:b1_q9_kv65", "d20_h4_kv2_f32:b2_q6_kv20",
          "d32_h2_hd20_vhd7_f32:b2_q8_kv8", "d32_h2_kdim12_vdim40_f32:b2_q8_kv18", "d1_h1_f32:b1_q1_kv1",
          "d32_h4_kv1_hd16_vhd16_f32:b1_q40_kv40"}) {
        EXPECT_TRUE(matches(everything(problem, 1)));
    }
}

TEST(Forward, TakesPanelsNarrowerAndWiderThanAHead) {
    for (const int64_t panel : {16, 32, 64, 128}) {
        for (const char* problem :
             {"d96_h3_f32:b2_q5_kv5", "d48_h3_f32:b2_q5_kv5", "d320_h5_f32:b1_q3_kv3"}) {
            const Config config = parse_problem(problem).config;
            const int64_t width = padded_head(config.head_dim);
            if (width % panel != 0 && panel % width != 0) continue;
            FakeOptions options;
            options.layout.panel = panel;
            EXPECT_TRUE(matches(everything(problem, 2), options)) << panel;
        }
    }
}

TEST(Forward, TakesOneTensorForSelfAttention) {
    LayerCall call = everything("d32_h2_f32:b2_q20_kv20", 3);
    call.key = {}, call.value = {};
    EXPECT_TRUE(matches(call));
    LayerCall cross = everything("d32_h2_f32:b2_q20_kv7", 3);
    cross.value = {};
    EXPECT_TRUE(matches(cross));
}

TEST(Forward, TakesMissingBiases) {
    LayerCall call = everything("d32_h2_f32:b2_q20_kv20", 4);
    call.bq = {}, call.bo = {};
    EXPECT_TRUE(matches(call));
}

TEST(Forward, TakesAnyStrides) {
    for (const char* problem : {"d32_h2_f32:b3_q5_kv20", "d32_h2_f32_noin_noout:b3_q5_kv20",
                                "d10_h2_f32_noin_noout:b3_q5_kv20", "d32_h2_f32_noin:b2_q5_kv5"}) {
        for (const bool rank4 : {false, true}) {
            if (rank4 && parse_problem(problem).config.in_proj) continue;
            FakeOptions options;
            options.row_gap = 5, options.item_gap = 3, options.rank4 = rank4;
            EXPECT_TRUE(matches(everything(problem, 5), options));
        }
    }
}

TEST(Forward, TakesTokensWithoutProjections) {
    for (const char* problem : {"d32_h2_f32_noin_noout:b2_q7_kv19", "d20_h4_f32_noin_noout:b2_q7_kv19",
                                "d64_h4_kv2_f32_noin:b2_q7_kv19", "d32_h2_f32_noout:b2_q7_kv19",
                                "d32_h2_hd16_vhd5_f32_noin_noout:b1_q3_kv3"}) {
        for (const bool rank4 : {false, true}) {
            FakeOptions options;
            options.rank4 = rank4 && !parse_problem(problem).config.in_proj;
            EXPECT_TRUE(matches(everything(problem, 6), options));
        }
    }
}

TEST(Forward, TakesLengths) {
    for (const bool wide : {false, true}) {
        LayerCall call = everything("d32_h2_f32:b5_q20_kv35", 7);
        call.key_lengths = {{5}, {35, 0, 17, 1, 16}};
        call.query_lengths = {{5}, {20, 3, 0, 19, 8}};
        FakeOptions options;
        options.wide_lengths = wide;
        EXPECT_TRUE(matches(call, options));
        call.key_lengths = {};
        EXPECT_TRUE(matches(call, options));
    }
}

// Garbage past an item's lengths, also where it would spoil everything it touches.
TEST(Forward, DoesNotReadPastLengths) {
    LayerCall call = everything("d32_h2_f32:b3_q6_kv20", 8);
    call.key_lengths = {{3}, {20, 5, 17}};
    call.query_lengths = {{3}, {6, 2, 5}};
    const FakeResult clean = run_fake(call);
    for (int64_t b = 0; b < 3; ++b) {
        for (int64_t n = 0; n < 32; ++n) {
            for (int64_t i = call.query_lengths.at(b); i < 6; ++i) call.query.at(b, i, n) = NAN;
            for (int64_t j = call.key_lengths.at(b); j < 20; ++j) {
                call.key.at(b, j, n) = NAN;
                call.value.at(b, j, n) = INFINITY;
            }
        }
    }
    EXPECT_TRUE(equal_bits(clean, run_fake(call)));
}

TEST(Forward, PaddedItemsCostWhatTheirTokensCost) {
    LayerCall call = random_call("d32_h2_f32:b4_q32_kv32", 9);
    fake_counts().reset();
    ASSERT_EQ(run_fake(call).status, ATTNC_OK);
    const int64_t full_rows = fake_counts().rows_projected, full_pairs = fake_counts().pairs_attended;
    call.key_lengths = call.query_lengths = {{4}, {8, 8, 8, 8}};
    fake_counts().reset();
    ASSERT_EQ(run_fake(call).status, ATTNC_OK);
    EXPECT_EQ(fake_counts().rows_projected, full_rows / 4);
    EXPECT_LE(fake_counts().pairs_attended, full_pairs / 16);
}

TEST(Forward, TakesEveryDiagonal) {
    for (const char* problem : {"d32_h2_f32:b2_q20_kv20", "d32_h2_f32:b2_q5_kv40", "d32_h2_f32:b2_q40_kv18",
                                "d32_h2_f32_causal:b2_q20_kv24"}) {
        for (const attnc_causal causal : {ATTNC_CAUSAL_NOT_GIVEN, ATTNC_CAUSAL_NONE, ATTNC_CAUSAL_TOP_LEFT,
                                          ATTNC_CAUSAL_BOTTOM_RIGHT, ATTNC_CAUSAL_OFFSET}) {
            for (const bool lengths : {false, true}) {
                LayerCall call = everything(problem, 10);
                call.causal = causal;
                if (causal == ATTNC_CAUSAL_OFFSET) call.causal_offsets = {{2}, {-3, 30}};
                if (lengths) {
                    call.key_lengths = {{2}, {17, call.sizes.seq_kv}};
                    call.query_lengths = {{2}, {5, 4}};
                }
                EXPECT_TRUE(matches(call)) << causal;
            }
        }
    }
}

TEST(Forward, TakesOffsetsOfAnySize) {
    LayerCall call = everything("d32_h2_f32:b4_q5_kv20", 11);
    call.causal = ATTNC_CAUSAL_OFFSET;
    call.causal_offsets = {
        {4}, {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), 1 << 30, -20}};
    LayerCall same = call;
    same.causal_offsets = {{4}, {-1000, 1000, 1000, -20}};
    EXPECT_TRUE(equal_bits(run_fake(call), run_fake(same)));
    EXPECT_TRUE(matches(same));
}

// What a causal call drops is not computed, but for the rest of a tile.
TEST(Forward, ACausalCallDoesNotComputeWhatItDrops) {
    LayerCall call = random_call("d16_h1_f32:b1_q128_kv128", 12);
    call.causal = ATTNC_CAUSAL_TOP_LEFT;
    fake_counts().reset();
    ASSERT_EQ(run_fake(call, {.layout = {.tile_kv = 16, .tile_q = 2}}).status, ATTNC_OK);
    EXPECT_LE(fake_counts().pairs_attended, 128 * 128 / 2 + 16 * 128);
}

TEST(Forward, TakesWindowsFromEveryDiagonal) {
    const std::optional<int64_t> none, sides[] = {none, 0, 3, 17, 100};
    for (const char* problem : {"d32_h2_f32:b2_q20_kv20", "d32_h2_f32:b2_q5_kv70", "d32_h2_f32:b2_q40_kv18",
                                "d32_h2_f32_causal:b2_q20_kv44"}) {
        for (const attnc_causal causal : {ATTNC_CAUSAL_NOT_GIVEN, ATTNC_CAUSAL_NONE, ATTNC_CAUSAL_TOP_LEFT,
                                          ATTNC_CAUSAL_BOTTOM_RIGHT, ATTNC_CAUSAL_OFFSET}) {
            for (const auto& left : sides) {
                for (const auto& right : sides) {
                    LayerCall call = everything(problem, 50);
                    call.causal = causal;
                    call.window_left = left, call.window_right = right;
                    if (causal == ATTNC_CAUSAL_OFFSET) call.causal_offsets = {{2}, {-3, 30}};
                    if (left == right) call.probs = false;  // averaged alone takes another way
                    EXPECT_TRUE(matches(call)) << causal;
                    call.key_lengths = {{2}, {17, call.sizes.seq_kv}};
                    call.query_lengths = {{2}, {5, 4}};
                    EXPECT_TRUE(matches(call)) << causal << " with lengths";
                }
            }
        }
    }
}

// A window is a band of keys to keep, and gives the bits of one.
TEST(Forward, AWindowGivesTheBitsOfABandedMask) {
    for (const int64_t tile_kv : {4, 16, 64}) {
        LayerCall window = everything("d32_h2_f32:b2_q20_kv50", 51);
        window.window_left = 6, window.window_right = 2;
        LayerCall band = window;
        band.window_left = band.window_right = {};
        band.keep_mask = filled<uint8_t>({1, 1, 20, 50}, 0);
        for (int64_t i = 0; i < 20; ++i) {
            for (int64_t j = i + 30 - 6; j <= std::min<int64_t>(i + 30 + 2, 49); ++j)
                band.keep_mask.at(0, 0, i, j) = 1;
        }
        const FakeOptions options = {.layout = {.tile_kv = tile_kv}};
        EXPECT_TRUE(equal_bits(run_fake(window, options), run_fake(band, options)));
    }
}

TEST(Forward, AWindowCombinesWithEverythingThatMasks) {
    for (const bool averaged_only : {false, true}) {
        LayerCall call = everything("d48_h3_f32:b2_q20_kv60", 52);
        call.probs = !averaged_only;
        call.window_left = 25, call.window_right = 4;
        call.keep_mask = random_mask({2, 1, 20, 60}, 1, 0.8);
        call.bias = random_array({1, 3, 20, 60}, 3, 3);
        call.key_drop_mask = random_mask({2, 60}, 5, 0.1);
        call.key_bias = random_array({2, 60}, 6, 3);
        call.key_lengths = {{2}, {60, 47}};
        EXPECT_TRUE(matches(call));
        call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        EXPECT_TRUE(matches(call));
    }
}

TEST(Forward, AWindowOfNoKeysLeavesTheDiagonal) {
    LayerCall call = random_call("d32_h2_f32:b1_q20_kv40", 53);
    call.probs = true;
    call.window_left = call.window_right = 0;
    const FakeResult got = run_fake(call);
    ASSERT_EQ(got.status, ATTNC_OK);
    for (int64_t n = 0; n < 2 * 20 * 40; ++n) {
        const int64_t row = n / 40 % 20, key = n % 40;
        ASSERT_EQ(got.probs[static_cast<size_t>(n)], key == row + 20 ? 1.0F : 0.0F) << row << " " << key;
    }
}

TEST(Forward, WindowsOfAnySizeDoNotOverflow) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max(),
                      kLeast = std::numeric_limits<int64_t>::min();
    LayerCall call = everything("d32_h2_f32:b2_q5_kv20", 54);
    const FakeResult all = run_fake(call);
    call.window_left = call.window_right = kMost;
    EXPECT_TRUE(equal_bits(all, run_fake(call)));
    for (const auto& [offset, left] :
         {std::pair(kMost, kMost), std::pair(kMost, int64_t{3}), std::pair(kMost, kMost - 3),
          std::pair(kLeast, kMost), std::pair(int64_t{1} << 40, (int64_t{1} << 40) - 2)}) {
        call.causal = ATTNC_CAUSAL_OFFSET;
        call.causal_offsets = {{2}, {offset, offset}};
        call.window_left = left;
        EXPECT_TRUE(matches(call)) << offset << " " << left;
    }
}

// Neither projected, but for the rest of a block, nor attended.
TEST(Forward, AWindowDoesNotComputeWhatItDrops) {
    LayerCall call = random_call("d16_h1_f32:b2_q4_kv160", 55);
    const FakeOptions options = {.layout = {.tile_kv = 16, .tile_q = 2}};
    call.window_left = 20;
    call.key_lengths = {{2}, {160, 150}};
    fake_counts().reset();
    EXPECT_TRUE(matches(call, options));
    EXPECT_EQ(fake_counts().rows_projected, 2 * (4 + (160 - 128) + (150 - 112)));
    EXPECT_LE(fake_counts().pairs_attended, 2 * 4 * (20 + 2 * 16));

    call = random_call("d16_h1_f32:b1_q256_kv256", 55);
    call.window_left = call.window_right = 8;
    fake_counts().reset();
    EXPECT_TRUE(matches(call, options));
    EXPECT_LE(fake_counts().pairs_attended, 256 * (16 + 3 * 16));
}

TEST(Forward, NonFiniteDataOutsideTheWindowChangesNoBit) {
    for (const int64_t tile_kv : {8, 64}) {
        const FakeOptions options = {.layout = {.tile_kv = tile_kv}};
        LayerCall call = everything("d32_h2_f32:b1_q10_kv40", 56);
        call.window_left = 7, call.window_right = 3;
        const FakeResult clean = run_fake(call, options);
        for (const float bad : {NAN, INFINITY}) {
            for (int64_t key = 20; key < 40; ++key) {
                LayerCall spoilt = call;
                for (int64_t n = 0; n < 32; ++n) spoilt.value.at(0, key, n) = spoilt.key.at(0, key, n) = bad;
                const FakeResult got = run_fake(spoilt, options);
                ASSERT_EQ(got.status, ATTNC_OK);
                for (int64_t n = 0; n < 10 * 32; ++n) {
                    const int64_t own = n / 32 + 30;
                    const bool sees = own - 7 <= key && key <= own + 3;
                    const auto at = static_cast<size_t>(n);
                    if (sees) {
                        ASSERT_FALSE(std::isfinite(got.out[at])) << key << " " << n;
                    } else {
                        ASSERT_EQ(got.out[at], clean.out[at]) << key << " " << n;
                    }
                }
            }
        }
    }
}

TEST(Forward, TakesEveryBroadcastOfEveryMask) {
    for (int form = 0; form < 16; ++form) {
        const std::vector<int64_t> shape = {(form & 1) != 0 ? 2 : 1, (form & 2) != 0 ? 3 : 1,
                                            (form & 4) != 0 ? 6 : 1, (form & 8) != 0 ? 20 : 1};
        for (const int kind : {0, 1, 2, 3}) {
            LayerCall call = everything("d48_h3_f32:b2_q6_kv20", 13);
            if (kind == 0 || kind == 3) call.keep_mask = random_mask(shape, 100, 0.8);
            if (kind == 1 || kind == 3) call.drop_mask = random_mask(shape, 101, 0.2);
            if (kind == 2 || kind == 3) {
                call.bias = random_array(shape, 102, 2);
                call.bias.values[0] = -INFINITY;
            }
            FakeOptions options;
            options.row_gap = kind, options.item_gap = 2;
            EXPECT_TRUE(matches(call, options)) << form << " " << kind;
        }
    }
}

TEST(Forward, CombinesEverythingThatMasks) {
    LayerCall call = everything("d48_h3_f32:b2_q20_kv40", 14);
    call.keep_mask = random_mask({2, 1, 20, 40}, 1, 0.8);
    call.drop_mask = random_mask({1, 3, 1, 40}, 2, 0.1);
    call.bias = random_array({1, 1, 20, 40}, 3, 3);
    call.key_keep_mask = random_mask({2, 40}, 4, 0.9);
    call.key_drop_mask = random_mask({2, 40}, 5, 0.1);
    call.key_bias = random_array({2, 40}, 6, 3);
    call.key_bias.values[3] = -INFINITY;
    call.key_lengths = {{2}, {40, 33}};
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    EXPECT_TRUE(matches(call));
    call.config.probs = true;
    call.probs = false;  // averaged alone takes another way
    EXPECT_TRUE(matches(call));
}

TEST(Forward, KeyFormsAloneWork) {
    for (const int kind : {0, 1, 2, 3}) {
        LayerCall call = everything("d32_h2_f32:b2_q6_kv40", 15);
        if (kind == 0) call.key_keep_mask = random_mask({2, 40}, 4, 0.7);
        if (kind == 1) call.key_drop_mask = random_mask({2, 40}, 5, 0.3);
        if (kind == 2) call.key_bias = random_array({2, 40}, 6, 3);
        if (kind == 3) call.bias = random_array({2, 1, 1, 40}, 6, 3);
        FakeOptions options;
        options.row_gap = 3;
        EXPECT_TRUE(matches(call, options)) << kind;
    }
}

// Two of the most negative finite biases don't add up to a dropped key.
TEST(Forward, TwoMostNegativeBiasesDoNotDropAKey) {
    LayerCall call = random_call("d32_h2_f32:b1_q3_kv4", 16);
    call.lse = true;
    call.bias = filled<float>({1, 1, 1, 4}, std::numeric_limits<float>::lowest());
    call.key_bias = filled<float>({1, 4}, std::numeric_limits<float>::lowest());
    for (const float value : run_fake(call).lse) EXPECT_TRUE(std::isfinite(value));
}

// Probabilities of every row, asked for with `averaged_only` or without: of key j as `want` says.
template <typename Want>
void expect_probs(LayerCall call, const FakeOptions& options, const Want& want) {
    for (const bool averaged_only : {false, true}) {
        call.probs = !averaged_only;
        const FakeResult got = run_fake(call, options);
        ASSERT_EQ(got.status, ATTNC_OK) << got.error;
        for (const std::vector<float>* probs : {&got.probs, &got.probs_averaged}) {
            for (size_t n = 0; n < probs->size(); ++n) {
                const int64_t key = static_cast<int64_t>(n) % call.keys();
                ASSERT_EQ((*probs)[n], want(key)) << averaged_only << " key " << key;
            }
        }
    }
}

FakeOptions keys_in_blocks_of(int64_t tile_kv) {
    FakeOptions options;
    options.layout.tile_kv = tile_kv;
    return options;
}

// Scores so large that the number of keys is lost in lse, which float32 rounds to the bias.
TEST(Forward, HugeEqualBiasesGiveUniformProbabilities) {
    for (const float bias : {-1e9F, 1e9F, -3e38F, std::numeric_limits<float>::lowest()}) {
        for (const int64_t keys : {1, 6, 45}) {
            for (const int64_t tile_kv : {4, 16, 64}) {
                for (const bool per_key : {false, true}) {
                    const Config config = parse_problem("d32_h2_f32:b2_q5_kv6").config;
                    LayerCall call = random_call(config, {2, 5, keys}, 40);
                    call.probs_averaged = call.lse = true;
                    (per_key ? call.key_bias : call.bias) =
                        per_key ? filled<float>({2, keys}, bias) : filled<float>({1, 2, 5, keys}, bias);
                    const FakeOptions options = keys_in_blocks_of(tile_kv);
                    expect_probs(call, options, [&](int64_t) { return 1.0F / static_cast<float>(keys); });
                    for (const float lse : run_fake(call, options).lse) {
                        ASSERT_LE(std::fabs(lse - bias), std::fabs(bias) * 1e-6F);
                    }
                }
            }
        }
    }
}

TEST(Forward, HugeBiasesAgainstAppendedKeys) {
    LayerCall call = random_call("d32_h2_f32_biaskv_zeroattn:b2_q5_kv12", 41);
    call.probs_averaged = call.lse = true;
    call.key_bias = filled<float>({2, 12}, 1e9F);
    for (const int64_t tile_kv : {4, 16}) {
        expect_probs(call, keys_in_blocks_of(tile_kv),
                     [](int64_t key) { return key < 12 ? 1.0F / 12.0F : 0.0F; });
    }
    // Now the appended keys have all the weight, and the same as without the others.
    call.key_bias = filled<float>({2, 12}, -1e9F);
    LayerCall alone = call;
    alone.key_bias = {}, alone.key_drop_mask = filled<uint8_t>({2, 12}, 1);
    for (const bool probs : {false, true}) {
        call.probs = alone.probs = probs;
        for (const int64_t tile_kv : {4, 16}) {
            EXPECT_TRUE(equal_bits(run_fake(call, keys_in_blocks_of(tile_kv)),
                                   run_fake(alone, keys_in_blocks_of(tile_kv))));
        }
    }
    EXPECT_TRUE(matches(alone));
}

TEST(Forward, TheLeastOfHugeBiasesTakesAllTheWeight) {
    for (const int64_t tile_kv : {4, 64}) {
        for (const int64_t key : {0, 5, 18}) {
            LayerCall call = random_call("d32_h2_f32:b1_q5_kv19", 42);
            call.probs_averaged = call.lse = true;
            call.key_bias = filled<float>({1, 19}, std::numeric_limits<float>::lowest());
            call.key_bias.at(0, key) = -3e38F;
            const FakeOptions options = keys_in_blocks_of(tile_kv);
            expect_probs(call, options, [&](int64_t j) { return j == key ? 1.0F : 0.0F; });
            for (const float lse : run_fake(call, options).lse) EXPECT_EQ(lse, -3e38F);
        }
    }
}

TEST(Forward, LseIsComputedOnlyWhereWanted) {
    LayerCall call = random_call("d32_h2_f32:b2_q5_kv20", 43);
    call.probs = call.probs_averaged = true;
    fake_counts().reset();
    ASSERT_EQ(run_fake(call).status, ATTNC_OK);
    EXPECT_EQ(fake_counts().calls[ATTNC_KERNEL_ATTEND_LSE], 0);
    call.lse = true;
    ASSERT_EQ(run_fake(call).status, ATTNC_OK);
    EXPECT_EQ(fake_counts().calls[ATTNC_KERNEL_ATTEND_LSE], 4);
}

TEST(Forward, AnAllTrueMaskChangesNoBit) {
    LayerCall call = everything("d32_h2_f32:b2_q6_kv40", 17);
    const FakeResult without = run_fake(call);
    call.keep_mask = filled<uint8_t>({2, 2, 6, 40}, 255);
    EXPECT_TRUE(equal_bits(without, run_fake(call)));
    call.keep_mask = {};
    call.key_keep_mask = filled<uint8_t>({2, 40}, 1);
    EXPECT_TRUE(equal_bits(without, run_fake(call)));
}

TEST(Forward, NonFiniteDroppedValuesChangeNoBit) {
    for (const bool causal : {false, true}) {
        LayerCall call = everything("d32_h2_f32:b1_q20_kv40", 18);
        if (causal) {
            call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        } else {
            call.key_drop_mask = random_mask({1, 40}, 5, 0.3);
            call.key_drop_mask.at(0, 39) = 1;
        }
        const FakeResult clean = run_fake(call);
        for (const float bad : {NAN, INFINITY, -INFINITY}) {
            LayerCall spoilt = call;
            for (int64_t j = 0; j < 40; ++j) {
                if (causal ? j != 39 : call.key_drop_mask.at(0, j) == 0) continue;
                for (int64_t n = 0; n < 32; ++n) spoilt.value.at(0, j, n) = bad;
            }
            const FakeResult got = run_fake(spoilt);
            ASSERT_EQ(got.status, ATTNC_OK);
            const size_t rows = causal ? 19 : 20;  // the last row may see key 39
            for (size_t n = 0; n < rows * 32; ++n) ASSERT_EQ(got.out[n], clean.out[n]) << n;
        }
    }
}

TEST(Forward, NonFinitePermittedDataReachesItsRowsOnly) {
    LayerCall call = everything("d32_h2_f32:b2_q20_kv40", 19);
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    call.query.at(0, 3, 5) = NAN;
    call.value.at(1, 30, 2) = INFINITY;  // rows 10.. of item 1
    const FakeResult got = run_fake(call);
    ASSERT_EQ(got.status, ATTNC_OK);
    for (int64_t b = 0; b < 2; ++b) {
        for (int64_t i = 0; i < 20; ++i) {
            const bool finite = std::isfinite(got.out[static_cast<size_t>((b * 20 + i) * 32)]);
            EXPECT_EQ(finite, b == 0 ? i != 3 : i < 10) << b << " " << i;
        }
    }
}

TEST(Forward, EmptyRowsFollowThePolicy) {
    for (const attnc_empty_rows policy : {ATTNC_EMPTY_ROWS_NOT_GIVEN, ATTNC_EMPTY_ROWS_ZERO,
                                          ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, ATTNC_EMPTY_ROWS_NAN}) {
        for (const char* problem :
             {"d40_h2_f32:b3_q20_kv40", "d40_h2_kv1_f32_noin_noout:b3_q20_kv40", "d40_h2_f32:b3_q40_kv18",
              "d40_h2_f32:b3_q4_kv0", "d40_h2_f32_zeroattn:b3_q20_kv40"}) {
            for (const bool averaged_only : {false, true}) {
                LayerCall call = everything(problem, 20);
                call.probs = !averaged_only;
                call.empty_rows = policy;
                call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
                if (call.sizes.seq_kv > 0) {
                    call.keep_mask = random_mask({3, 2, call.sizes.seq_q, call.sizes.seq_kv}, 7, 0.8);
                    for (int64_t i = 0; i < call.sizes.seq_q; ++i) {
                        if (i % 3 != 1) continue;
                        for (int64_t j = 0; j < call.sizes.seq_kv; ++j) call.keep_mask.at(1, 1, i, j) = 0;
                    }
                    call.key_lengths = {{3}, {call.sizes.seq_kv, 17, 0}};
                }
                EXPECT_TRUE(matches(call)) << policy << averaged_only;
                call.window_left = 2, call.window_right = 1;
                call.causal = ATTNC_CAUSAL_NONE;
                EXPECT_TRUE(matches(call)) << policy << averaged_only << " with a window";
                call.causal = ATTNC_CAUSAL_OFFSET;
                call.causal_offsets = {{3}, {-100, 25, 1000}};  // windows before and behind all keys
                EXPECT_TRUE(matches(call)) << policy << averaged_only << " with a window elsewhere";
            }
        }
    }
}

TEST(Forward, AppendsKeys) {
    for (const char* problem :
         {"d40_h2_f32_biaskv:b2_q20_kv40", "d40_h2_f32_zeroattn:b2_q20_kv16",
          "d40_h2_kv1_f32_biaskv_zeroattn:b2_q20_kv7", "d40_h2_f32_biaskv_zeroattn:b2_q3_kv0",
          "d40_h2_f32_noin_zeroattn:b2_q3_kv20"}) {
        for (const bool masked : {false, true}) {
            for (const bool averaged_only : {false, true}) {
                LayerCall call = everything(problem, 21);
                call.probs = !averaged_only;
                if (masked && call.sizes.seq_kv > 0) {
                    call.key_drop_mask = filled<uint8_t>({2, call.sizes.seq_kv}, 1);
                    call.key_drop_mask.at(0, 1) = 0;
                    call.causal = ATTNC_CAUSAL_TOP_LEFT;
                }
                EXPECT_TRUE(matches(call));
            }
        }
    }
}

TEST(Forward, TakesSinks) {
    for (const char* problem :
         {"d40_h2_f32_sink:b2_q20_kv40", "d40_h2_f32_sink:b2_q5_kv7", "d40_h2_f32_sink:b2_q3_kv0",
          "d40_h4_kv2_f32_biaskv_zeroattn_sink:b2_q20_kv40", "d40_h2_f32_noin_noout_sink:b2_q5_kv20",
          "d32_h2_f32_noin_noout_sink:b2_q5_kv20", "d40_h2_f32_causal_sink:b2_q20_kv18"}) {
        for (const bool masked : {false, true}) {
            for (const bool averaged_only : {false, true}) {
                LayerCall call = everything(problem, 60);
                call.probs = !averaged_only;
                if (masked && call.sizes.seq_kv > 0) {
                    call.key_drop_mask = random_mask({2, call.sizes.seq_kv}, 1, 0.3);
                    call.window_left = 5;
                    call.query_lengths = {{2}, {call.sizes.seq_q, 2}};
                }
                EXPECT_TRUE(matches(call));
            }
        }
    }
}

// Whatever the policy says: such a row has something to attend.
TEST(Forward, WithASinkARowWithoutKeysHasTheSinkAlone) {
    for (const attnc_empty_rows policy : {ATTNC_EMPTY_ROWS_NOT_GIVEN, ATTNC_EMPTY_ROWS_ZERO,
                                          ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, ATTNC_EMPTY_ROWS_NAN}) {
        for (const char* problem : {"d32_h2_f32_noout_sink:b2_q5_kv20", "d32_h2_f32_noout_sink:b2_q5_kv0"}) {
            LayerCall call = everything(problem, 61);
            const int64_t keys = call.sizes.seq_kv;
            call.empty_rows = policy;
            if (keys > 0) {
                call.keep_mask = filled<uint8_t>({1, 1, 5, keys}, 1);
                for (int64_t j = 0; j < keys; ++j) call.keep_mask.at(0, 0, 3, j) = 0;
                call.key_lengths = {{2}, {keys, 0}};
            }
            const FakeResult got = run_fake(call);
            EXPECT_TRUE(matches(call, got, 16)) << policy;
            for (int64_t n = 0; n < 2 * 2 * 5; ++n) {
                const int64_t item = n / 10, head = n / 5 % 2, row = n % 5;
                if (keys > 0 && item == 0 && row != 3) continue;
                EXPECT_EQ(got.lse[static_cast<size_t>(n)], call.sink.at(head));
                for (int64_t d = 0; d < 16; ++d)
                    EXPECT_EQ(got.out[static_cast<size_t>((item * 5 + row) * 32 + head * 16 + d)], 0);
                for (int64_t j = 0; j < keys; ++j) EXPECT_EQ(got.probs[static_cast<size_t>(n * keys + j)], 0);
            }
        }
    }
}

// The key of zeros has score 0 and value 0: the same thing, but for its column of probabilities.
TEST(Forward, ASinkOfZeroIsTheKeyOfZeros) {
    LayerCall sink = random_call("d32_h2_f32_sink:b2_q20_kv40", 62);
    sink.lse = true;
    sink.sink = filled<float>({2}, 0);
    LayerCall zero_key = sink;
    zero_key.config = parse_config("d32_h2_f32_zeroattn");
    zero_key.sink = {};
    EXPECT_TRUE(equal_bits(run_fake(sink), run_fake(zero_key)));
}

TEST(Forward, HugeSinks) {
    LayerCall call = everything("d32_h2_f32_noout_sink:b2_q20_kv40", 63);
    call.sink = filled<float>({2}, std::numeric_limits<float>::lowest());  // takes nothing
    LayerCall without = call;
    without.config = parse_config("d32_h2_f32_noout");
    without.sink = {};
    EXPECT_TRUE(equal_bits(run_fake(call), run_fake(without)));
    call.sink = filled<float>({2}, std::numeric_limits<float>::max());  // takes everything
    const FakeResult all = run_fake(call);
    for (const float lse : all.lse) EXPECT_EQ(lse, std::numeric_limits<float>::max());
    for (const auto* values : {&all.out, &all.probs, &all.probs_averaged}) {
        for (const float value : *values) EXPECT_EQ(value, 0);
    }
}

TEST(Forward, AskingForMoreChangesNoBitOfOut) {
    LayerCall call = random_call("d32_h2_f32:b2_q20_kv40", 22);
    const FakeResult plain = run_fake(call);
    for (int wanted = 1; wanted < 8; ++wanted) {
        call.probs = (wanted & 1) != 0, call.probs_averaged = (wanted & 2) != 0, call.lse = (wanted & 4) != 0;
        FakeResult got = run_fake(call);
        got.probs = got.probs_averaged = got.lse = {};
        EXPECT_TRUE(equal_bits(plain, got)) << wanted;
    }
}

TEST(Forward, BothWaysOfAveragingGiveTheSameBits) {
    LayerCall call = everything("d32_h2_f32_biaskv_sink:b2_q20_kv40", 23);
    call.keep_mask = random_mask({2, 2, 20, 40}, 7, 0.5);
    FakeResult both = run_fake(call);
    call.probs = false;
    const FakeResult alone = run_fake(call);
    both.probs = {};
    EXPECT_TRUE(equal_bits(both, alone));
}

TEST(Forward, BitsDoNotDependOnTheExecutor) {
    for (const char* problem : {"d32_h2_f32:b3_q40_kv40", "d20_h4_f32_noin_noout:b3_q40_kv40",
                                "d128_h8_f32_biaskv_sink:b1_q70_kv20"}) {
        LayerCall call = everything(problem, 24);
        call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        call.key_bias = random_array({call.sizes.batch, call.sizes.seq_kv}, 1, 1);
        call.key_lengths = filled<int64_t>({call.sizes.batch}, call.sizes.seq_kv - 3);
        if (call.config.bias_kv) call.window_left = 9;
        const FakeResult alone = run_fake(call);
        EXPECT_TRUE(matches(call, alone, 16));
        for (const FakeExecutor executor :
             {FakeExecutor::kInOrder, FakeExecutor::kBackwards, FakeExecutor::kThreads}) {
            for (const int64_t concurrency : {1, 2, 3, 8, 50}) {
                EXPECT_TRUE(
                    equal_bits(alone, run_fake(call, {.executor = executor, .concurrency = concurrency})));
            }
        }
    }
}

TEST(Forward, BitsDoNotDependOnTheBatch) {
    LayerCall call = everything("d32_h2_f32:b4_q20_kv40", 25);
    call.key_lengths = {{4}, {40, 7, 31, 16}};
    call.query_lengths = {{4}, {20, 7, 1, 16}};
    const FakeResult all = run_fake(call);
    for (int64_t b = 0; b < 4; ++b) {
        const FakeResult alone = run_fake(item_of(call, b));
        ASSERT_EQ(alone.status, ATTNC_OK);
        for (size_t n = 0; n < alone.out.size(); ++n) {
            ASSERT_EQ(alone.out[n], all.out[static_cast<size_t>(b) * alone.out.size() + n]);
        }
    }
}

// 5000 items of one token are more than one wave; so are two items that are longer than a wave.
TEST(Forward, LargeBatchesGoThroughInWaves) {
    LayerCall call = random_call("d8_h2_f32:b5000_q1_kv2", 26);
    call.lse = true;
    call.key_lengths = filled<int64_t>({5000}, 2);
    call.query_lengths = filled<int64_t>({5000}, 1);
    for (size_t b = 0; b < 5000; b += 7) call.key_lengths.values[b] = 1;
    for (size_t b = 0; b < 5000; b += 11) call.query_lengths.values[b] = 0;
    const FakeResult got = run_fake(call);
    EXPECT_TRUE(matches(call, got, 16));
    EXPECT_LT(got.workspace_bytes, 3U << 20);
    EXPECT_TRUE(equal_bits(got, run_fake(call, {.executor = FakeExecutor::kThreads, .concurrency = 3})));
    EXPECT_TRUE(matches(random_call("d8_h2_f32:b2_q4200_kv3", 27)));
}

// An item of more rows than a wave has room for one part's contexts; its queries are attended and projected part by part.
TEST(Forward, LongItemsGoThroughInParts) {
    LayerCall call = everything("d8_h2_f32_biaskv_sink:b4_q9000_kv5", 30);
    call.causal = ATTNC_CAUSAL_TOP_LEFT;
    call.key_bias = random_array({4, 5}, 8, 1);
    call.query_lengths = {{4}, {9000, 4097, 8192, 60}};
    const FakeResult got = run_fake(call);
    EXPECT_TRUE(matches(call, got, 16));
    EXPECT_TRUE(equal_bits(got, run_fake(call, {.executor = FakeExecutor::kThreads, .concurrency = 3})));
    call.probs = false;  // those that are only averaged need statistics of all parts
    FakeResult averaged = run_fake(call);
    averaged.probs = got.probs;
    EXPECT_TRUE(equal_bits(got, averaged));
    for (int64_t b = 0; b < 4; ++b) EXPECT_TRUE(matches(item_of(call, b)));

    const FakeResult part = run_fake(random_call("d8_h2_f32:b1_q4096_kv5", 31));
    const FakeResult parts = run_fake(random_call("d8_h2_f32:b1_q40960_kv5", 31));
    EXPECT_TRUE(matches(random_call("d8_h2_f32:b1_q40960_kv5", 31), parts, 16));
    // Queries alone: 36864 rows of 2 heads of 16 features.
    EXPECT_EQ(parts.workspace_bytes - part.workspace_bytes, 36864U * 2 * 16 * sizeof(float));
}

TEST(Forward, EmptySizesSucceed) {
    for (const char* problem : {"d32_h2_f32:b0_q5_kv5", "d32_h2_f32:b2_q0_kv5", "d32_h2_f32:b2_q5_kv0",
                                "d32_h2_f32_noin_noout:b2_q5_kv0"}) {
        LayerCall call = everything(problem, 28);
        EXPECT_TRUE(matches(call));
    }
    EXPECT_EQ(run_fake(random_call("d32_h2_f32:b0_q5_kv5", 28)).workspace_bytes, 0U);
}

TEST(Forward, RunsAtMostAsManyTasksAsAskedFor) {
    LayerCall call = random_call("d32_h2_f32:b8_q40_kv40", 29);
    fake_counts().reset();
    ASSERT_EQ(run_fake(call, {.executor = FakeExecutor::kThreads, .concurrency = 3}).status, ATTNC_OK);
    EXPECT_LE(fake_counts().most_in_flight, 3);
}

TEST(Forward, SetsTheControlWordInEveryTask) {
    LayerCall call = everything("d32_h2_f32:b2_q20_kv20", 30);
    fake_counts().reset();
    ASSERT_EQ(run_fake(call, {.executor = FakeExecutor::kThreads, .concurrency = 4}).status, ATTNC_OK);
    EXPECT_EQ(fake_counts().wrong_control_words, 0);
}

TEST(Forward, UnmaskedCallsUseUnmaskedKernels) {
    fake_counts().reset();
    ASSERT_EQ(run_fake(random_call("d32_h2_f32:b2_q20_kv10", 31)).status, ATTNC_OK);
    EXPECT_EQ(fake_counts().calls[ATTNC_KERNEL_ATTEND_MASKED], 0);
    EXPECT_EQ(fake_counts().calls[ATTNC_KERNEL_ATTEND_GUARDED], 0);
    EXPECT_EQ(fake_counts().calls[ATTNC_KERNEL_ATTEND_MERGE], 0);
}

TEST(Forward, RandomCallsMatchTheReference) {
    Random random(99);
    for (int round = 0; round < 150; ++round) {
        Config config;
        config.num_kv_heads = random.between(1, 3);
        config.num_heads = config.num_kv_heads * random.between(1, 3);
        config.d_model = random.between(1, 40);
        config.head_dim = random.between(1, 40);
        config.v_head_dim = random.chance(0.5) ? config.head_dim : random.between(1, 40);
        config.in_proj = random.chance(0.6), config.out_proj = random.chance(0.6);
        if (!config.in_proj && !config.out_proj) config.d_model = 0;
        if (config.in_proj && random.chance(0.3)) config.k_dim = random.between(1, 20);
        if (config.in_proj && random.chance(0.3)) config.v_dim = random.between(1, 20);
        config.causal = random.chance(0.2);
        config.bias_kv = config.in_proj && random.chance(0.2), config.zero_attn = random.chance(0.2);
        config.sink = random.chance(0.3);
        const Sizes sizes{random.between(1, 4), random.between(1, 50), random.between(0, 50)};
        LayerCall call = random_call(config, sizes, static_cast<uint64_t>(round));
        call.probs = random.chance(0.5), call.probs_averaged = random.chance(0.5),
        call.lse = random.chance(0.5);
        const auto shape = [&]() -> std::vector<int64_t> {
            return {random.chance(0.5) ? 1 : sizes.batch, random.chance(0.5) ? 1 : call.config.num_heads,
                    random.chance(0.5) ? 1 : sizes.seq_q, random.chance(0.2) ? 1 : sizes.seq_kv};
        };
        const auto seed = static_cast<uint64_t>(round);
        if (random.chance(0.3)) call.keep_mask = random_mask(shape(), seed, 0.7);
        if (random.chance(0.3)) call.drop_mask = random_mask(shape(), seed + 1, 0.2);
        if (random.chance(0.3)) call.bias = random_array(shape(), seed + 2, 2);
        if (random.chance(0.2)) call.key_keep_mask = random_mask({sizes.batch, sizes.seq_kv}, seed, 0.8);
        if (random.chance(0.2)) call.key_bias = random_array({sizes.batch, sizes.seq_kv}, seed, 2);
        if (random.chance(0.5)) {
            call.key_lengths = filled<int64_t>({sizes.batch}, 0);
            for (auto& n : call.key_lengths.values) n = random.between(0, sizes.seq_kv);
        }
        if (random.chance(0.5)) {
            call.query_lengths = filled<int64_t>({sizes.batch}, 0);
            for (auto& n : call.query_lengths.values) n = random.between(0, sizes.seq_q);
        }
        call.causal = static_cast<attnc_causal>(random.between(0, 3));
        call.empty_rows = static_cast<attnc_empty_rows>(random.between(0, 3));
        if (random.chance(0.3)) call.qk_scale = 0.3F;
        if (random.chance(0.3)) call.window_left = random.between(0, 30);
        if (random.chance(0.3)) call.window_right = random.between(0, 30);
        FakeOptions options;
        options.layout = {0, 16 * random.between(1, 4), random.between(1, 40), random.between(1, 20)};
        const int64_t qk = padded_head(call.config.head_dim), v = padded_head(call.config.v_head_dim);
        if (config.in_proj && (qk % 32 != 0 || v % 32 != 0 || random.chance(0.5))) options.layout.panel = 16;
        if (config.in_proj && qk == v && random.chance(0.3)) options.layout.panel = 2 * qk;
        options.rank4 = !config.in_proj && random.chance(0.5);
        options.row_gap = random.between(0, 3), options.item_gap = random.between(0, 3);
        options.wide_lengths = random.chance(0.5);
        options.executor = static_cast<FakeExecutor>(random.between(0, 3));
        options.concurrency = options.executor == FakeExecutor::kNone ? 1 : random.between(1, 6);
        EXPECT_TRUE(matches(call, options)) << "round " << round;
    }
}

}  // namespace
}  // namespace attnc::test
