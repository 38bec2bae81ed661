// The runtime's side of a device, over kernels in plain C++ and a stand-in for the driver: what a layer there computes.
#include <gtest/gtest.h>

#include <optional>

#include "tests/cuda/driver/stand_in.h"
#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

class DeviceForward : public ::testing::Test {
protected:
    void SetUp() override {
        stand_in::reset();
        for (const FakeDeviceFunction& f : fake_device_functions()) stand_in::set_code(f.name, f.code);
    }
    void TearDown() override {
        EXPECT_EQ(stand_in::faults(), std::vector<std::string>());
        EXPECT_EQ(stand_in::live(), stand_in::Live());
    }
};

FakeOptions on_device() {
    FakeOptions options;
    options.device = true;
    return options;
}

TEST_F(DeviceForward, MatchesTheReferenceForManyShapes) {
    for (const char* problem :
         {"d32_h2_f32:b1_q1_kv1", "d32_h2_f32:b2_q7_kv9", "d48_h3_f32:b3_q17_kv16", "d10_h5_f32:b1_q5_kv33",
          "d36_h4_f32:b2_q31_kv3", "d64_h8_f32:b1_q9_kv65", "d20_h4_kv2_f32:b2_q6_kv20",
          "d32_h2_hd20_vhd7_f32:b2_q8_kv8", "d32_h2_kdim12_vdim40_f32:b2_q8_kv18", "d1_h1_f32:b1_q1_kv1",
          "d32_h4_kv1_hd16_vhd16_f32:b1_q40_kv40", "d32_h2_f32_noin_noout:b2_q7_kv19",
          "d32_h2_f32_noin:b2_q5_kv5", "d32_h2_f32_noout:b2_q7_kv19"}) {
        EXPECT_TRUE(matches(everything(problem, 1), on_device()));
    }
}

}  // namespace
}  // namespace attnc::test
