// Soft caps, ALiBi, block masks and scores used wrongly, by status and exact sentence.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace attnc::test
