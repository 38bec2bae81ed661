// Attention kernels of a GPU against float64, and their two forms against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attend_128.h"
#include "attend_128_shared.h"
#include "attend_32_48.h"
#include "attend_48_80.h"
#include "attend_48_80_shared.h"
#include "attend_64.h"
#include "attend_64_shared.h"
#include "attend_80.h"
#include "attend_decode_64.h"
#include "attend_decode_64_shared.h"
#include "attend_lse.h"
#include "attend_masked_32_48.h"
#include "attend_masked_64.h"
#include "attend_masked_64_shared.h"
#include "attend_merge_64.h"
#include "attend_merge_64_sink.h"
#include "runtime/kernel_abi.h"
#include "support/tolerance.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

constexpr int kSplit = 128;  // of the decode twins

void expect_exact(const AttendKernel& kernel, int head_dim, int v_head_dim) {
    for (const AttentionSpec& spec : plain_specs(head_dim, v_head_dim)) {
        AttentionOperands in(spec);
        EXPECT_EQ(context_fault(in, call_attend(kernel, in), blocks_of(spec, in.seq_kv)), "");
    }
}

TEST(GpuAttend, AgreesWithFloat64) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_exact(attend_64, 64, 64);
}
TEST(GpuAttend, OfHeadsOfTwoSizesAgrees) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_exact(attend_32_48, 32, 48);
}
TEST(GpuAttend, OfOddHeadsAgrees) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_exact(attend_80, 80, 80);
}
TEST(GpuAttend, OfWideHeadsAgrees) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_exact(attend_128, 128, 128);
}

// Features that the threads of a block go through are more than there are, in keys and in values.
TEST(GpuAttend, OfHeadsWithoutACommonDivisorAgrees) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_exact(attend_48_80, 48, 80);
}

void expect_same_bits(const AttentionResults& a, const AttentionResults& b, const AttentionSpec& spec) {
    EXPECT_TRUE(same_bits(a.context, b.context)) << spec.text();
    EXPECT_TRUE(same_bits(a.row_stats, b.row_stats)) << spec.text();
}

TEST(GpuAttend, HasTheSameBitsWithoutARace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : plain_specs(64, 64)) {
        AttentionOperands in(spec);
        expect_same_bits(call_attend(attend_64, in), call_attend(attend_64_shared, in), spec);
    }
}
TEST(GpuAttend, OfWideHeadsHasTheSameBitsWithoutARace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : plain_specs(128, 128)) {
        AttentionOperands in(spec);
        expect_same_bits(call_attend(attend_128, in), call_attend(attend_128_shared, in), spec);
    }
}

TEST(GpuAttend, OfHeadsWithoutACommonDivisorHasTheSameBitsWithoutARace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : plain_specs(48, 80)) {
        AttentionOperands in(spec);
        expect_same_bits(call_attend(attend_48_80, in), call_attend(attend_48_80_shared, in), spec);
    }
}

void expect_exact_masked(const MaskedKernel& kernel, int head_dim, int v_head_dim) {
    for (const AttentionSpec& spec : masked_specs(head_dim, v_head_dim)) {
        AttentionOperands in(spec);
        EXPECT_EQ(context_fault(in, call_masked(kernel, in), blocks_of(spec, in.seq_kv)), "");
    }
}

TEST(GpuAttendMasked, AgreesWithFloat64) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_exact_masked(attend_masked_64, 64, 64);
}
TEST(GpuAttendMasked, OfHeadsOfTwoSizesAgrees) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_exact_masked(attend_masked_32_48, 32, 48);
}
TEST(GpuAttendMasked, HasTheSameBitsWithoutARace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : masked_specs(64, 64)) {
        AttentionOperands in(spec);
        expect_same_bits(call_masked(attend_masked_64, in), call_masked(attend_masked_64_shared, in), spec);
    }
}
TEST(GpuAttendMasked, WithoutMasksHasTheBitsOfAttend) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const AttentionSpec& spec : plain_specs(64, 64)) {
        AttentionOperands in(spec);
        expect_same_bits(call_attend(attend_64, in), call_masked(attend_masked_64, in), spec);
    }
}

AttentionResults merged(AttentionResults parts, AttentionOperands& in) {
    const AttentionSpec& spec = in.spec;
    AttentionResults out = {
        .context = filled<float, Halide::Runtime::AnyDims>({spec.v_head_dim, spec.heads, in.rows}, -1.0F),
        .row_stats = filled<float, Halide::Runtime::AnyDims>({in.rows, spec.heads, 2}, -1.0F)};
    const int status =
        spec.sinks
            ? attend_merge_64_sink(parts.context, parts.row_stats, in.sinks, out.context, out.row_stats)
            : attend_merge_64(parts.context, parts.row_stats, out.context, out.row_stats);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(out.context.copy_to_host(), 0);
    EXPECT_EQ(out.row_stats.copy_to_host(), 0);
    return out;
}

TEST(GpuAttendDecode, JoinedAgreesWithFloat64) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (AttentionSpec spec : masked_specs(64, 64)) {
        spec.mask_flags &= ~ATTNC_MASK_BLOCKS;  // few queries have none
        AttentionOperands in(spec);
        JoinedBlocks joined = blocks_of(spec, in.seq_kv);
        joined.blocks += (in.seq_kv + kSplit - 1) / kSplit;
        EXPECT_EQ(context_fault(in, merged(call_decode(attend_decode_64, in, kSplit), in), joined), "");
    }
}

// A sink is one more key, also of rows that see no other, and whether the keys come in one part or in several.
TEST(GpuAttendMerge, AddsASinkToEveryRow) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (AttentionSpec spec : masked_specs(64, 64)) {
        spec.mask_flags &= ~ATTNC_MASK_BLOCKS;
        spec.sinks = true;
        AttentionOperands in(spec);
        JoinedBlocks joined = blocks_of(spec, in.seq_kv);
        joined.blocks += (in.seq_kv + kSplit - 1) / kSplit + 1;
        EXPECT_EQ(context_fault(in, merged(call_decode(attend_decode_64, in, kSplit), in), joined), "");
        AttentionResults whole = call_masked(attend_masked_64, in);
        whole.context.add_dimension();
        whole.row_stats.add_dimension();
        EXPECT_EQ(context_fault(in, merged(whole, in), joined), "");
    }
}

TEST(GpuAttendDecode, HasTheSameBitsWithoutARace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (AttentionSpec spec : masked_specs(64, 64)) {
        spec.mask_flags &= ~ATTNC_MASK_BLOCKS;
        AttentionOperands in(spec);
        expect_same_bits(call_decode(attend_decode_64, in, kSplit),
                         call_decode(attend_decode_64_shared, in, kSplit), spec);
    }
}

// Items of more rows than a block of threads has, of none that count, and of rows in the middle of a batch.
TEST(GpuAttendLse, IsTheLogarithmOfTheSumOfRowsThatCount) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const int seq = 200, heads = 2, first_rows[] = {0, 200, 210}, counts[] = {200, 0, 3};
    Ints items = filled<int32_t, Halide::Runtime::AnyDims>({ATTNC_ITEM_COLUMNS, 3}, 0);
    for (int b = 0; b < 3; ++b) {
        items(ATTNC_ITEM_QUERY_ROW, b) = first_rows[b];
        items(ATTNC_ITEM_QUERIES, b) = counts[b];
    }
    Floats stats = filled<float, Halide::Runtime::AnyDims>({213, heads, 2}, 0.0F);
    for (int h = 0; h < heads; ++h) {
        for (int m = 0; m < 213; ++m) {
            const bool empty = m % 7 == 3;
            stats(m, h, 0) = empty ? std::numeric_limits<float>::lowest() : static_cast<float>(m - 100);
            stats(m, h, 1) = empty ? 0 : static_cast<float>(1 + m % 5 + h);
        }
    }
    stats(211, 0, 0) = -1e9F;
    stats(211, 0, 1) = 1;
    stats(212, 1, 1) = std::numeric_limits<float>::quiet_NaN();
    stats.set_host_dirty();
    items.set_host_dirty();
    Floats lse = filled<float, Halide::Runtime::AnyDims>({seq, heads, 3}, 0.0F);
    ASSERT_EQ(attend_lse(stats, items, lse), 0);
    ASSERT_EQ(lse.copy_to_host(), 0);
    lse.for_each_element([&](int i, int h, int b) {
        const int m = first_rows[b] + i;
        const float got = lse(i, h, b);
        if (i >= counts[b]) {
            EXPECT_EQ(got, -kInfinity) << "query " << i << " of item " << b << " does not count";
        } else if (std::isnan(stats(m, h, 1))) {
            EXPECT_TRUE(std::isnan(got));
        } else {
            const double want = stats(m, h, 0) + std::log(double{stats(m, h, 1)});
            if (std::isinf(want)) {
                EXPECT_EQ(got, -kInfinity) << "query " << i << " of item " << b << " sees no key";
            } else {
                EXPECT_NEAR(got, want, 2 * kUnitRoundoff * (std::fabs(want) + 3))
                    << "row " << m << " head " << h;
            }
        }
    });
    EXPECT_EQ(lse(1, 0, 2), -1e9F);
}

}  // namespace
}  // namespace attnc::test
