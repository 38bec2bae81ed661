// Faults that users of other attention layers met with sizes, tails, strides and addresses.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/layer_run.h"
#include "tests/harness/libraries.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

class ShapeCases : public TargetTest {
protected:
    RunResult run(const LayerCall& call, Placement placement = Placement::kAtEnd) const {
        RunResult result = run_call(call, {.target = target(), .placement = placement});
        EXPECT_EQ(result.status, ATTNC_OK) << result.error;
        return result;
    }
    // The call's outputs for other views of its inputs.
    RunResult run(const LayerCall& call, const attnc_inputs& inputs) const {
        return run_layer(call.config, call.weights(), inputs, call.empty_rows, 0, {}, {.target = target()});
    }
};
ATTNC_FOR_EACH_TARGET(ShapeCases);

TEST_P(ShapeCases, EmptySizesAreNoDivisionByZero_M17) {
    for (const Sizes sizes : {Sizes{0, 3, 4}, Sizes{2, 0, 4}, Sizes{2, 3, 0}, Sizes{0, 0, 0}}) {
        LayerCall call = random_call(parse_config("d16_h2_f32"), sizes, 17);
        call.probs = call.probs_averaged = call.lse = true;
        const RunResult got = run(call);
        EXPECT_TRUE(matches_reference(call, got, {.target = target()})) << to_string(sizes);
        for (size_t n = 0; n < got.out.size(); ++n)
            EXPECT_EQ(got.out[n], call.bo.values[n % 16]);  // no keys: bo
    }
}

TEST_P(ShapeCases, HeadSizesOfOddMultiplesOfSixteenStayInside_M19) {
    for (const int64_t head_dim : {16, 48, 80, 112, 144}) {
        Config config;
        config.num_heads = 2;
        config.head_dim = head_dim;
        config.in_proj = config.out_proj = false;
        for (const int64_t seq_q : {1, 2}) {
            for (const int64_t seq_kv : {31, 32, 33}) {
                LayerCall call = random_call(config, {1, seq_q, seq_kv}, 19);
                const RunResult got = run(call);
                EXPECT_TRUE(matches_reference(call, got, {.target = target()})) << head_dim;
                EXPECT_TRUE(same_bits(got, run(call, Placement::kAtStart)));
            }
        }
    }
}

TEST_P(ShapeCases, SmallAndUnevenSizesWork_M21) {
    for (int64_t seq = 1; seq <= 33; seq += 4) {
        EXPECT_TRUE(matches_reference(random_call(parse_config("d20_h4_f32"), {1, seq, seq}, 21), target()))
            << seq;
    }
    EXPECT_TRUE(matches_reference(random_call("d1_h1_f32:b1_q1_kv1", 22), target()));
    EXPECT_TRUE(matches_reference(random_call("d1_h1_f32:b1_q1_kv200", 23), target()));
}

// Rows of 36 features 64 apart, with NaN between them.
TEST_P(ShapeCases, PaddingBetweenRowsIsNotRead_M21) {
    LayerCall call = random_call("d36_h4_f32:b1_q3_kv36", 24);
    attnc_inputs in = call.inputs();
    std::vector<std::vector<float>> wide;
    for (attnc_tensor* t : {&in.query, &in.key, &in.value}) {
        std::vector<float> rows(static_cast<size_t>(t->extent[1] * 64),
                                std::numeric_limits<float>::quiet_NaN());
        for (int64_t row = 0; row < t->extent[1]; ++row) {
            std::memcpy(rows.data() + row * 64, static_cast<const float*>(t->data) + row * 36,
                        36 * sizeof(float));
        }
        t->stride[0] = t->extent[1] * 64, t->stride[1] = 64;
        wide.push_back(std::move(rows));
        t->data = wide.back().data();
    }
    EXPECT_TRUE(same_bits(run(call), run(call, in)));
}

TEST_P(ShapeCases, InnerStrideOfTwoIsRefused_M23) {
    LayerCall call = random_call("d16_h2_f32:b1_q4_kv4", 25);
    attnc_inputs in = call.inputs();
    std::vector<float> twice(4 * 16 * 2);
    in.query.data = twice.data();
    in.query.stride[0] = 128, in.query.stride[1] = 32, in.query.stride[2] = 2;
    const RunResult got = run(call, in);
    EXPECT_EQ(got.status, ATTNC_BAD_STRIDE);
    EXPECT_NE(got.error, "");
}

// Query, key and value side by side in one buffer [batch, seq, 3, features], as a fused projection leaves them.
TEST_P(ShapeCases, ViewsOfAFusedBufferAreHonoured_M23) {
    LayerCall call = random_call("d48_h3_f32_noin_noout:b4_q8_kv8", 26);
    std::vector<float> fused(4 * 8 * 3 * 48);
    attnc_inputs in = call.inputs();
    int part = 0;
    for (attnc_tensor* t : {&in.query, &in.key, &in.value}) {
        for (int64_t row = 0; row < 4 * 8; ++row) {
            std::memcpy(fused.data() + (row * 3 + part) * 48, static_cast<const float*>(t->data) + row * 48,
                        48 * sizeof(float));
        }
        t->data = fused.data() + part++ * 48;
        t->stride[0] = 8 * 3 * 48, t->stride[1] = 3 * 48;
    }
    EXPECT_TRUE(same_bits(run(call), run(call, in)));
}

// Every pointer is only as aligned as its element: by 4, 8 and 20 bytes off.
TEST_P(ShapeCases, UnalignedPointersWork_M25) {
    LayerCall call = random_call("d20_h4_f32:b1_q9_kv11", 27);
    call.bias = random_array({1, 4, 9, 11}, 28, 1);
    const RunResult usual = run(call);
    for (const int64_t offset : {1, 2, 5}) {
        std::vector<std::vector<float>> memory;
        const auto shift = [&](attnc_tensor& t) {
            int64_t count = 1;
            for (int n = 0; n < t.rank; ++n) count *= t.extent[n];
            memory.emplace_back(static_cast<size_t>(count + offset));
            std::memcpy(memory.back().data() + offset, t.data, static_cast<size_t>(count) * sizeof(float));
            t.data = memory.back().data() + offset;
        };
        attnc_inputs in = call.inputs();
        attnc_weights w = call.weights();
        for (attnc_tensor* t :
             {&in.query, &in.key, &in.value, &in.bias, &w.wq, &w.wk, &w.wv, &w.wo, &w.bq, &w.bo}) {
            shift(*t);
        }
        // Straight through the API: run_layer would move everything again.
        attnc_error error = {};
        attnc_layer_options options = ATTNC_LAYER_OPTIONS_INIT;
        options.target = target().c_str();
        attnc_layer* layer = nullptr;
        ASSERT_EQ(attnc_layer_create(library_of(call.config), &w, &options, &layer, &error), ATTNC_OK)
            << error.text;
        std::vector<float> out(static_cast<size_t>(9 * 20 + offset));
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = attnc_tensor_3d(ATTNC_F32, out.data() + offset, 1, 9, 20);
        attnc_run how = ATTNC_RUN_INIT;
        EXPECT_EQ(attnc_layer_workspace(layer, &in, &outputs, &how, &how.workspace_bytes, &error), ATTNC_OK)
            << error.text;
        GuardedMemory workspace(how.workspace_bytes, Placement::kAtEnd, 64);
        how.workspace = workspace.data();
        EXPECT_EQ(attnc_layer_forward(layer, &in, &outputs, &how, &error), ATTNC_OK) << error.text;
        attnc_layer_destroy(layer);
        EXPECT_TRUE(same_bits(usual.out, {out.begin() + offset, out.end()})) << offset * 4 << " bytes";
    }
}

TEST_P(ShapeCases, NothingIsReadInFrontOfABuffer_M27) {
    for (const int64_t head_dim : {3, 16, 20}) {
        Config config;
        config.num_heads = 2;
        config.d_model = 2 * head_dim;
        for (int64_t seq = 1; seq <= 17; seq += 2) {
            LayerCall call = random_call(config, {1, seq, seq}, 29);
            EXPECT_TRUE(same_bits(run(call, Placement::kAtStart), run(call, Placement::kAtEnd)))
                << head_dim << ", " << seq;
        }
    }
}

TEST_P(ShapeCases, PaddedSentencesEqualTheirSoloRuns_M40) {
    LayerCall call = random_call("d48_h3_f32:b3_q12_kv12", 40);
    call.key_lengths = call.query_lengths = {{3}, {3, 7, 12}};
    for (const float padding : {0.0F, 1e30F, std::numeric_limits<float>::quiet_NaN()}) {
        for (int64_t item = 0; item < 3; ++item) {
            for (int64_t s = call.key_lengths.at(item); s < 12; ++s) {
                for (int64_t c = 0; c < 48; ++c) {
                    for (auto* tokens : {&call.query, &call.key, &call.value})
                        tokens->at(item, s, c) = padding;
                }
            }
        }
        const RunResult batch = run(call);
        for (int64_t item = 0; item < 3; ++item) {
            const int64_t length = call.key_lengths.at(item);
            LayerCall alone = item_of(call, item);
            alone.sizes = {1, length, length};
            alone.key_lengths = alone.query_lengths = {};
            for (auto* tokens : {&alone.query, &alone.key, &alone.value}) {
                tokens->shape[1] = length;
                tokens->values.resize(static_cast<size_t>(length * 48));
            }
            std::vector<float> want = run(alone).out;
            want.resize(12 * 48, 0.0F);  // rows past the length
            const auto first = batch.out.begin() + item * 12 * 48;
            EXPECT_TRUE(same_bits({first, first + 12 * 48}, want))
                << "padding " << padding << ", item " << item;
        }
    }
}

}  // namespace
}  // namespace attnc::test
