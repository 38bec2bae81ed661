// A library for CPUs and a device where there is no driver: the CPU works, and the device is refused with a sentence.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

TEST(WithoutADriver, TheCpuWorksAndTheDeviceIsRefused) {
    if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) GTEST_SKIP() << "this machine has a CUDA driver";
    const LayerCall call = random_call("d32_h2_f32:b2_q5_kv5", 1);
    FakeLayout layout;
    layout.device = true;
    const FakeLibrary library(call.config, layout);
    attnc_error error = {};
    EXPECT_EQ(make_layer(library, call, &error, "cuda"), nullptr);
    EXPECT_EQ(error.code, ATTNC_NO_DEVICE);
    EXPECT_STREQ(error.text, "there is no CUDA driver: libcuda.so.1 is not found");
    EXPECT_STREQ(attnc_library_target_name(library.get(), 2), "cuda");
    EXPECT_EQ(attnc_library_target_runs(library.get(), 2), 0);
    const LayerPointer layer = make_layer(library, call, &error);
    ASSERT_NE(layer, nullptr) << error.text;
    EXPECT_STREQ(attnc_layer_target(layer.get()), "x86-64-linux");
    FakeOptions options;
    options.layout = layout;
    EXPECT_TRUE(matches(call, options));
}

}  // namespace
}  // namespace attnc::test
