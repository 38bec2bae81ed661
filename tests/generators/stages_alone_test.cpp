// The stages alone, as generated from their plain definitions.
#include <HalideBuffer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "attention_alone.h"
#include "projection_alone.h"
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

}  // namespace
}  // namespace attnc
