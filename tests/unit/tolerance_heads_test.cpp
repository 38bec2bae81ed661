// The bounds for normalised and rotated heads against float32 arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/random.h"
#include "support/tolerance.h"

namespace attnc {
namespace {

// A head that is off by known amounts: exact values, float32 ones, and bounds on the difference.
struct Head {
    std::vector<double> exact, errors;
    std::vector<float> values;
};

Head random_head(int64_t head_dim, float size, double relative_error, uint64_t seed) {
    Head head;
    const std::vector<float> exact = generated(head_dim, seed, size);
    const std::vector<float> off = generated(head_dim, seed + 1, 1);
    for (size_t d = 0; d < exact.size(); ++d) {
        const double error = relative_error * double{size};
        head.exact.emplace_back(exact[d]);
        head.values.push_back(static_cast<float>(double{exact[d]} + 0.99 * error * double{off[d]}));
        head.errors.push_back(error + kUnitRoundoff * std::fabs(double{head.values.back()}));
    }
    return head;
}

TEST(NormError, HoldsForErrorsSmallAndAsLargeAsTheHead) {
    for (const int64_t head_dim : {1, 3, 64, 512}) {
        for (const double relative : {0.0, 1e-6, 1e-2, 2.0}) {
            for (uint64_t seed = 1; seed <= 40; ++seed) {
                const double epsilon = seed % 2 == 0 ? 1e-6 : 0.25;
                const Head head = random_head(head_dim, 0.5F, relative, 10 * seed);
                const std::vector<float> weight = generated(head_dim, 10 * seed + 5, 2);
                const auto features = static_cast<double>(head_dim);
                double squares = 0, square_errors = 0;
                float sum = 0;
                for (size_t d = 0; d < head.values.size(); ++d) {
                    squares += head.exact[d] * head.exact[d];
                    square_errors += head.errors[d] * head.errors[d];
                    sum += head.values[d] * head.values[d];
                }
                const double root = std::sqrt(squares / features + epsilon);
                const NormError bound(head_dim, root, std::sqrt(square_errors / features), epsilon);
                const float factor = 1.0F / std::sqrt(sum + static_cast<float>(epsilon * features));
                for (size_t d = 0; d < head.values.size(); ++d) {
                    const double w = weight[d];
                    const auto scaled = static_cast<float>(w * std::sqrt(features));
                    const float got = head.values[d] * factor * scaled;
                    const double want = head.exact[d] / root * w;
                    EXPECT_LE(std::fabs(double{got} - want),
                              bound.of_feature(head.exact[d], head.errors[d], w))
                        << head_dim << ", errors " << relative << ", seed " << seed;
                }
            }
        }
    }
}

TEST(NormError, OfAnExactHeadIsAFewRoundings) {
    const NormError bound(64, 1, 0, 1e-6);
    EXPECT_LE(bound.of_feature(1, 0, 1), 40 * kUnitRoundoff);
    // An error of one feature alone: itself over the root, and what it does to the root.
    const double error = 1e-3;
    EXPECT_NEAR(NormError(64, 1, error / 8, 1e-6).of_feature(1, error, 1), error * (1 + 1.0 / 8), 1e-5);
}

TEST(RotationError, HoldsForEveryAngle) {
    for (const double magnitude : {1.0, 0.25, 1.5}) {
        for (const double relative : {0.0, 1e-5}) {
            for (uint64_t seed = 1; seed <= 500; ++seed) {
                const Head head = random_head(2, 3, relative, 3 * seed);
                const double angle = static_cast<double>(seed) * 1000.25;
                const double cos = magnitude * std::cos(angle), sin = magnitude * std::sin(angle);
                const auto c = static_cast<float>(cos), s = static_cast<float>(sin);
                const float got = head.values[0] * c - head.values[1] * s;
                const double want = head.exact[0] * cos - head.exact[1] * sin;
                const double bound =
                    rotation_error(head.exact[0], head.errors[0], head.exact[1], head.errors[1], cos, sin,
                                   rotary_table_error(angle, magnitude));
                EXPECT_LE(std::fabs(double{got} - want), bound) << "angle " << angle;
            }
        }
    }
}

TEST(RotaryTableError, GrowsWithThePosition) {
    EXPECT_NEAR(rotary_table_error(0, 1), 1.02 * kUnitRoundoff, 1e-12);
    EXPECT_LT(rotary_table_error(1e6, 1), 1.05 * kUnitRoundoff);
    EXPECT_GT(rotary_table_error(0x1p31, 1), 10 * kUnitRoundoff);
    EXPECT_EQ(rotary_table_error(5, 2), 2 * rotary_table_error(5, 1));
}

TEST(ScoreErrorBound, CountsTheChainAndTheSteps) {
    const double u = kUnitRoundoff;
    EXPECT_NEAR(score_error_bound(64, 0, 2, 0), 68 * 2 * u, 0.02 * 68 * 2 * u);
    EXPECT_NEAR(score_error_bound(64, score_steps(true, true), 2, 1e-3), 81 * 2 * u + 1e-3, 2e-5);
}

}  // namespace
}  // namespace attnc
