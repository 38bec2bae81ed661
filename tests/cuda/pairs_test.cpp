// Probabilities and scores of a GPU: a number for each query and key.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attend_masked_64.h"
#include "attend_probs_64.h"
#include "attend_probs_64_shared.h"
#include "attend_scores_64.h"
#include "attend_scores_64_shared.h"
#include "average_probs.h"
#include "runtime/attnc.h"
#include "runtime/kernel_abi.h"
#include "support/tolerance.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

Floats pairs_of(const AttentionOperands& in) {
    const AttentionSpec& spec = in.spec;
    return filled<float, Halide::Runtime::AnyDims>(
        {in.seq_kv, in.seq_q, spec.heads, static_cast<int>(spec.items.size())}, kNan);
}

Floats probs_of(decltype(&attend_probs_64) kernel, AttentionOperands& in,
                attnc_empty_rows empty_rows = ATTNC_EMPTY_ROWS_ZERO) {
    AttentionResults attended = call_masked(attend_masked_64, in);
    Floats probs = pairs_of(in);
    EXPECT_EQ(kernel(in.q, in.k, in.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias, in.bias,
                     in.keep_mask, in.drop_mask, in.key_blocks, in.spec.mask_flags, attended.row_stats,
                     empty_rows, in.spec.softcap, in.alibi_slopes, probs),
              0);
    EXPECT_EQ(probs.copy_to_host(), 0);
    return probs;
}

Floats scores_of(decltype(&attend_scores_64) kernel, AttentionOperands& in) {
    Floats scores = pairs_of(in);
    EXPECT_EQ(
        kernel(in.q, in.k, in.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias, in.bias, in.keep_mask,
               in.drop_mask, in.key_blocks, in.spec.mask_flags, in.spec.softcap, in.alibi_slopes, scores),
        0);
    EXPECT_EQ(scores.copy_to_host(), 0);
    return scores;
}

// A row of one query and head: null where the query doesn't count.
struct PairRow {
    const ExactRow* exact;
    int query, head, item;
    std::string text() const { return fmt::format("item {} head {} query {}", item, head, query); }
};

// Each row: check(row).
template <typename Check>
void for_each_row(const AttentionOperands& in, const Check& check) {
    for (int b = 0; b < static_cast<int>(in.spec.items.size()); ++b) {
        for (int h = 0; h < in.spec.heads; ++h) {
            for (int i = 0; i < in.seq_q; ++i) {
                const bool counts = i < in.spec.items[static_cast<size_t>(b)].queries;
                const ExactRow row = counts ? exact_row(in, b, h, i) : ExactRow{};
                check(PairRow{.exact = counts ? &row : nullptr, .query = i, .head = h, .item = b});
            }
        }
    }
}

double score_of(const ExactRow& row, int key) {
    return key < static_cast<int>(row.scores.size()) ? row.scores[static_cast<size_t>(key)] : kMinusInfinity;
}

AttentionTerms terms_of(const AttentionOperands& in, const ExactRow& row) {
    return {.head_dim = in.spec.head_dim,
            .score_steps = score_steps((in.spec.mask_flags & ATTNC_MASK_SOFTCAP) != 0,
                                       (in.spec.mask_flags & ATTNC_MASK_ALIBI) != 0),
            .keys = 64,
            .blocks = (in.seq_kv + 63) / 64 + 1,
            .scores = row.magnitude,
            .values = row.values};
}

// What a row that sees no key has for a key.
float empty_value(const AttentionOperands& in, attnc_empty_rows empty_rows, int item, int key) {
    const int keys = in.spec.items[static_cast<size_t>(item)].keys;
    if (empty_rows == ATTNC_EMPTY_ROWS_NAN) return kNan;
    return empty_rows == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES && key < keys ? 1.0F / static_cast<float>(keys) : 0;
}

// The rows that see no key, if all are right.
int check_probs(const AttentionOperands& in, const Floats& probs, attnc_empty_rows empty_rows) {
    int empty = 0;
    for_each_row(in, [&](const PairRow& row) {
        const bool is_empty = row.exact != nullptr && row.exact->sum == 0;
        empty += is_empty ? 1 : 0;
        for (int j = 0; j < in.seq_kv; ++j) {
            const float got = probs(j, row.query, row.head, row.item);
            const double score = row.exact != nullptr ? score_of(*row.exact, j) : kMinusInfinity;
            if (is_empty) {
                const float want = empty_value(in, empty_rows, row.item, j);
                ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
                    << in.spec.text() << row.text() << " sees no key, and has " << got << " for key " << j;
            } else if (std::isinf(score)) {
                ASSERT_EQ(got, 0) << in.spec.text() << row.text() << ": dropped key " << j;
            } else {
                ASSERT_LE(std::fabs(got - std::exp(score - row.exact->largest) / row.exact->sum),
                          probs_error_bound(terms_of(in, *row.exact)))
                    << in.spec.text() << row.text() << ": key " << j;
            }
        }
    });
    return empty;
}

TEST(GpuAttendProbs, AgreeWithFloat64) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : masked_specs(64, 64)) {
        AttentionOperands in(spec);
        check_probs(in, probs_of(attend_probs_64, in), ATTNC_EMPTY_ROWS_ZERO);
    }
}

TEST(GpuAttendProbs, OfRowsThatSeeNoKeyAreWhatThePolicySays) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const attnc_empty_rows empty_rows : {ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, ATTNC_EMPTY_ROWS_NAN}) {
        int empty = 0;
        for (const AttentionSpec& spec : masked_specs(64, 64)) {
            AttentionOperands in(spec);
            empty += check_probs(in, probs_of(attend_probs_64, in, empty_rows), empty_rows);
        }
        EXPECT_GT(empty, 20);
    }
}

TEST(GpuAttendProbs, HaveTheSameBitsWithoutARace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : masked_specs(64, 64)) {
        AttentionOperands in(spec);
        EXPECT_TRUE(same_bits(probs_of(attend_probs_64, in), probs_of(attend_probs_64_shared, in)))
            << spec.text();
    }
}

TEST(GpuAttendScores, AgreeWithFloat64) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : masked_specs(64, 64)) {
        AttentionOperands in(spec);
        const Floats scores = scores_of(attend_scores_64, in);
        for_each_row(in, [&](const PairRow& row) {
            for (int j = 0; j < in.seq_kv; ++j) {
                const double got = scores(j, row.query, row.head, row.item);
                if (row.exact == nullptr) {
                    ASSERT_EQ(got, 0) << spec.text() << row.text() << " does not count";
                    continue;
                }
                const double want = score_of(*row.exact, j);
                if (std::isinf(want)) {
                    ASSERT_EQ(got, want) << spec.text() << row.text() << ": dropped key " << j;
                    continue;
                }
                const AttentionTerms terms = terms_of(in, *row.exact);
                ASSERT_LE(std::fabs(got - want), score_error_bound(64, terms.score_steps, terms.scores, 0))
                    << spec.text() << row.text() << ": key " << j;
            }
        });
    }
}

TEST(GpuAttendScores, HaveTheSameBitsWithoutARace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : masked_specs(64, 64)) {
        AttentionOperands in(spec);
        EXPECT_TRUE(same_bits(scores_of(attend_scores_64, in), scores_of(attend_scores_64_shared, in)))
            << spec.text();
    }
}

TEST(GpuAverageProbs, AreTheMeanOverTheHeads) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const std::vector<int>& extents :
         {std::vector{1, 1, 1, 1}, std::vector{129, 5, 8, 3}, std::vector{300, 2, 3, 1}}) {
        Floats probs = random_floats(extents, 1, 1),
               averaged(std::vector{extents[0], extents[1], extents[3]});
        probs.set_host_dirty();
        ASSERT_EQ(average_probs(probs, averaged), 0);
        ASSERT_EQ(averaged.copy_to_host(), 0);
        const int heads = extents[2];
        averaged.for_each_element([&](int j, int i, int b) {
            double sum = 0, magnitude = 0;
            for (int h = 0; h < heads; ++h) {
                sum += double{probs(j, i, h, b)};
                magnitude += std::fabs(double{probs(j, i, h, b)});
            }
            // Each sum, the reciprocal and the product are rounded.
            const double bound = kSecondOrder * kUnitRoundoff * (heads + 1) * magnitude / heads;
            ASSERT_LE(std::fabs(averaged(j, i, b) - sum / heads), bound) << "key " << j << " query " << i;
        });
    }
}

}  // namespace
}  // namespace attnc::test
