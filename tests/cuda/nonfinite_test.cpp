// NaN and infinity in keys and values of a GPU call: they reach the rows that depend on them, and no others.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "attend_64.h"
#include "attend_decode_64.h"
#include "attend_guarded_64.h"
#include "attend_guarded_64_plain.h"
#include "attend_guarded_64_shared.h"
#include "attend_masked_64.h"
#include "attend_suspects_64.h"
#include "runtime/kernel_abi.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kDropped = 1;       // key 1, whose bias is -infinity
constexpr int kSeenBySome = 100;  // dropped for some queries by mask and diagonal
constexpr int kFeature = 5;       // of the value that is not finite
constexpr int kSplit = 128;

AttentionSpec spec_of_two_items() {
    AttentionSpec spec;
    spec.heads = 4;
    spec.kv_heads = 2;
    spec.items = {{.queries = 40, .rows = 40, .keys = 210, .key_rows = 210, .last = 90},
                  {.queries = 70, .rows = 70, .keys = 300, .key_rows = 300}};
    spec.mask_flags = ATTNC_MASK_KEY_BIAS | ATTNC_MASK_KEEP;
    return spec;
}

// Of item 0: a key that nobody sees, and a value that some see.
AttentionOperands spoilt(const AttentionSpec& spec, float value) {
    AttentionOperands in(spec);
    for (int h = 0; h < spec.kv_heads; ++h) {
        for (int d = 0; d < spec.head_dim; ++d) in.k(d, in.k_row(0, kDropped), h) = kNan;
        for (int d = 0; d < spec.v_head_dim; ++d) in.v(d, in.k_row(0, kDropped), h) = kNan;
    }
    in.v(kFeature, in.k_row(0, kSeenBySome), 0) = value;
    in.k.set_host_dirty();
    in.v.set_host_dirty();
    return in;
}

int has_nonfinite(const AttentionOperands& in, const Floats& context, int head, int item) {
    for (int i = 0; i < in.spec.items[static_cast<size_t>(item)].queries; ++i) {
        for (int d = 0; d < in.spec.v_head_dim; ++d) {
            if (!std::isfinite(context(d, head, in.q_row(item, i)))) return 1;
        }
    }
    return 0;
}

Ints suspects_of(AttentionOperands& in, const AttentionResults& attended) {
    Floats context = attended.context;
    Ints suspects(std::vector<int>{in.spec.heads, static_cast<int>(in.spec.items.size())});
    EXPECT_EQ(attend_suspects_64(context, in.items, in.seq_q, suspects), 0);
    EXPECT_EQ(suspects.copy_to_host(), 0);
    return suspects;
}

using GuardedKernel = decltype(&attend_guarded_64);

AttentionResults attend_with_repair(GuardedKernel guarded, AttentionOperands& in) {
    AttentionResults out = call_masked(attend_masked_64, in);
    Ints suspects = suspects_of(in, out);
    for (int item : {0, 1}) {
        for (int h = 0; h < in.spec.heads; ++h) {
            EXPECT_EQ(has_nonfinite(in, out.context, h, item), item == 0 ? 1 : 0)
                << "head " << h << " item " << item;
            EXPECT_EQ(suspects(h, item), item == 0 ? 1 : 0) << "head " << h << " item " << item;
        }
    }
    EXPECT_EQ(guarded(in.q, in.k, in.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias, in.bias,
                      in.keep_mask, in.drop_mask, in.key_blocks, in.spec.mask_flags, in.v, suspects,
                      in.spec.softcap, in.alibi_slopes, out.context, out.row_stats),
              0);
    EXPECT_EQ(out.context.copy_to_host(), 0);
    EXPECT_EQ(out.row_stats.copy_to_host(), 0);
    return out;
}

// Of a library without masks and steps of scores, where a diagonal drops.
AttentionResults attend_plain_with_repair(AttentionOperands& in) {
    AttentionResults out = call_attend(attend_64, in);
    Ints suspects = suspects_of(in, out);
    EXPECT_EQ(suspects(0, 0), 1);
    EXPECT_EQ(suspects(0, 1), 0);
    EXPECT_EQ(attend_guarded_64_plain(in.q, in.k, in.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias,
                                      in.bias, in.keep_mask, in.drop_mask, in.key_blocks, 0, in.v, suspects,
                                      out.context, out.row_stats),
              0);
    EXPECT_EQ(out.context.copy_to_host(), 0);
    EXPECT_EQ(out.row_stats.copy_to_host(), 0);
    return out;
}

bool equal_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

// Contexts as they are with finite data, but for one feature of the rows that see it.
void expect_spoilt_only_where_seen(const AttentionOperands& in, const Floats& got, const Floats& clean) {
    int spoilt_rows = 0;
    for (int h = 0; h < in.spec.heads; ++h) {
        for (int i = 0; i < in.spec.items[0].queries; ++i) {
            const bool seen = h < 2 && std::isfinite(exact_row(in, 0, h, i).scores[kSeenBySome]);
            spoilt_rows += seen ? 1 : 0;
            for (int d = 0; d < in.spec.v_head_dim; ++d) {
                const float value = got(d, h, in.q_row(0, i));
                if (seen && d == kFeature) {
                    ASSERT_FALSE(std::isfinite(value)) << "head " << h << " query " << i;
                } else {
                    ASSERT_TRUE(equal_bits(value, clean(d, h, in.q_row(0, i))))
                        << "head " << h << " query " << i << " feature " << d << ": " << value;
                }
            }
        }
    }
    EXPECT_GT(spoilt_rows, 10);
    EXPECT_LT(spoilt_rows, 70);
}

TEST(GpuNonfinite, DroppedDataChangesNothingInAttend) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    const AttentionSpec spec = spec_of_two_items();
    AttentionOperands finite(spec);
    const AttentionResults clean = call_masked(attend_masked_64, finite);
    for (const float value : {kNan, kInfinity, -kInfinity}) {
        AttentionOperands in = spoilt(spec, value);
        const AttentionResults got = attend_with_repair(attend_guarded_64, in);
        expect_spoilt_only_where_seen(in, got.context, clean.context);
        EXPECT_TRUE(same_bits(got.row_stats, clean.row_stats));
    }
}

TEST(GpuNonfinite, DroppedDataChangesNothingInAttendWithoutARace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    const AttentionSpec spec = spec_of_two_items();
    AttentionOperands finite(spec), in = spoilt(spec, kNan);
    const AttentionResults clean = call_masked(attend_masked_64, finite),
                           got = attend_with_repair(attend_guarded_64_shared, in);
    expect_spoilt_only_where_seen(in, got.context, clean.context);
    EXPECT_TRUE(same_bits(got.row_stats, clean.row_stats));
}

// What a diagonal alone drops, in a library without masks.
TEST(GpuNonfinite, DroppedDataChangesNothingWithoutMasks) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    AttentionSpec spec = spec_of_two_items();
    spec.mask_flags = 0;
    AttentionOperands finite(spec), in(spec);
    const AttentionResults clean = call_attend(attend_64, finite);
    in.v(kFeature, in.k_row(0, kSeenBySome), 0) = kNan;
    in.v.set_host_dirty();
    const AttentionResults got = attend_plain_with_repair(in);
    expect_spoilt_only_where_seen(in, got.context, clean.context);
    EXPECT_TRUE(same_bits(got.row_stats, clean.row_stats));
}

TEST(GpuNonfinite, DroppedDataChangesNothingInDecode) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    const AttentionSpec spec = spec_of_two_items();
    AttentionOperands finite(spec), in = spoilt(spec, kNan);
    AttentionResults clean = call_decode(attend_decode_64, finite, kSplit);
    AttentionResults got = call_decode(attend_decode_64, in, kSplit);
    expect_spoilt_only_where_seen(in, got.context.sliced(3, kSeenBySome / kSplit),
                                  clean.context.sliced(3, kSeenBySome / kSplit));
    EXPECT_TRUE(same_bits(got.row_stats, clean.row_stats));
}

TEST(GpuNonfinite, KeysThatAreSeenSpoilTheWholeRow) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    const AttentionSpec spec = spec_of_two_items();
    AttentionOperands finite(spec), in(spec);
    in.k(7, in.k_row(1, 250), 0) = kNan;
    in.k.set_host_dirty();
    const AttentionResults clean = call_masked(attend_masked_64, finite),
                           got = call_masked(attend_masked_64, in);
    for (int h = 0; h < spec.heads; ++h) {
        for (int i = 0; i < spec.items[1].queries; ++i) {
            const bool seen = h < 2 && std::isfinite(exact_row(finite, 1, h, i).scores[250]);
            for (int d = 0; d < spec.v_head_dim; ++d) {
                const float value = got.context(d, h, in.q_row(1, i));
                ASSERT_TRUE(seen ? std::isnan(value) : equal_bits(value, clean.context(d, h, in.q_row(1, i))))
                    << "head " << h << " query " << i << " feature " << d << ": " << value;
            }
        }
    }
}

}  // namespace
}  // namespace attnc::test
