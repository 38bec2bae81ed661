// Calls of a layer on a device that isn't there: kernels in plain C++, launched through the stand-in for the driver.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/driver/stand_in.h"
#include "tests/support/fake_run.h"

namespace attnc::test {

// A process that has just begun, with one device; at the end nothing is left and no rule is broken.
class DeviceTest : public ::testing::Test {
protected:
    void SetUp() override { begin(); }
    void TearDown() override {
        EXPECT_EQ(stand_in::faults(), std::vector<std::string>());
        EXPECT_EQ(stand_in::live(), stand_in::Live());
        stand_in::reset();
    }
    static void begin(const std::vector<stand_in::DeviceSpec>& devices = {{}});
};

// A layer and one call of it, step by step.
class DeviceCallRun {
    const LayerCall call_;

public:
    explicit DeviceCallRun(LayerCall call);
    ~DeviceCallRun();
    DeviceCallRun(const DeviceCallRun&) = delete;
    DeviceCallRun& operator=(const DeviceCallRun&) = delete;

    attnc_status create(const char* target = "cuda");  // done by the constructor
    attnc_status launch();                             // workspace and forward
    attnc_status wait();
    attnc_status forward();  // both
    void destroy() { layer.reset(); }
    FakeResult result() const;

    // Functions that the last launch() launched, "attend" for _kernel_attend; and how often one of them.
    std::vector<std::string> functions() const { return functions_; }
    int64_t launched(const std::string& function) const;

    FakeLibrary library;
    LayerPointer layer;
    attnc_inputs inputs;
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    attnc_run run = ATTNC_RUN_INIT;
    attnc_error error = {};
    attnc_status status = ATTNC_OK;  // of create

private:
    static FakeLayout layout();
    attnc_tensor room(std::vector<float>& values, std::vector<int64_t> shape);
    std::vector<float> out_, probs_, averaged_, lse_, scores_;
    std::vector<std::string> functions_;
    void* workspace_ = nullptr;
};

}  // namespace attnc::test
