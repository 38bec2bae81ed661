// Attention kernels of a GPU against float64, and their two forms against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "attend_128.h"
#include "attend_128_shared.h"
#include "attend_32_48.h"
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
#include "runtime/kernel_abi.h"
#include "schedules/cuda_params.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

constexpr int kSplit = 128;  // of the decode twins

// Keys of a block of the default schedule, and how many there are.
JoinedBlocks blocks_of(const AttentionSpec& spec, int seq_kv) {
    Config config;
    config.d_model = spec.head_dim;
    config.num_heads = 1;
    config.v_head_dim = spec.v_head_dim;
    const int keys = static_cast<int>(default_cuda_schedule(complete(config)).layout.tile_kv);
    return {.keys = keys, .blocks = (seq_kv + keys - 1) / keys};
}

using AttendKernel = decltype(&attend_64);

void expect_exact(AttendKernel kernel, int head_dim, int v_head_dim) {
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

void expect_exact_masked(MaskedKernel kernel, int head_dim, int v_head_dim) {
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

AttentionResults merged(AttentionResults parts, const AttentionOperands& in) {
    const AttentionSpec& spec = in.spec;
    AttentionResults out = {
        .context = filled<float, Halide::Runtime::AnyDims>({spec.v_head_dim, spec.heads, in.rows}, -1.0F),
        .row_stats = filled<float, Halide::Runtime::AnyDims>({in.rows, spec.heads, 2}, -1.0F)};
    EXPECT_EQ(attend_merge_64(parts.context, parts.row_stats, out.context, out.row_stats), 0);
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

TEST(GpuAttendDecode, HasTheSameBitsWithoutARace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (AttentionSpec spec : masked_specs(64, 64)) {
        spec.mask_flags &= ~ATTNC_MASK_BLOCKS;
        AttentionOperands in(spec);
        expect_same_bits(call_decode(attend_decode_64, in, kSplit),
                         call_decode(attend_decode_64_shared, in, kSplit), spec);
    }
}

TEST(GpuAttendLse, IsTheLogarithmOfTheSum) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    Floats stats = filled<float, Halide::Runtime::AnyDims>({3, 1, 2}, 0.0F);
    stats(0, 0, 0) = 2;
    stats(0, 0, 1) = 3;
    stats(1, 0, 0) = -3.4e38F;
    stats(1, 0, 1) = 0;
    stats(2, 0, 0) = -1e9F;
    stats(2, 0, 1) = 1;
    stats.set_host_dirty();
    Floats lse = filled<float, Halide::Runtime::AnyDims>({3, 1}, 0.0F);
    ASSERT_EQ(attend_lse(stats, lse), 0);
    ASSERT_EQ(lse.copy_to_host(), 0);
    EXPECT_NEAR(lse(0, 0), 3.0986123F, 1e-6F);
    EXPECT_EQ(lse(1, 0), -std::numeric_limits<float>::infinity());
    EXPECT_EQ(lse(2, 0), -1e9F);
}

}  // namespace
}  // namespace attnc::test
