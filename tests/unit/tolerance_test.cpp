#include "support/tolerance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <vector>

#include "support/random.h"

namespace attnc {
namespace {

// The exponential of the kernels, in plain float arithmetic.
float exp_nonpositive(float y) {
    const float x = y * 1.44269504F;
    const float clamped = x < -127.0F ? -127.0F : x;
    const int t = static_cast<int>(clamped);
    const float f = clamped - static_cast<float>(t);
    float p = 9.44903702e-4F;
    for (const float c : {9.20579862e-3F, 5.52973598e-2F, 0.24018015F, 0.693143725F, 1.0F}) p = p * f + c;
    return std::bit_cast<float>(std::bit_cast<int32_t>(p) + t * (1 << 23));
}

struct Row {
    std::vector<float> q, k, v, bias;  // [head_dim], [keys, head_dim], [keys], [keys]
    int64_t head_dim, keys;
};

Row random_row(int64_t head_dim, int64_t keys, float size, uint64_t seed) {
    return {generated(head_dim, seed, size),
            generated(keys * head_dim, seed + 1, size),
            generated(keys, seed + 2, 1),
            generated(keys, seed + 3, size),
            head_dim,
            keys};
}

// One element of the context and lse, as the kernels compute them and exactly.
struct Results {
    float context, lse;
    double exact_context, exact_lse;
    AttentionTerms terms;
};

Results attend(const Row& row) {
    const double scale = 1 / std::sqrt(static_cast<double>(row.head_dim));
    const auto scale_f32 = static_cast<float>(scale);
    const auto keys = static_cast<size_t>(row.keys), features = static_cast<size_t>(row.head_dim);
    Results r{};
    r.terms = {.head_dim = row.head_dim, .keys = row.keys};
    std::vector<float> scores(keys);
    std::vector<double> exact(keys);
    for (size_t j = 0; j < keys; ++j) {
        float sum = 0;
        double exact_sum = 0, magnitude = 0;
        for (size_t d = 0; d < features; ++d) {
            const float q = row.q[d], k = row.k[j * features + d];
            sum += (q * scale_f32) * k;
            exact_sum += double{q} * double{k};
            magnitude += std::fabs(double{q} * double{k});
        }
        scores[j] = sum + row.bias[j];
        exact[j] = exact_sum * scale + double{row.bias[j]};
        r.terms.scores = std::max(r.terms.scores, magnitude * scale + std::fabs(double{row.bias[j]}));
        r.terms.values = std::max(r.terms.values, std::fabs(double{row.v[j]}));
    }
    const float maximum = *std::max_element(scores.begin(), scores.end());
    const double exact_maximum = *std::max_element(exact.begin(), exact.end());
    float sum = 0, context = 0;
    double exact_sum = 0, exact_context = 0;
    for (size_t j = 0; j < keys; ++j) {
        const float weight = exp_nonpositive(scores[j] - maximum);
        const double exact_weight = std::exp(exact[j] - exact_maximum);
        sum += weight;
        context += weight * row.v[j];
        exact_sum += exact_weight;
        exact_context += exact_weight * double{row.v[j]};
    }
    r.context = context * (1 / sum);
    r.lse = maximum + std::log(sum);
    r.exact_context = exact_context / exact_sum;
    r.exact_lse = exact_maximum + std::log(exact_sum);
    return r;
}

TEST(AttentionErrorBound, HoldsForSimulatedRows) {
    for (const int64_t head_dim : {1, 16, 64, 128}) {
        for (const int64_t keys : {1, 2, 50, 700}) {
            for (const float size : {0.25F, 1.0F, 4.0F}) {
                for (uint64_t seed = 1; seed <= 20; ++seed) {
                    const Results r = attend(random_row(head_dim, keys, size, 10 * seed));
                    EXPECT_LE(std::fabs(double{r.context} - r.exact_context), attention_error_bound(r.terms))
                        << "head_dim " << head_dim << " keys " << keys << " size " << size << " seed "
                        << seed;
                    EXPECT_LE(std::fabs(double{r.lse} - r.exact_lse), lse_error_bound(r.terms))
                        << "head_dim " << head_dim << " keys " << keys << " size " << size << " seed "
                        << seed;
                }
            }
        }
    }
}

// A chain whose roundings nearly all go the same way: equal weights below 1, beside the row's maximum.
TEST(AttentionErrorBound, HoldsForRoundingsOfOneSign) {
    for (const int64_t keys : {100, 1000, 4000}) {
        Row row = random_row(1, keys, 0, 1);
        std::fill(row.v.begin(), row.v.end(), 0.7F);
        std::fill(row.bias.begin(), row.bias.end(), -0.3F);
        row.bias[0] = 0;
        const Results r = attend(row);
        EXPECT_LE(std::fabs(double{r.context} - r.exact_context), attention_error_bound(r.terms)) << keys;
        EXPECT_LE(std::fabs(double{r.lse} - r.exact_lse), lse_error_bound(r.terms)) << keys;
    }
}

TEST(AttentionErrorBound, IsTheDocumentedFormula) {
    const AttentionTerms terms{.head_dim = 64, .keys = 50, .scores = 5, .values = 3};
    const double eps = 0x1p-23;
    const double c1 = 50 + 4, c2 = (64 + 10) / 2.0;
    EXPECT_NEAR(attention_error_bound(terms), eps * (c1 + c2 * 5) * 3, 0.02 * eps * (c1 + c2 * 5) * 3);
}

TEST(AttentionErrorBound, GrowsWithEachTerm) {
    const AttentionTerms base{.head_dim = 64, .keys = 50, .blocks = 2, .scores = 5, .values = 3};
    for (const auto bound : {attention_error_bound, lse_error_bound, probs_error_bound}) {
        AttentionTerms more = base;
        more.head_dim = 65;
        EXPECT_GT(bound(more), bound(base));
        more = base;
        more.keys = 51;
        EXPECT_GT(bound(more), bound(base));
        more = base;
        more.blocks = 3;
        EXPECT_GT(bound(more), bound(base));
        more = base;
        more.scores = 6;
        EXPECT_GT(bound(more), bound(base));
        more = base;
        more.score_error = 1e-6;
        EXPECT_GT(bound(more), bound(base));
    }
    AttentionTerms more = base;
    more.value_error = 1e-6;
    EXPECT_GT(attention_error_bound(more), attention_error_bound(base));
    EXPECT_GT(averaged_probs_error_bound(base, 8), probs_error_bound(base));
}

TEST(CanBeIgnored, IsTrueForTheUsualFillValuesOnly) {
    for (const double fill : {-1e4, -1e9, -3.4028234663852886e38}) {
        EXPECT_TRUE(can_be_ignored(fill, -fill, 3, 5, 64)) << fill;
        EXPECT_FALSE(can_be_ignored(fill, -fill, fill + 1, -fill, 64)) << fill;
    }
    EXPECT_FALSE(can_be_ignored(-80, 80, 3, 5, 64));
    EXPECT_TRUE(can_be_ignored(-90, 90, 3, 5, 64));
}

TEST(DotErrorBound, HoldsAndTheRunningOneIsNarrower) {
    for (const int64_t depth : {1, 64, 512, 3072}) {
        for (uint64_t seed = 1; seed <= 20; ++seed) {
            const std::vector<float> x = generated(depth, 2 * seed, 1), w = generated(depth, 2 * seed + 1, 1);
            float sum = 0.1F;
            RunningDot exact(double{0.1F});
            double magnitude = 0.1;
            for (size_t k = 0; k < x.size(); ++k) {
                sum += x[k] * w[k];
                exact.add(x[k], w[k]);
                magnitude += std::fabs(double{x[k]} * double{w[k]});
            }
            const double error = std::fabs(double{sum} - exact.value());
            EXPECT_LE(error, exact.error_bound()) << depth << " seed " << seed;
            EXPECT_LE(error, dot_error_bound(depth, magnitude)) << depth << " seed " << seed;
            if (depth >= 64) {
                EXPECT_LT(exact.error_bound(), dot_error_bound(depth, magnitude));
            }
        }
    }
}

TEST(ProjectedScoreError, IsWhatTheProductsCanMove) {
    // One feature, q = 2 off by 0.5, k = 3 off by 0.25: 2.5 * 3.25 - 6 = 2.125, times the scale.
    EXPECT_DOUBLE_EQ(projected_score_error(0.5, 1, 2, 3, 0.5, 0.25), 0.5 * 2.125);
}

TEST(OutputErrorBound, AddsWhatIsInherited) {
    EXPECT_NEAR(output_error_bound(512, 1e-6, 20, 3e-6), 23e-6, 1e-9);
}

}  // namespace
}  // namespace attnc
