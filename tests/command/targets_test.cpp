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

TEST(Targets, AreCpusAndADevice) {
    const ChosenTargets usual = choose_targets({});
    EXPECT_EQ(usual.cpus.size(), 3U);
    EXPECT_FALSE(usual.device.has_value());
    EXPECT_EQ(choose_targets({"cpu"}).cpus, usual.cpus);

    const ChosenTargets both = choose_targets({"cuda", "x86-64-linux", "x86-64-linux-avx2"});
    EXPECT_THAT(both.cpus, ElementsAre("x86-64-linux-avx2", "x86-64-linux"));
    ASSERT_TRUE(both.device.has_value());
    EXPECT_EQ(both.device->name, "cuda");
    EXPECT_TRUE(both.device->architectures.empty());
    EXPECT_THAT(layer_targets(both), ElementsAre("x86-64-linux-avx2", "x86-64-linux", "cuda"));

    const ChosenTargets device = choose_targets({"cuda-sm_90", "cuda", "cuda-sm_80"});
    EXPECT_TRUE(device.cpus.empty());
    ASSERT_TRUE(device.device.has_value());
    EXPECT_THAT(device.device->architectures, ElementsAre(80, 90));
}

TEST(Targets, RefusesDevicesThatAreNone) {
    EXPECT_THROW(choose_targets({"cuda-"}), ConfigError);
    EXPECT_THROW(choose_targets({"cuda-sm_"}), ConfigError);
    EXPECT_THROW(choose_targets({"cuda-sm_800"}), ConfigError);
    EXPECT_THROW(choose_targets({"cuda", "cuda"}), ConfigError);
    EXPECT_THROW(choose_targets({"cuda", "opencl"}), ConfigError);
    EXPECT_THROW(choose_targets({"cpu", "x86-64-linux"}), ConfigError);
}

}  // namespace
}  // namespace attnc::test
