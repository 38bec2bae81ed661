// What the equations of attention imply for any input, within the derived bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "support/tolerance.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/libraries.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

class Attention : public TargetTest {
protected:
    // Bounds of the context's rows, of two results together.
    std::vector<double> twice_the_bounds(const LayerCall& call) const {
        std::vector<double> bounds =
            row_bounds(call.config, call.reference(), key_blocks_of(library_of(call.config), target()))
                .context;
        for (double& bound : bounds) bound *= 2;
        return bounds;
    }
};
ATTNC_FOR_EACH_TARGET(Attention);

TEST_P(Attention, ConstantValuesPassThrough) {
    LayerCall call = random_call("d48_h3_f32_noin_noout:b2_q9_kv37", 1);
    for (int64_t item = 0; item < 2; ++item) {
        for (int64_t key = 0; key < 37; ++key) {
            for (int64_t c = 0; c < 48; ++c) call.value.at(item, key, c) = static_cast<float>(c - 20) / 8;
        }
    }
    const RunResult got = run_call(call, target());
    ASSERT_EQ(got.status, ATTNC_OK) << got.error;
    for (size_t n = 0; n < got.out.size(); ++n) {
        const double constant = (static_cast<double>(n % 48) - 20) / 8;
        // Weights that sum to 1 but for a rounding of each, and a chain of 37 sums.
        ASSERT_NEAR(got.out[n], constant, 2 * (37 + 8) * kUnitRoundoff * std::fabs(constant))
            << "element " << n;
    }
}

TEST_P(Attention, IsLinearInValues) {
    LayerCall call = random_call("d48_h3_f32_noin_noout:b2_q9_kv37", 2);
    LayerCall other = call, sum = call;
    other.value = random_array(call.value.shape, 99, 2);
    // Generated numbers lie on a grid, so 2 a - b is exact.
    for (size_t n = 0; n < sum.value.values.size(); ++n) {
        sum.value.values[n] = 2 * call.value.values[n] - other.value.values[n];
    }
    const RunResult a = run_call(call, target()), b = run_call(other, target()),
                    both = run_call(sum, target());
    const auto bounds_a = twice_the_bounds(call), bounds_b = twice_the_bounds(other),
               bounds = twice_the_bounds(sum);
    for (int64_t item = 0, n = 0; item < 2; ++item) {
        for (int64_t row = 0; row < 9; ++row) {
            for (int64_t c = 0; c < 48; ++c, ++n) {
                const auto at = static_cast<size_t>((item * 3 + c / 16) * 9 + row),
                           e = static_cast<size_t>(n);
                const double want = 2.0 * a.out[e] - static_cast<double>(b.out[e]);
                ASSERT_NEAR(both.out[e], want, bounds_a[at] + bounds_b[at] / 2 + bounds[at] / 2)
                    << "element " << n;
            }
        }
    }
}

TEST_P(Attention, PermutingKeysWithValuesChangesNothing) {
    LayerCall call = random_call("d48_h3_f32_noin_noout:b2_q9_kv37", 3);
    call.keep_mask = filled<uint8_t>({2, 1, 9, 37}, 1);
    call.bias = random_array({1, 3, 9, 37}, 31, 2);
    call.key_bias = random_array({2, 37}, 32, 1);
    for (size_t n = 0; n < call.keep_mask.values.size(); n += 5) call.keep_mask.values[n] = 0;
    call.probs = call.lse = true;

    LayerCall permuted = call;
    const auto from = [](int64_t key) { return key * 8 % 37; };
    for (int64_t key = 0; key < 37; ++key) {
        for (int64_t item = 0; item < 2; ++item) {
            for (int64_t c = 0; c < 48; ++c) {
                permuted.key.at(item, key, c) = call.key.at(item, from(key), c);
                permuted.value.at(item, key, c) = call.value.at(item, from(key), c);
            }
            permuted.key_bias.at(item, key) = call.key_bias.at(item, from(key));
            for (int64_t row = 0; row < 9; ++row) {
                permuted.keep_mask.at(item, 0, row, key) = call.keep_mask.at(item, 0, row, from(key));
            }
        }
        for (int64_t head = 0; head < 3; ++head) {
            for (int64_t row = 0; row < 9; ++row)
                permuted.bias.at(0, head, row, key) = call.bias.at(0, head, row, from(key));
        }
    }
    const RunResult a = run_call(call, target()), b = run_call(permuted, target());
    ASSERT_EQ(a.status, ATTNC_OK) << a.error;
    ASSERT_EQ(b.status, ATTNC_OK) << b.error;
    const RowBounds bounds =
        row_bounds(call.config, call.reference(), key_blocks_of(library_of(call.config), target()));
    for (int64_t row = 0; row < 2 * 3 * 9; ++row) {
        const auto at = static_cast<size_t>(row);
        ASSERT_NEAR(a.lse[at], b.lse[at], 2 * bounds.lse[at]);
        for (int64_t key = 0; key < 37; ++key) {
            ASSERT_NEAR(b.probs[static_cast<size_t>(row * 37 + key)],
                        a.probs[static_cast<size_t>(row * 37 + from(key))], 2 * bounds.probs[at]);
        }
    }
    for (int64_t item = 0, n = 0; item < 2; ++item) {
        for (int64_t row = 0; row < 9; ++row) {
            for (int64_t c = 0; c < 48; ++c, ++n) {
                const double bound = bounds.context[static_cast<size_t>((item * 3 + c / 16) * 9 + row)];
                ASSERT_NEAR(a.out[static_cast<size_t>(n)], b.out[static_cast<size_t>(n)], 2 * bound)
                    << "element " << n;
            }
        }
    }
}

TEST_P(Attention, ProbabilitiesSumToOneAndAreZeroWhereDropped) {
    LayerCall call = random_call("d48_h3_f32:b2_q33_kv65", 4);
    call.keep_mask = filled<uint8_t>({2, 3, 33, 65}, 1);
    for (size_t n = 0; n < call.keep_mask.values.size(); ++n) call.keep_mask.values[n] = n % 3 != 0 ? 255 : 0;
    call.key_lengths = {{2}, {65, 40}};
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    call.probs = call.probs_averaged = call.lse = true;
    const RunResult got = run_call(call, target());
    ASSERT_TRUE(matches_reference(call, got, {.target = target()}));
    const Reference want = call.reference();
    const RowBounds bounds = row_bounds(call.config, want, key_blocks_of(library_of(call.config), target()));
    for (int64_t row = 0; row < 2 * 3 * 33; ++row) {
        double sum = 0;
        for (int64_t key = 0; key < 65; ++key) {
            const auto n = static_cast<size_t>(row * 65 + key);
            sum += got.probs[n];
            ASSERT_GE(got.probs[n], 0);
            if (want.probs[n] == 0) {
                ASSERT_EQ(got.probs[n], 0) << "row " << row << ", key " << key;
            }
        }
        const bool empty = want.empty_row(row / 99, row / 33 % 3, row % 33);
        ASSERT_NEAR(sum, empty ? 0 : 1, 65 * bounds.probs[static_cast<size_t>(row)]) << "row " << row;
    }
}

TEST_P(Attention, ScaleIsWhatItIsSetTo) {
    LayerCall call = random_call("d48_h3_f32:b1_q17_kv33", 5);
    for (const float scale : {0.3F, 1.0F, -0.25F, 0x1p-10F}) {
        call.qk_scale = scale;
        EXPECT_TRUE(matches_reference(call, target())) << "scale " << scale;
    }
}

TEST_P(Attention, AllOptionsTogetherMatchTheReference) {
    LayerCall call =
        random_call("d40_h4_kv2_hd17_vhd33_kdim24_vdim56_f32_causal_biaskv_zeroattn:b3_q35_kv50", 6);
    call.keep_mask = filled<uint8_t>({3, 1, 35, 50}, 1);
    call.drop_mask = filled<uint8_t>({1, 4, 1, 50}, 0);
    call.bias = random_array({3, 4, 1, 50}, 61, 4);
    call.key_keep_mask = filled<uint8_t>({3, 50}, 1);
    call.key_drop_mask = filled<uint8_t>({3, 50}, 0);
    call.key_bias = random_array({3, 50}, 62, 4);
    call.key_lengths = {{3}, {50, 0, 31}};
    call.query_lengths = {{3}, {35, 20, 0}};
    Random random(63);
    for (auto* mask : {&call.keep_mask, &call.key_keep_mask}) {
        for (uint8_t& element : mask->values) element = random.chance(0.9) ? 1 : 0;
    }
    for (auto* mask : {&call.drop_mask, &call.key_drop_mask}) {
        for (uint8_t& element : mask->values) element = random.chance(0.1) ? 1 : 0;
    }
    call.probs = call.probs_averaged = call.lse = true;
    EXPECT_TRUE(matches_reference(call, target()));
    call.causal = ATTNC_CAUSAL_NONE;
    EXPECT_TRUE(matches_reference(call, target()));
}

}  // namespace
}  // namespace attnc::test
