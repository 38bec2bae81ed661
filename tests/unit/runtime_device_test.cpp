// What a layer on a device computes, over kernels in plain C++ and a stand-in for the driver: the runtime's part of a call.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <limits>
#include <optional>

#include "tests/support/device_fixture.h"

namespace attnc::test {
namespace {

using DeviceForward = DeviceTest;

FakeOptions on_device() {
    FakeOptions options;
    options.device = true;
    return options;
}

TEST_F(DeviceForward, MatchesTheReferenceForManyShapes) {
    for (const char* problem :
         {"d32_h2_f32:b1_q1_kv1", "d32_h2_f32:b2_q7_kv9", "d48_h3_f32:b3_q17_kv16", "d10_h5_f32:b1_q5_kv33",
          "d36_h4_f32:b2_q31_kv3", "d64_h8_f32:b1_q9_kv65", "d20_h4_kv2_f32:b2_q6_kv20",
          "d32_h2_hd20_vhd7_f32:b2_q8_kv8", "d32_h2_kdim12_vdim40_f32:b2_q8_kv18", "d1_h1_f32:b1_q1_kv1",
          "d32_h4_kv1_hd16_vhd16_f32:b1_q40_kv40", "d32_h2_f32_noin_noout:b2_q7_kv19",
          "d32_h2_f32_noin:b2_q5_kv5", "d32_h2_f32_noout:b2_q7_kv19"}) {
        EXPECT_TRUE(matches(everything(problem, 1), on_device()));
    }
}

// Heads that fill panels, straddle them, and are wider than they; weights of odd depth.
TEST_F(DeviceForward, TakesEveryPanel) {
    for (const int64_t panel : {16, 32, 48, 128}) {
        for (const char* problem : {"d96_h3_f32:b2_q5_kv5", "d48_h3_f32:b2_q5_kv5",
                                    "d90_h5_kv1_f32:b1_q3_kv3", "d64_h2_hd20_f32:b2_q5_kv5"}) {
            FakeOptions options = on_device();
            options.layout.device_layout = {.panel = panel, .out_panel = panel, .depth = 24};
            LayerCall call = everything(problem, 2);
            EXPECT_TRUE(matches(call, options)) << panel;
            call.key = {}, call.value = {};
            EXPECT_TRUE(matches(call, options)) << panel;
        }
    }
}

TEST_F(DeviceForward, TakesAnyStrides) {
    for (const char* problem : {"d32_h2_f32:b3_q5_kv20", "d32_h2_f32_noin_noout:b3_q5_kv20",
                                "d10_h2_f32_noin_noout:b3_q5_kv20", "d32_h2_f32_noin:b2_q5_kv5"}) {
        for (const bool rank4 : {false, true}) {
            if (rank4 && parse_problem(problem).config.in_proj) continue;
            for (const int64_t item_gap : {0, 3}) {
                FakeOptions options = on_device();
                options.row_gap = 5, options.item_gap = item_gap, options.rank4 = rank4;
                LayerCall call = everything(problem, 3);
                call.query_lengths.shape = {call.sizes.batch};
                call.query_lengths.values.assign(static_cast<size_t>(call.sizes.batch), 4);
                EXPECT_TRUE(matches(call, options));
            }
        }
    }
}

TEST_F(DeviceForward, TakesOneTensorForSelfAttention) {
    for (const char* problem : {"d32_h2_f32:b2_q20_kv20", "d32_h4_kv2_f32:b2_q20_kv20"}) {
        LayerCall call = everything(problem, 4);
        call.key = {}, call.value = {};
        EXPECT_TRUE(matches(call, on_device()));
        call.key_lengths = {{2}, {13, 20}};
        EXPECT_TRUE(matches(call, on_device()));
        call.query_lengths = {{2}, {20, 6}};
        EXPECT_TRUE(matches(call, on_device()));
        call.key_lengths = {};
        EXPECT_TRUE(matches(call, on_device()));
        LayerCall cross = everything("d32_h2_f32:b2_q20_kv7", 4);
        cross.value = {};
        EXPECT_TRUE(matches(cross, on_device()));
    }
}

TEST_F(DeviceForward, TakesLengths) {
    for (const bool wide : {false, true}) {
        LayerCall call = everything("d32_h2_f32:b5_q20_kv35", 5);
        call.key_lengths = {{5}, {35, 0, 17, 1, 16}};
        call.query_lengths = {{5}, {20, 3, 0, 19, 8}};
        FakeOptions options = on_device();
        options.wide_lengths = wide;
        EXPECT_TRUE(matches(call, options));
        call.key_lengths = {};
        EXPECT_TRUE(matches(call, options));
    }
}

TEST_F(DeviceForward, DoesNotReadPastLengths) {
    LayerCall call = everything("d32_h2_f32:b3_q6_kv20", 6);
    call.key_lengths = {{3}, {20, 5, 17}};
    call.query_lengths = {{3}, {6, 2, 5}};
    const FakeResult clean = run_fake(call, on_device());
    for (int64_t b = 0; b < 3; ++b) {
        for (int64_t n = 0; n < 32; ++n) {
            for (int64_t i = call.query_lengths.at(b); i < 6; ++i) call.query.at(b, i, n) = NAN;
            for (int64_t j = call.key_lengths.at(b); j < 20; ++j) {
                call.key.at(b, j, n) = NAN;
                call.value.at(b, j, n) = INFINITY;
            }
        }
    }
    EXPECT_TRUE(equal_bits(clean, run_fake(call, on_device())));
}

TEST_F(DeviceForward, LengthsOutOfRangeBecomeTheNearest) {
    LayerCall call = everything("d32_h2_f32:b3_q6_kv20", 7);
    call.key_lengths = {{3}, {20, 0, 7}};
    call.query_lengths = {{3}, {0, 6, 5}};
    const FakeResult right = run_fake(call, on_device());
    call.key_lengths = {{3}, {1000, -4, 7}};
    call.query_lengths = {{3}, {-1, 7, 5}};
    EXPECT_TRUE(equal_bits(right, run_fake(call, on_device())));
}

TEST_F(DeviceForward, TakesEveryDiagonalAndWindow) {
    const std::optional<int64_t> none, sides[] = {none, 0, 5, 100};
    for (const char* problem : {"d32_h2_f32:b2_q20_kv20", "d32_h2_f32:b2_q1_kv70", "d32_h2_f32:b2_q40_kv18",
                                "d32_h2_f32_causal:b2_q20_kv44"}) {
        for (const attnc_causal causal : {ATTNC_CAUSAL_NOT_GIVEN, ATTNC_CAUSAL_NONE, ATTNC_CAUSAL_TOP_LEFT,
                                          ATTNC_CAUSAL_BOTTOM_RIGHT, ATTNC_CAUSAL_OFFSET}) {
            for (const auto& left : sides) {
                for (const auto& right : sides) {
                    LayerCall call = everything(problem, 8);
                    call.causal = causal;
                    call.window_left = left, call.window_right = right;
                    if (causal == ATTNC_CAUSAL_OFFSET) call.causal_offsets = {{2}, {-3, 30}};
                    if (left == right) call.probs = false;
                    EXPECT_TRUE(matches(call, on_device())) << causal;
                    call.key_lengths = {{2}, {17, call.sizes.seq_kv}};
                    EXPECT_TRUE(matches(call, on_device())) << causal << " with lengths";
                }
            }
        }
    }
}

TEST_F(DeviceForward, TakesEveryBroadcastOfEveryMask) {
    for (int form = 0; form < 16; ++form) {
        const std::vector<int64_t> shape = {(form & 1) != 0 ? 2 : 1, (form & 2) != 0 ? 3 : 1,
                                            (form & 4) != 0 ? 6 : 1, (form & 8) != 0 ? 20 : 1};
        for (const int kind : {0, 1, 2, 3}) {
            LayerCall call = everything("d48_h3_f32:b2_q6_kv20", 9);
            if (kind == 0 || kind == 3) call.keep_mask = random_mask(shape, 100, 0.8);
            if (kind == 1 || kind == 3) call.drop_mask = random_mask(shape, 101, 0.2);
            if (kind == 2 || kind == 3) {
                call.bias = random_array(shape, 102, 2);
                call.bias.values[0] = -INFINITY;
            }
            FakeOptions options = on_device();
            options.row_gap = kind, options.item_gap = 2;
            EXPECT_TRUE(matches(call, options)) << form << " " << kind;
        }
    }
}

TEST_F(DeviceForward, CombinesMasks) {
    for (const bool per_key : {false, true}) {
        LayerCall call = everything("d48_h3_f32:b2_q20_kv40", 10);
        if (per_key) {
            call.key_keep_mask = random_mask({2, 40}, 4, 0.9);
            call.key_drop_mask = random_mask({2, 40}, 5, 0.1);
        } else {
            call.keep_mask = random_mask({2, 1, 20, 40}, 1, 0.8);
            call.drop_mask = random_mask({1, 3, 1, 40}, 2, 0.1);
        }
        call.bias = random_array({1, 1, 20, 40}, 3, 3);
        call.key_bias = random_array({2, 40}, 6, 3);
        call.key_bias.values[3] = -INFINITY;
        call.block_q = call.block_kv = 16;
        call.block_keep_mask = random_mask({2, 1, 2, 3}, 7, 0.7);
        call.key_lengths = {{2}, {40, 33}};
        call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        EXPECT_TRUE(matches(call, on_device()));
        call.probs = false;  // averaged alone takes another way
        EXPECT_TRUE(matches(call, on_device()));
    }
}

// Of pairs and per key at once, the latter of both ranks, with what differs by item and what doesn't.
TEST_F(DeviceForward, CombinesMasksPerKeyWithMasksOfPairs) {
    for (int form = 0; form < 32; ++form) {
        const auto has = [&](int bit) { return (form & bit) != 0; };
        const int64_t items = has(16) ? 3 : 1;
        for (const char* problem : {"d48_h3_f32:b3_q20_kv40", "d32_h4_kv2_f32:b3_q1_kv70"}) {
            LayerCall call = everything(problem, 30);
            const int64_t queries = call.sizes.seq_q, keys = call.sizes.seq_kv;
            call.key_keep_mask = random_mask({3, keys}, 31, 0.9);
            call.keep_mask = random_mask({items, 1, has(1) ? queries : 1, keys}, 32, 0.9);
            if (has(2)) call.key_drop_mask = random_mask({3, keys}, 33, 0.1);
            if (has(2)) call.drop_mask = random_mask({items, 1, has(4) ? queries : 1, keys}, 34, 0.1);
            if (has(4)) call.key_bias = random_array({3, keys}, 35, 3);
            if (has(8)) call.bias = random_array({items, 1, has(1) ? 1 : queries, keys}, 36, 3);
            if (has(8)) call.bias.values[2] = -INFINITY;
            if (!has(2)) call.key_keep_mask = {};
            call.key_lengths = {{3}, {keys, 33, 0}};
            EXPECT_TRUE(matches(call, on_device())) << form;
        }
    }
}

TEST_F(DeviceForward, TakesBlockMasksOfAnySize) {
    for (const int64_t block_q : {16, 48, 64, 4096}) {
        for (const int64_t block_kv : {16, 32, 80}) {
            for (int form = 0; form < 4; ++form) {
                LayerCall call = everything("d48_h3_f32:b2_q90_kv150", 40);
                const auto blocks = [](int64_t rows, int64_t size) { return (rows + size - 1) / size; };
                call.block_q = block_q, call.block_kv = block_kv;
                call.block_keep_mask = random_mask({(form & 1) != 0 ? 2 : 1, (form & 2) != 0 ? 3 : 1,
                                                    blocks(90, block_q), blocks(150, block_kv)},
                                                   41, 0.6);
                call.key_keep_mask = random_mask({2, 150}, 42, 0.9);
                EXPECT_TRUE(matches(call, on_device())) << block_q << " " << block_kv << " " << form;
            }
        }
    }
}

TEST_F(DeviceForward, MakesTheMasksOfEveryWave) {
    LayerCall call = random_call("d32_h2_f32_noout:b900_q3_kv20", 45);
    call.key_keep_mask = random_mask({900, 20}, 46, 0.8);
    call.keep_mask = random_mask({900, 1, 1, 20}, 47, 0.8);
    call.block_q = 16, call.block_kv = 32;
    call.block_keep_mask = random_mask({900, 2, 1, 1}, 48, 0.8);
    DeviceCallRun run(call);
    ASSERT_EQ(run.forward(), ATTNC_OK) << run.error.text;
    EXPECT_EQ(run.launched("fill_key_bias"), 2);
    EXPECT_EQ(run.launched("fill_key_blocks"), 2);
    EXPECT_TRUE(matches(call, on_device()));
}

TEST_F(DeviceForward, MatchesTheReferenceWithEveryOption) {
    for (const char* problem :
         {"d32_h2_f32_rope:b3_q7_kv9", "d32_h2_f32_ropepairs:b3_q7_kv9", "d32_h2_f32_qknorm:b3_q7_kv9",
          "d64_h4_kv2_hd24_f32_noout_qknorm_rope:b2_q9_kv4", "d36_h3_hd12_f32_noin_noout_rope:b2_q6_kv8",
          "d96_h6_kv2_f32_noin_noout_qknorm_ropepairs:b2_q6_kv8",
          "d64_h2_f32_biaskv_zeroattn_qknorm_rope:b2_q5_kv6", "d32_h2_f32_causal_rope_sink:b2_q20_kv37",
          "d32_h2_f32_softcap_alibi:b2_q7_kv40", "d32_h4_kv2_f32_alibi:b2_q1_kv40",
          "d32_h2_f32_biaskv:b2_q7_kv40", "d32_h2_f32_zeroattn:b3_q1_kv70",
          "d32_h2_f32_biaskv_zeroattn_softcap_sink:b3_q20_kv40", "d32_h2_f32_sink:b2_q1_kv70",
          "d32_h2_f32_nomask_noprobs:b2_q9_kv9", "d32_h2_f32_noin_noout_sink_scores:b2_q5_kv20"}) {
        for (const bool causal : {false, true}) {
            LayerCall call = everything(problem, 11);
            if (causal) call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
            EXPECT_TRUE(matches(call, on_device()));
            call.query_lengths = filled<int64_t>({call.sizes.batch}, call.sizes.seq_q - call.sizes.seq_q / 3);
            call.key_lengths = filled<int64_t>({call.sizes.batch}, call.sizes.seq_kv / 2);
            call.probs = false;
            EXPECT_TRUE(matches(call, on_device()));
        }
    }
}

// A library with an option whose layer has no weights for it.
TEST_F(DeviceForward, DoesWithoutOptionalWeights) {
    for (const char* problem : {"d32_h2_f32_sink:b2_q1_kv70", "d32_h2_f32_sink:b2_q9_kv9",
                                "d32_h2_f32_softcap_alibi:b2_q9_kv20", "d32_h2_f32_qknorm_rope:b2_q9_kv20"}) {
        LayerCall call = everything(problem, 12);
        call.sink = {}, call.alibi_slopes = {}, call.q_norm = {}, call.k_norm = {};
        call.softcap = 0, call.rotary = {}, call.bq = {}, call.bo = {};
        call.causal = ATTNC_CAUSAL_TOP_LEFT;
        EXPECT_TRUE(matches(call, on_device()));
    }
}

TEST_F(DeviceForward, TakesPositionsTablesAndFrequencies) {
    LayerCall call = random_call("d32_h2_f32_rope:b2_q4_kv6", 13);
    call.position_offsets = {{2}, {100, -3}};
    EXPECT_TRUE(matches(call, on_device()));
    call.query_positions = {{2, 4}, {5, 5, -9, 1000000, 0, 3, 2, 2147483647}};
    EXPECT_TRUE(matches(call, on_device()));
    call.key_positions = {{2, 6}, {0, 1, 2, 3, 4, 5, 9, 8, 7, 6, 5, -2147483647}};
    for (const bool wide : {false, true}) {
        FakeOptions options = on_device();
        options.wide_lengths = wide;
        EXPECT_TRUE(matches(call, options));
    }
    call = random_call("d32_h2_f32_rope:b2_q5_kv5", 6);
    call.key = {}, call.value = {};
    call.query_positions = {{2, 5}, {9, 4, 4, 0, 1, 6, 7, 8, 9, 11}};
    EXPECT_TRUE(matches(call, on_device()));
    call.rotary = {};
    call.rotary_cos = random_array({12, 8}, 1, 1), call.rotary_sin = random_array({12, 8}, 2, 1);
    EXPECT_TRUE(matches(call, on_device()));
}

TEST_F(DeviceForward, LeavesEmptyRowsToThePolicy) {
    for (const attnc_empty_rows policy :
         {ATTNC_EMPTY_ROWS_ZERO, ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, ATTNC_EMPTY_ROWS_NAN}) {
        for (const char* problem :
             {"d32_h2_f32:b3_q20_kv9", "d32_h4_kv2_f32:b3_q1_kv40", "d32_h2_f32:b3_q5_kv0"}) {
            LayerCall call = everything(problem, 14);
            call.empty_rows = policy;
            call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
            call.key_lengths = {{3}, {0, call.sizes.seq_kv / 2, call.sizes.seq_kv}};
            EXPECT_TRUE(matches(call, on_device())) << policy;
        }
    }
}

TEST_F(DeviceForward, WritesScoresOfEveryStage) {
    for (const attnc_scores_stage stage :
         {ATTNC_SCORES_SCALED, ATTNC_SCORES_SOFTCAPPED, ATTNC_SCORES_BIASED}) {
        for (const char* problem :
             {"d40_h4_kv2_f32_alibi_softcap_scores:b2_q20_kv40", "d40_h2_f32_nomask_noprobs_scores:b2_q5_kv7",
              "d40_h2_f32_biaskv_zeroattn_softcap_scores:b2_q1_kv40", "d32_h2_f32_scores:b2_q5_kv0"}) {
            LayerCall call = random_call(problem, 15);
            call.key_lengths = {{2}, {call.sizes.seq_kv, call.sizes.seq_kv / 2}};
            call.query_lengths = {{2}, {call.sizes.seq_q, call.sizes.seq_q / 2}};
            call.scores_stage = stage;
            call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
            call.window_left = 6;
            if (call.config.masks) call.key_bias = random_array({2, call.sizes.seq_kv}, 3, 3);
            FakeOptions options = on_device();
            options.row_gap = 3, options.item_gap = 5;
            EXPECT_TRUE(matches(call, options)) << stage;
        }
    }
}

// NaN in a dropped value reaches no row that drops it, and those that see it are all that it reaches.
TEST_F(DeviceForward, NonFiniteDataThatIsDroppedChangesNoBit) {
    LayerCall call = everything("d32_h2_f32:b2_q20_kv40", 16);
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    const FakeResult clean = run_fake(call, on_device());
    fake_device_counts() = {};
    for (int64_t n = 0; n < 32; ++n) call.value.at(1, 30, n) = NAN;
    const FakeResult got = run_fake(call, on_device());
    ASSERT_EQ(got.status, ATTNC_OK);
    EXPECT_EQ(fake_device_counts().heads_done_again, 2);
    for (int64_t n = 0; n < 2 * 20 * 32; ++n) {
        const auto at = static_cast<size_t>(n);
        const bool sees = n >= 20 * 32 && n / 32 % 20 + 20 >= 30;
        if (sees) {
            ASSERT_TRUE(std::isnan(got.out[at])) << n;
        } else {
            ASSERT_EQ(got.out[at], clean.out[at]) << n;
        }
    }
}

// Rows past a length are not projected, and in self-attention Q, K and V are one launch.
TEST_F(DeviceForward, ProjectsOnlyRowsThatCount) {
    LayerCall call = random_call("d64_h2_f32_noout:b4_q32_kv32", 17);
    call.key_lengths = call.query_lengths = {{4}, {8, 8, 8, 8}};
    fake_device_counts() = {};
    EXPECT_TRUE(matches(call, on_device()));
    EXPECT_EQ(fake_device_counts().rows_projected, 3 * 2 * 4 * 8);
}

TEST_F(DeviceForward, LargeBatchesGoThroughTheWorkspaceInWaves) {
    LayerCall call = random_call("d16_h1_f32_noout:b40000_q1_kv1", 18);
    call.lse = true;
    call.key_lengths = filled<int64_t>({40000}, 1);
    call.key_lengths.at(39999) = 0;
    EXPECT_TRUE(matches(call, on_device()));
    LayerCall rows = random_call("d16_h1_f32_nomask:b3_q9000_kv1", 19);
    rows.probs = rows.config.probs;
    EXPECT_TRUE(matches(rows, on_device()));
}

TEST_F(DeviceForward, TakesMoreItemsAndRowsThanAnAxisOfTheGrid) {
    EXPECT_TRUE(matches(random_call("d16_h1_f32_noin_noout:b70000_q1_kv2", 20), on_device()));
    EXPECT_TRUE(matches(random_call("d16_h1_f32_noin_noout:b1_q70000_kv2", 21), on_device()));
}

TEST_F(DeviceForward, ARowsBitsDoNotDependOnTheBatch) {
    LayerCall call = everything("d32_h2_f32:b3_q20_kv40", 22);
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    const FakeResult all = run_fake(call, on_device());
    for (int64_t b = 0; b < 3; ++b) {
        const FakeResult one = run_fake(item_of(call, b), on_device());
        ASSERT_EQ(one.status, ATTNC_OK);
        for (size_t n = 0; n < one.out.size(); ++n)
            ASSERT_EQ(one.out[n], all.out[static_cast<size_t>(b) * one.out.size() + n]);
    }
}

// A mask per key as packed batches have it: of as many keys as there are rows, none of whose last counts.
Array<uint8_t> of_packed_keys(const Array<uint8_t>& mask, int64_t rows) {
    Array<uint8_t> wide = {{mask.shape[0], rows}, {}};
    for (int64_t b = 0; b < mask.shape[0]; ++b) {
        for (int64_t j = 0; j < rows; ++j)
            wide.values.push_back(j < mask.shape[1] ? mask.at(b, j) : uint8_t{1});
    }
    return wide;
}

// Rows of out of a self-attention's items one after another, as many of each as it has keys. Where fewer of them are
// queries that count, lengths say so.
std::vector<float> run_packed_self(const LayerCall& call) {
    const int64_t batch = call.sizes.batch, seq = call.sizes.seq_q, features = call.query.shape[2];
    LayerCall packed = call;
    packed.query_lengths = packed.key_lengths = {};
    Array<float> rows = {{0, features}, {}};
    Array<int64_t> starts = {{batch + 1}, {0}};
    for (int64_t b = 0; b < batch; ++b) {
        const auto first = call.query.values.begin() + b * seq * features;
        rows.values.insert(rows.values.end(), first, first + call.key_lengths.at(b) * features);
        rows.shape[0] += call.key_lengths.at(b);
        starts.values.push_back(rows.shape[0]);
    }
    packed.sizes.batch = 1, packed.sizes.seq_q = packed.sizes.seq_kv = rows.shape[0];
    packed.query = rows;
    for (Array<uint8_t>* mask : {&packed.key_keep_mask, &packed.key_drop_mask})
        if (mask->given()) *mask = of_packed_keys(*mask, rows.shape[0]);
    DeviceCallRun run(packed);
    run.inputs.query_cu_seqlens = starts.view();
    if (call.query_lengths.values != call.key_lengths.values)
        run.inputs.query_lengths = call.query_lengths.view();
    attnc_tensor& out = run.outputs.out;
    out.rank = 2;
    out.extent[0] = out.extent[1], out.extent[1] = out.extent[2];
    out.stride[0] = out.stride[1], out.stride[1] = 1;
    EXPECT_EQ(run.forward(), ATTNC_OK) << run.error.text;
    return run.result().out;
}

void expect_packed_as_padded(const LayerCall& call) {
    const std::vector<float> packed = run_packed_self(call);
    const FakeResult padded = run_fake(call, on_device());
    ASSERT_EQ(padded.status, ATTNC_OK) << padded.error;
    const size_t features = padded.out.size() / (4 * 9);
    size_t row = 0;
    for (size_t b = 0; b < 4; ++b) {
        for (size_t i = 0; i < static_cast<size_t>(call.key_lengths.at(b)); ++i, ++row) {
            for (size_t n = 0; n < features; ++n) {
                ASSERT_EQ(packed.at(row * features + n), padded.out.at((b * 9 + i) * features + n))
                    << to_string(call.config) << " " << b << " " << i;
            }
        }
    }
    ASSERT_EQ(row * features, packed.size());
}

TEST_F(DeviceForward, TakesPackedBatches) {
    for (const char* problem :
         {"d32_h2_f32_noprobs:b4_q9_kv9", "d32_h4_kv2_f32_noprobs_noout:b4_q9_kv9",
          "d32_h2_f32_noprobs_causal:b4_q9_kv9", "d32_h2_f32_noin_noout_noprobs:b4_q9_kv9",
          "d32_h2_f32_noprobs_rope:b4_q9_kv9", "d32_h4_kv2_f32_noprobs_ropepairs_noout:b4_q9_kv9"}) {
        for (const bool masked : {false, true}) {
            LayerCall call = random_call(problem, 23);
            call.key = {}, call.value = {};
            call.query_lengths = call.key_lengths = {{4}, {3, 0, 9, 5}};
            if (masked) call.query_lengths = {{4}, {2, 0, 7, 0}};
            if (masked && call.config.rotary != Rotary::kNone)
                call.position_offsets = {{4}, {1000, -3, 0, 7}};
            if (masked) {
                call.key_keep_mask = random_mask({4, 9}, 1, 0.7);
                call.key_drop_mask = random_mask({4, 9}, 2, 0.3);
                call.block_q = call.block_kv = 32;
                call.block_keep_mask = {{4, 1, 1, 1}, {1, 1, 9, 0}};
            }
            expect_packed_as_padded(call);
        }
    }
}

// Masks whose items or heads are so far apart that a buffer can't have two of them.
TEST_F(DeviceForward, TakesMasksBeyondTwoGigabytes) {
    LayerCall call = random_call("d64_h4_kv2_f32:b2_q5_kv20", 24);
    call.probs = true;
    call.bias = random_array({2, 4, 5, 20}, 1, 3);
    const FakeResult dense = run_fake(call, on_device());
    constexpr int64_t kGap = int64_t{1} << 28;  // floats
    for (const bool heads : {false, true}) {
        const size_t bytes = static_cast<size_t>(heads ? 4 * kGap + 200 : kGap + 500) * sizeof(float);
        void* memory =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        ASSERT_NE(memory, MAP_FAILED);
        DeviceCallRun run(call);
        attnc_tensor& bias = run.inputs.bias;
        bias.data = memory;
        bias.stride[0] = heads ? 100 : kGap, bias.stride[1] = heads ? kGap : 100;
        for (int64_t b = 0; b < 2; ++b) {
            for (int64_t h = 0; h < 4; ++h) {
                std::copy_n(&call.bias.at(b, h, 0, 0), 100,
                            static_cast<float*>(memory) + b * bias.stride[0] + h * bias.stride[1]);
            }
        }
        EXPECT_EQ(run.forward(), ATTNC_OK) << run.error.text;
        EXPECT_EQ(run.launched("attend_masked"), heads ? 8 : 2);
        EXPECT_TRUE(equal_bits(dense, run.result()));
        munmap(memory, bytes);
    }
}

// What the host may not look at isn't there before the work runs.
TEST_F(DeviceForward, ReadsNoLengthsOnTheHost) {
    LayerCall call = random_call("d32_h2_f32_rope:b2_q5_kv20", 25);
    call.causal = ATTNC_CAUSAL_OFFSET;
    call.causal_offsets = {{2}, {3, 9}};
    call.key_lengths = {{2}, {20, 7}}, call.query_lengths = {{2}, {5, 2}};
    call.position_offsets = {{2}, {1, 2}};
    const FakeResult right = run_fake(call, on_device());
    DeviceCallRun run(call);
    const size_t page = 4096;
    auto* memory = static_cast<int64_t*>(
        mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    int64_t* at = memory;
    for (attnc_tensor* t : {&run.inputs.causal_offsets, &run.inputs.key_lengths, &run.inputs.query_lengths,
                            &run.inputs.position_offsets}) {
        std::copy_n(static_cast<const int64_t*>(t->data), 2, at);
        t->data = at;
        at += 2;
    }
    ASSERT_EQ(mprotect(memory, page, PROT_NONE), 0);
    EXPECT_EQ(run.launch(), ATTNC_OK) << run.error.text;
    ASSERT_EQ(mprotect(memory, page, PROT_READ), 0);
    EXPECT_EQ(run.wait(), ATTNC_OK);
    EXPECT_TRUE(equal_bits(right, run.result()));
    munmap(memory, page);
}

}  // namespace
}  // namespace attnc::test
