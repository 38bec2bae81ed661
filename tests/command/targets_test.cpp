// Targets: which CPU features each needs, and which is better.
#include "compiler/targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/kernel_abi.h"
#include "stages/config.h"

namespace attnc::test {
namespace {

using testing::ElementsAre;

TEST(Targets, FeaturesIncludeWhatTheyImply) {
    EXPECT_EQ(cpu_features("x86-64-linux"), 0);
    EXPECT_THAT(feature_names(cpu_features("x86-64-linux-avx2")), ElementsAre("sse41", "avx", "avx2"));
    EXPECT_THAT(feature_names(cpu_features("x86-64-linux-avx512_skylake")),
                ElementsAre("sse41", "avx", "f16c", "fma", "avx2", "avx512_skylake"));
}

TEST(Targets, AreOrderedBestFirst) {
    EXPECT_THAT(order_targets({"x86-64-linux", "x86-64-linux-avx512_skylake", "x86-64-linux-sse41",
                               "x86-64-linux-avx2-fma-f16c"}),
                ElementsAre("x86-64-linux-avx512_skylake", "x86-64-linux-avx2-fma-f16c", "x86-64-linux-sse41",
                            "x86-64-linux"));
    EXPECT_EQ(order_targets({}).size(), 3U);
}

TEST(Targets, RefusesUnknownOnes) {
    EXPECT_THROW(cpu_features("x86-64-linuxx"), ConfigError);
    EXPECT_THROW(cpu_features("x86-64-linux-"), ConfigError);
    EXPECT_THROW(cpu_features("x86-32-linux"), ConfigError);
    EXPECT_THROW(cpu_features(""), ConfigError);
    EXPECT_THROW(order_targets({"x86-64-linux", "x86-64-linux"}), ConfigError);
}

}  // namespace
}  // namespace attnc::test
