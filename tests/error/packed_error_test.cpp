// Packed batches used wrongly, by status and exact sentence.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "tests/error/spoilt_calls.h"

namespace attnc::test {
namespace {

// The 4 items of 5 queries and 7 keys of the call, packed.
struct PackedForward : Forward {
    std::array<int64_t, 5> q_starts{0, 5, 10, 15, 20};
    std::array<int64_t, 5> kv_starts{0, 7, 14, 21, 28};

    PackedForward() {
        in.query = attnc_tensor_2d(ATTNC_F32, in.query.data, 20, 32);
        in.key = attnc_tensor_2d(ATTNC_F32, in.key.data, 28, 32);
        in.value = attnc_tensor_2d(ATTNC_F32, in.value.data, 28, 32);
        in.query_cu_seqlens = attnc_tensor_1d(ATTNC_I64, q_starts.data(), 5);
        in.key_cu_seqlens = attnc_tensor_1d(ATTNC_I64, kv_starts.data(), 5);
        out.out = attnc_tensor_2d(ATTNC_F32, out_data.data(), 20, 32);
    }
};

Failure spoilt(const std::function<void(PackedForward&)>& spoil) {
    PackedForward f;
    spoil(f);
    return f.both();
}

TEST(PackedErrors, TheUnspoiltOneSucceeds) {
    PackedForward f;
    EXPECT_EQ(f.forward(), (Failure{ATTNC_OK, ""}));
}

TEST(PackedErrors, StartsNeverFallAndStayWithinTheRows) {
    EXPECT_EQ(spoilt([](PackedForward& f) { f.q_starts[2] = 4; }),
              (Failure{ATTNC_BAD_VALUE, "query_cu_seqlens[2] is 4, wanted 5 to 20"}));
    EXPECT_EQ(spoilt([](PackedForward& f) { f.q_starts[0] = -1; }),
              (Failure{ATTNC_BAD_VALUE, "query_cu_seqlens[0] is -1, wanted 0 to 20"}));
    EXPECT_EQ(spoilt([](PackedForward& f) { f.kv_starts[4] = 29; }),
              (Failure{ATTNC_BAD_VALUE, "key_cu_seqlens[4] is 29, wanted 21 to 28"}));
}

TEST(PackedErrors, BothSidesArePackedOrNone) {
    EXPECT_EQ(spoilt([](PackedForward& f) { f.in.key_cu_seqlens = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "key_cu_seqlens is missing"}));
    EXPECT_EQ(spoilt([](PackedForward& f) { f.in.query_cu_seqlens = {}; }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "key_cu_seqlens is given, but query_cu_seqlens is missing"}));
    EXPECT_EQ(spoilt([](PackedForward& f) { f.in.key = f.in.value = {}; }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "key_cu_seqlens is given, but key is missing"}));
}

TEST(PackedErrors, ShapesAndTypes) {
    EXPECT_EQ(spoilt([](PackedForward& f) { f.in.query_cu_seqlens.dtype = ATTNC_F32; }),
              (Failure{ATTNC_BAD_DTYPE, "query_cu_seqlens has type f32, wanted i32 or i64"}));
    EXPECT_EQ(
        spoilt([](PackedForward& f) { f.in.key_cu_seqlens.extent[0] = 4; }),
        (Failure{ATTNC_BAD_EXTENT, "key_cu_seqlens has extent 4 in dimension 0 (batch + 1), wanted 5"}));
    EXPECT_EQ(spoilt([](PackedForward& f) { f.in.query_cu_seqlens.extent[0] = 0; }),
              (Failure{ATTNC_BAD_EXTENT, "query_cu_seqlens has no element, wanted batch + 1"}));
    EXPECT_EQ(spoilt([](PackedForward& f) { f.in.query_cu_seqlens.data = nullptr; }),
              (Failure{ATTNC_NULL_ARGUMENT, "the data of query_cu_seqlens is null"}));
    EXPECT_EQ(
        spoilt([](PackedForward& f) { f.in.query = attnc_tensor_3d(ATTNC_F32, f.in.query.data, 4, 5, 32); }),
        (Failure{ATTNC_BAD_RANK, "query has rank 3, wanted 2 [rows, d_model]"}));
    EXPECT_EQ(
        spoilt([](PackedForward& f) { f.out.out = attnc_tensor_3d(ATTNC_F32, f.out_data.data(), 4, 5, 32); }),
        (Failure{ATTNC_BAD_RANK, "out has rank 3, wanted 2 [rows of query, d_model]"}));
}

TEST(PackedErrors, LengthsAreThoseOfTheItem) {
    const std::array<int64_t, 4> lengths{7, 7, 8, 7};
    EXPECT_EQ(
        spoilt([&](PackedForward& f) { f.in.key_lengths = attnc_tensor_1d(ATTNC_I64, lengths.data(), 4); }),
        (Failure{ATTNC_BAD_VALUE, "key_lengths[2] is 8, wanted 0 to 7"}));
}

}  // namespace
}  // namespace attnc::test
