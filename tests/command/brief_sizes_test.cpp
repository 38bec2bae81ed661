// Sizes at which candidates are first timed.
#include "compiler/brief_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attnc::test {
namespace {

std::vector<std::string> brief(TunedWork work, const std::vector<std::string>& sizes) {
    std::vector<Sizes> own;
    for (const std::string& text : sizes) own.push_back(parse_sizes(text));
    std::vector<std::string> fewer;
    for (const Sizes& one : brief_sizes(work, own)) fewer.push_back(to_string(one));
    return fewer;
}

TEST(BriefSizes, OfProjectionsHaveSomeHundredRows) {
    const std::vector<std::string> grid = {"b1_q128_kv128", "b1_q512_kv512", "b1_q2048_kv2048",
                                           "b32_q50_kv50"};
    const std::vector<std::string> wanted = {"b1_q128_kv128", "b1_q512_kv512", "b10_q50_kv50"};
    EXPECT_EQ(brief(TunedWork::kProjectInputs, grid), wanted);
    EXPECT_EQ(brief(TunedWork::kProjectOutput, grid), wanted);
    EXPECT_EQ(brief(TunedWork::kProjectInputs, {"b1_q64_kv1500", "b3_q0_kv7"}),
              (std::vector<std::string>{"b1_q64_kv540", "b3_q0_kv7"}));
}

TEST(BriefSizes, OfAttentionHaveAllKeysAndTheSameLastQueries) {
    for (const TunedWork work : {TunedWork::kAttend, TunedWork::kAttendMasked, TunedWork::kAttendProbs}) {
        EXPECT_EQ(brief(work, {"b1_q16_kv16", "b32_q16_kv16", "b32_q50_kv50", "b8_q384_kv384",
                               "b1_q384_kv384", "b1_q197_kv197", "b1_q1500_kv1500"}),
                  (std::vector<std::string>{"b1_q16_kv16", "b8_q16_kv16", "b2_q50_kv50", "b1_q128_kv384",
                                            "b1_q133_kv197", "b1_q156_kv1500"}));
    }
}

TEST(BriefSizes, OfWholeCallsAreTheirOwn) {
    const std::vector<std::string> sizes = {"b32_q50_kv50", "b1_q1_kv1024"};
    EXPECT_EQ(brief(TunedWork::kCall, sizes), sizes);
}

}  // namespace
}  // namespace attnc::test
