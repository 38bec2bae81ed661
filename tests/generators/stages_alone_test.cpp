// The stages alone, as generated from their plain definitions.
#include <HalideBuffer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention_alone.h"
#include "projection_alone.h"
#include "scaled_tanh_alone.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace attnc {
namespace {

template <typename T, int N>
using View = Halide::Runtime::Buffer<T, N>;

// Small whole numbers: every order of summation gives the same floats.
TEST(ProjectionAlone, IsExactOnWholeNumbers) {
    const int depth = 19, columns = 7, rows = 5;
    std::vector<float> x(depth * rows), w(depth * columns), b(columns), y(columns * rows);
    for (size_t n = 0; n < x.size(); ++n) x[n] = static_cast<float>(n % 11) - 5;
    for (size_t n = 0; n < w.size(); ++n) w[n] = static_cast<float>(n % 7) - 3;
    for (size_t n = 0; n < b.size(); ++n) b[n] = static_cast<float>(n);
    View<float, 2> x_view(x.data(), depth, rows), w_view(w.data(), depth, columns),
        y_view(y.data(), columns, rows);
    View<float, 1> b_view(b.data(), columns);
    ASSERT_EQ(projection_alone(x_view, w_view, b_view, y_view), 0);
    for (int m = 0; m < rows; ++m) {
        for (int n = 0; n < columns; ++n) {
            float want = b_view(n);
            for (int k = 0; k < depth; ++k) want += x_view(k, m) * w_view(k, n);
            EXPECT_EQ(y_view(n, m), want) << "row " << m << " column " << n;
        }
    }
}

TEST(AttentionAlone, AgreesWithFloat64) {
    const int dim = 5, queries = 7, keys = 9, heads = 2, batch = 2;
    const float scale = 0.5F;
    std::vector<float> q = generated(dim * queries * heads * batch, 1, 2);
    std::vector<float> k = generated(dim * keys * heads * batch, 2, 2);
    std::vector<float> v = generated(dim * keys * heads * batch, 3, 1);
    std::vector<uint8_t> keep(static_cast<size_t>(keys * queries * heads * batch));
    for (size_t n = 0; n < keep.size(); ++n) keep[n] = n % 3 != 0 ? 1 : 0;
    std::vector<float> context(q.size(), -1.0F);
    View<float, 4> q_view(q.data(), dim, queries, heads, batch), k_view(k.data(), dim, keys, heads, batch);
    View<float, 4> v_view(v.data(), dim, keys, heads, batch);
    View<float, 4> context_view(context.data(), dim, queries, heads, batch);
    View<uint8_t, 4> keep_view(keep.data(), keys, queries, heads, batch);
    for (int j = 0; j < keys; ++j) keep_view(j, 3, 1, 1) = 0;  // a row without a permitted key
    ASSERT_EQ(attention_alone(q_view, k_view, v_view, keep_view, scale, context_view), 0);

    for (int b = 0; b < batch; ++b) {
        for (int h = 0; h < heads; ++h) {
            for (int i = 0; i < queries; ++i) {
                AttentionTerms terms{.head_dim = dim, .keys = keys};
                std::vector<double> sums(dim);
                double total = 0;
                for (int j = 0; j < keys; ++j) {
                    if (keep_view(j, i, h, b) == 0) continue;
                    double score = 0, magnitude = 0;
                    for (int d = 0; d < dim; ++d) {
                        const double term =
                            double{q_view(d, i, h, b)} * double{k_view(d, j, h, b)} * double{scale};
                        score += term;
                        magnitude += std::fabs(term);
                    }
                    const double weight = std::exp(score);
                    total += weight;
                    for (int d = 0; d < dim; ++d) {
                        sums[static_cast<size_t>(d)] += weight * double{v_view(d, j, h, b)};
                        terms.values = std::max(terms.values, std::fabs(double{v_view(d, j, h, b)}));
                    }
                    terms.scores = std::max(terms.scores, magnitude);
                }
                for (int d = 0; d < dim; ++d) {
                    const double want = total > 0 ? sums[static_cast<size_t>(d)] / total : 0;
                    // Halide's exp is within 6 ulp = 12 units; the bound has 5 for the kernels' own, and 7 more here.
                    const double bound =
                        attention_error_bound(terms) + 7 * kSecondOrder * kUnitRoundoff * terms.values;
                    EXPECT_LE(std::fabs(double{context_view(d, i, h, b)} - want), bound)
                        << "item " << b << " head " << h << " query " << i << " feature " << d;
                }
            }
        }
    }
}

// One float in 509 from 2^-13 scale to 20 scale, of both signs: 6 roundings, where docs/numerics.md counts 10.
TEST(ScaledTanhAlone, HasASmallRelativeErrorNearZeroToo) {
    for (const float scale : {1.0F, 0.3F, 30.0F, 50.0F}) {
        std::vector<float> x;
        for (uint32_t bits = std::bit_cast<uint32_t>(std::ldexp(scale, -13));
             bits < std::bit_cast<uint32_t>(20 * scale); bits += 509) {
            x.push_back(std::bit_cast<float>(bits) * (bits % 2 == 0 ? 1.0F : -1.0F));
        }
        std::vector<float> y(x.size());
        View<float, 1> x_view(x.data(), static_cast<int>(x.size())),
            y_view(y.data(), static_cast<int>(y.size()));
        ASSERT_EQ(scaled_tanh_alone(x_view, scale, y_view), 0);
        double worst = 0;
        for (size_t n = 0; n < x.size(); ++n) {
            const double want = double{scale} * std::tanh(double{x[n]} / double{scale});
            worst = std::max(worst, std::fabs(double{y[n]} - want) / std::fabs(want));
        }
        EXPECT_LE(worst, 6 * kUnitRoundoff) << "scale " << scale;
    }
}

TEST(ScaledTanhAlone, KeepsNanAndTheEnds) {
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> x = {
        std::numeric_limits<float>::quiet_NaN(), infinity, -infinity, 3e38F, -3e38F, 0, 1e-30F};
    x.resize(16);
    std::vector<float> y(16);
    View<float, 1> x_view(x.data(), 16), y_view(y.data(), 16);
    ASSERT_EQ(scaled_tanh_alone(x_view, 30.0F, y_view), 0);
    EXPECT_TRUE(std::isnan(y[0]));
    y.erase(y.begin());
    y.resize(6);
    EXPECT_EQ(y, (std::vector<float>{30, -30, 30, -30, 0, 1e-30F}));
}

}  // namespace
}  // namespace attnc
