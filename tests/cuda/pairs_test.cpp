// Probabilities and scores of a GPU: a number for each query and key.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attend_masked_64.h"
#include "attend_probs_64.h"
#include "attend_probs_64_shared.h"
#include "attend_scores_64.h"
#include "runtime/kernel_abi.h"
#include "support/tolerance.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Floats pairs_of(const AttentionOperands& in) {
    const AttentionSpec& spec = in.spec;
    return filled<float, Halide::Runtime::AnyDims>(
        {in.seq_kv, in.seq_q, spec.heads, static_cast<int>(spec.items.size())}, kNan);
}

Floats probs_of(decltype(&attend_probs_64) kernel, AttentionOperands& in) {
    AttentionResults attended = call_masked(attend_masked_64, in);
    Floats probs = pairs_of(in);
    EXPECT_EQ(kernel(in.q, in.k, in.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias, in.bias,
                     in.keep_mask, in.drop_mask, in.key_blocks, in.spec.mask_flags, attended.row_stats,
                     in.spec.softcap, in.alibi_slopes, probs),
              0);
    EXPECT_EQ(probs.copy_to_host(), 0);
    return probs;
}

Floats scores_of(AttentionOperands& in) {
    Floats scores = pairs_of(in);
    EXPECT_EQ(attend_scores_64(in.q, in.k, in.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias, in.bias,
                               in.keep_mask, in.drop_mask, in.key_blocks, in.spec.mask_flags, in.spec.softcap,
                               in.alibi_slopes, scores),
              0);
    EXPECT_EQ(scores.copy_to_host(), 0);
    return scores;
}

// Each element: check(exact row, key, item, head, query).
template <typename Check>
void for_each_pair(const AttentionOperands& in, const Check& check) {
    for (int b = 0; b < static_cast<int>(in.spec.items.size()); ++b) {
        const GpuItem& item = in.spec.items[static_cast<size_t>(b)];
        for (int h = 0; h < in.spec.heads; ++h) {
            for (int i = 0; i < in.seq_q; ++i) {
                const ExactRow row = i < item.queries ? exact_row(in, b, h, i) : ExactRow{};
                for (int j = 0; j < in.seq_kv; ++j) check(row, j, b, h, i);
            }
        }
    }
}

double score_of(const ExactRow& row, int key) {
    return key < static_cast<int>(row.scores.size()) ? row.scores[static_cast<size_t>(key)]
                                                     : -std::numeric_limits<double>::infinity();
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

TEST(GpuAttendProbs, AgreeWithFloat64) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : masked_specs(64, 64)) {
        AttentionOperands in(spec);
        const Floats probs = probs_of(attend_probs_64, in);
        for_each_pair(in, [&](const ExactRow& row, int j, int b, int h, int i) {
            const double score = score_of(row, j), got = probs(j, i, h, b);
            if (std::isinf(score)) {
                ASSERT_EQ(got, 0) << spec.text() << ": dropped key " << j << " of query " << i;
            } else {
                ASSERT_LE(std::fabs(got - std::exp(score - row.largest) / row.sum),
                          probs_error_bound(terms_of(in, row)))
                    << spec.text() << ": key " << j << " of query " << i;
            }
        });
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
        const Floats scores = scores_of(in);
        for_each_pair(in, [&](const ExactRow& row, int j, int b, int h, int i) {
            const double want = score_of(row, j), got = scores(j, i, h, b);
            if (std::isinf(want)) {
                ASSERT_EQ(got, want) << spec.text() << ": dropped key " << j << " of query " << i;
            } else {
                const AttentionTerms terms = terms_of(in, row);
                ASSERT_LE(std::fabs(got - want), score_error_bound(64, terms.score_steps, terms.scores, 0))
                    << spec.text() << ": key " << j << " of query " << i;
            }
        });
    }
}

}  // namespace
}  // namespace attnc::test
