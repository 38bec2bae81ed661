// Soft caps, ALiBi, block masks and scores used wrongly, by status and exact sentence.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include "tests/error/spoilt_calls.h"

namespace attnc::test {
namespace {

constexpr const char* kAll = "d32_h2_f32_alibi_softcap:b1_q1_kv1";

Failure spoilt(const std::function<void(Creation&)>& spoil, const char* problem = kAll) {
    Creation c(problem);
    c.options = c.call.options();
    spoil(c);
    return c.run();
}

TEST(SoftcapErrors, Values) {
    const auto with = [](float softcap) { return spoilt([&](Creation& c) { c.options.softcap = softcap; }); };
    EXPECT_EQ(with(0), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(with(0x1p126F), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(with(0x1p-126F), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(with(0x1p127F), (Failure{ATTNC_BAD_VALUE, "softcap is outside 2^-126 to 2^126"}));
    EXPECT_EQ(with(0x1p-127F), (Failure{ATTNC_BAD_VALUE, "softcap is outside 2^-126 to 2^126"}));
    EXPECT_EQ(with(-1), (Failure{ATTNC_BAD_VALUE, "softcap is negative, wanted 0 or more"}));
    EXPECT_EQ(with(std::numeric_limits<float>::infinity()),
              (Failure{ATTNC_BAD_VALUE, "softcap is not finite"}));
    EXPECT_EQ(with(std::numeric_limits<float>::quiet_NaN()),
              (Failure{ATTNC_BAD_VALUE, "softcap is not finite"}));
}

TEST(SoftcapErrors, ALibraryWithout) {
    EXPECT_EQ(
        spoilt([](Creation& c) { c.options.softcap = 30; }, "d32_h2_f32:b1_q1_kv1"),
        (Failure{ATTNC_NOT_SUPPORTED, "softcap is given, but the library was compiled without softcap"}));
}

TEST(AlibiErrors, Slopes) {
    EXPECT_EQ(spoilt([](Creation& c) { c.weights.alibi_slopes = {}; }), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(spoilt([](Creation& c) { c.weights.alibi_slopes.extent[0] = 3; }),
              (Failure{ATTNC_BAD_EXTENT, "alibi_slopes has extent 3 in dimension 0 (num_heads), wanted 2"}));
    const auto with = [](float slope) {
        return spoilt([&](Creation& c) { static_cast<float*>(c.weights.alibi_slopes.data)[1] = slope; });
    };
    EXPECT_EQ(with(0), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(with(-0.5F), (Failure{ATTNC_BAD_VALUE, "alibi_slopes[1] is negative, wanted 0 or more"}));
    EXPECT_EQ(with(std::numeric_limits<float>::infinity()),
              (Failure{ATTNC_BAD_VALUE, "alibi_slopes[1] is not finite"}));
    EXPECT_EQ(with(std::numeric_limits<float>::quiet_NaN()),
              (Failure{ATTNC_BAD_VALUE, "alibi_slopes[1] is not finite"}));
}

TEST(AlibiErrors, ALibraryWithout) {
    const float slopes[2] = {};
    EXPECT_EQ(
        spoilt([&](Creation& c) { c.weights.alibi_slopes = attnc_tensor_1d(ATTNC_F32, slopes, 2); },
               "d32_h2_f32:b1_q1_kv1"),
        (Failure{ATTNC_NOT_SUPPORTED, "alibi_slopes is given, but the library was compiled without alibi"}));
}

// A call of 40 queries and 70 keys with a block mask and scores, to spoil.
struct MaskedForward : Forward {
    std::vector<uint8_t> blocks = std::vector<uint8_t>(size_t{4 * 2 * 3 * 5}, 1);
    std::vector<float> scores = std::vector<float>(size_t{4 * 2 * 40 * 70}, 7);

    explicit MaskedForward(std::string_view problem = "d32_h2_f32_scores:b4_q40_kv70") : Forward(problem) {
        in.block_keep_mask = attnc_tensor_4d(ATTNC_U8, blocks.data(), 4, 2, 3, 5);
        in.block_q = in.block_kv = 16;
        out.scores = attnc_tensor_4d(ATTNC_F32, scores.data(), 4, 2, 40, 70);
        out.scores_stage = ATTNC_SCORES_BIASED;
    }
};

Failure spoilt_call(const std::function<void(MaskedForward&)>& spoil) {
    MaskedForward f;
    spoil(f);
    const Failure failure = f.both();
    if (failure.status != ATTNC_OK) {
        for (const float score : f.scores) EXPECT_EQ(score, 7);
    }
    return failure;
}

TEST(BlockMaskErrors, TheUnspoiltOneSucceeds) {
    EXPECT_EQ(spoilt_call([](MaskedForward&) {}), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) {
                  f.in.block_keep_mask = attnc_tensor_4d(ATTNC_U8, f.blocks.data(), 1, 1, 3, 3);
                  f.in.block_kv = 32;
              }),
              (Failure{ATTNC_OK, ""}));
}

TEST(BlockMaskErrors, BlockSizes) {
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.in.block_q = 0; }),
              (Failure{ATTNC_BAD_VALUE, "block_q is 0, wanted a multiple of 16 above 0"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.in.block_q = -16; }),
              (Failure{ATTNC_BAD_VALUE, "block_q is -16, wanted a multiple of 16 above 0"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.in.block_kv = 24; }),
              (Failure{ATTNC_BAD_VALUE, "block_kv is 24, wanted a multiple of 16 above 0"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.in.block_keep_mask = {}; }),
              (Failure{ATTNC_BAD_VALUE, "block_q is 16, but block_keep_mask is not given"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.in.block_keep_mask = {}, f.in.block_q = 0; }),
              (Failure{ATTNC_BAD_VALUE, "block_kv is 16, but block_keep_mask is not given"}));
}

TEST(BlockMaskErrors, ShapesAndTypes) {
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.in.block_kv = 64; }),
              (Failure{ATTNC_BAD_EXTENT,
                       "block_keep_mask has extent 5 in dimension 3 (seq_kv / block_kv), wanted 2"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.in.block_keep_mask.extent[2] = 1; }),
              (Failure{ATTNC_BAD_EXTENT,
                       "block_keep_mask has extent 1 in dimension 2 (seq_q / block_q), wanted 3"}));
    EXPECT_EQ(
        spoilt_call([](MaskedForward& f) { f.in.block_keep_mask.extent[0] = 2; }),
        (Failure{ATTNC_BAD_EXTENT, "block_keep_mask has extent 2 in dimension 0 (batch), wanted 1 or 4"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) {
                  f.in.block_keep_mask = attnc_tensor_2d(ATTNC_U8, f.blocks.data(), 3, 5);
              }),
              (Failure{ATTNC_BAD_RANK,
                       "block_keep_mask has rank 2, wanted 4 [batch, num_heads, seq_q / block_q, "
                       "seq_kv / block_kv]"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.in.block_keep_mask.dtype = ATTNC_F32; }),
              (Failure{ATTNC_BAD_DTYPE, "block_keep_mask has type f32, wanted u8"}));
    MaskedForward without_data;  // whose sizes are right
    without_data.in.block_keep_mask.data = nullptr;
    EXPECT_EQ(without_data.forward(), (Failure{ATTNC_NULL_ARGUMENT, "the data of block_keep_mask is null"}));
}

TEST(BlockMaskErrors, ALibraryWithout) {
    MaskedForward f("d32_h2_f32_nomask_scores:b4_q40_kv70");
    EXPECT_EQ(f.both(), (Failure{ATTNC_NOT_SUPPORTED,
                                 "block_keep_mask is given, but the library was compiled without masks"}));
}

TEST(ScoresErrors, Stages) {
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.out.scores_stage = ATTNC_SCORES_NOT_GIVEN; }),
              (Failure{ATTNC_BAD_VALUE, "scores_stage is not given, but scores is"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) {
                  const int stage = 4;
                  std::memcpy(&f.out.scores_stage, &stage, sizeof stage);
              }),
              (Failure{ATTNC_BAD_VALUE, "scores_stage is 4, wanted 0 to 3"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.out.scores = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "scores_stage is 3, but scores is missing"}));
}

TEST(ScoresErrors, ShapesAndOverlaps) {
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.out.scores.extent[3] = 71; }),
              (Failure{ATTNC_BAD_EXTENT, "scores has extent 71 in dimension 3 (seq_kv), wanted 70"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.out.scores.dtype = ATTNC_F16; }),
              (Failure{ATTNC_BAD_DTYPE, "scores has type f16, wanted f32"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.out.scores.stride[2] = 69; }),
              (Failure{ATTNC_BAD_STRIDE,
                       "scores has stride 69 in dimension 2, wanted 70 or more so that elements "
                       "do not overlap"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.out.scores.data = f.out_data.data(); }),
              (Failure{ATTNC_OVERLAP, "out overlaps scores"}));
    EXPECT_EQ(spoilt_call([](MaskedForward& f) { f.in.block_keep_mask.data = f.scores.data(); }),
              (Failure{ATTNC_OVERLAP, "scores overlaps block_keep_mask"}));
    MaskedForward in_workspace;
    in_workspace.out.scores.data = in_workspace.workspace.get();
    EXPECT_EQ(in_workspace.forward(), (Failure{ATTNC_OVERLAP, "scores overlaps the workspace"}));
}

TEST(ScoresErrors, ALibraryWithout) {
    MaskedForward f("d32_h2_f32:b4_q40_kv70");
    EXPECT_EQ(f.both(), (Failure{ATTNC_NOT_SUPPORTED,
                                 "scores is asked for, but the library was compiled without scores"}));
}

}  // namespace
}  // namespace attnc::test
