// The small examples: they run, check themselves, and say what they should.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "run_program.h"

namespace attnc::test {
namespace {

// A float64 computation of the same layer has the root mean square 0.252231.
TEST(CLayer, ReturnsOutAndWeights) {
    const Finished finished = run_program({C_LAYER_PROGRAM});
    EXPECT_EQ(finished.status, 0);
    EXPECT_EQ(finished.err, "");
    EXPECT_EQ(finished.out.rfind("out [32, 50, 512], root mean square 0.25223\n", 0), 0U) << finished.out;
    EXPECT_NE(finished.out.find("\nweights [32, 8, 50, 50], rows sum to 1 within "), std::string::npos)
        << finished.out;
}

TEST(CLayer, IsPlainCOfLessThanSixtyLines) {
    const std::string source = read_text(C_LAYER_SOURCE);
    EXPECT_GT(source.size(), 0U);
    EXPECT_LT(std::count(source.begin(), source.end(), '\n'), 60);
}

TEST(CrossAttention, PaddingDoesNotMatter) {
    const Finished finished = run_program({CROSS_ATTENTION_PROGRAM});
    EXPECT_EQ(finished.status, 0);
    EXPECT_EQ(finished.err, "");
    EXPECT_EQ(finished.out.rfind("decoder: out [3, 7, 256] from seq_kv 50, d_model 320\n", 0), 0U)
        << finished.out;
    EXPECT_NE(finished.out.find("NaN in all padding changes no bit of the result\n"), std::string::npos)
        << finished.out;
}

TEST(CudaLayer, RunsOnTheCpu) {
    const Finished finished = run_program({CUDA_LAYER_PROGRAM, "cpu"});
    EXPECT_EQ(finished.status, 0);
    EXPECT_EQ(finished.err, "");
    EXPECT_EQ(finished.out.rfind("cpu: root mean square 0.", 0), 0U) << finished.out;
}

// On a device the same numbers; without one a line that says what is missing.
TEST(CudaLayer, RunsOnADeviceOrSaysThatThereIsNone) {
    const Finished finished = run_program({CUDA_LAYER_PROGRAM, "cuda"});
    if (finished.status == 0) {
        EXPECT_EQ(finished.err, "");
        EXPECT_EQ(finished.out.rfind("cuda: root mean square 0.", 0), 0U) << finished.out;
        return;
    }
    EXPECT_EQ(finished.status, 1);
    EXPECT_EQ(finished.out, "");
    EXPECT_EQ(finished.err.rfind("cuda_layer: ", 0), 0U) << finished.err;
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
}

TEST(CudaLayer, SaysHowItIsCalled) {
    const Finished finished = run_program({CUDA_LAYER_PROGRAM, "gpu"});
    EXPECT_EQ(finished.status, 2);
    EXPECT_EQ(finished.err, "usage: cuda_layer cpu|cuda\n");
}

TEST(Decoder, WritesTheSameWithACacheAndWithout) {
    const Finished finished = run_program({DECODER_PROGRAM});
    EXPECT_EQ(finished.status, 0);
    EXPECT_EQ(finished.err, "");
    EXPECT_EQ(finished.out.rfind("prompt of 40 tokens, then: ", 0), 0U) << finished.out;
    EXPECT_NE(finished.out.find("\nkeys and values of 64 tokens in "), std::string::npos) << finished.out;
    EXPECT_NE(finished.out.find("\nwithout a cache: the same text\n"), std::string::npos) << finished.out;
}

}  // namespace
}  // namespace attnc::test
