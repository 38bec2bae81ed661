// A layer of a model: its library and its weights, by the command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/safetensors.h"
#include "tests/command/run_attnc.h"
#include "tests/unit/model_files.h"

namespace attnc::test {
namespace {

using testing::HasSubstr;

constexpr const char* kMistral =
    R"({"model_type": "mistral", "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1,
        "num_hidden_layers": 2, "sliding_window": 8, "rope_theta": 20000.0})";

class Weights : public testing::Test {
protected:
    void SetUp() override {
        folder_.write("config.json", kMistral);
        tensors_.add(begin_ + "q_proj.weight", {32, 32});
        tensors_.add(begin_ + "k_proj.weight", {16, 32});
        tensors_.add(begin_ + "v_proj.weight", {16, 32});
        tensors_.add(begin_ + "o_proj.weight", {32, 32});
        tensors_.write(folder_ / "model.safetensors", StoredType::kBF16);
    }

    CommandResult weights(const std::string& layer) const {
        return run_attnc({"weights", "--hf-config", folder_ / "config.json", "--layer", layer, "--checkpoint",
                          folder_.path(), "-o", folder_ / "layer.safetensors"});
    }

    const std::string begin_ = "model.layers.1.self_attn.";
    ModelFolder folder_;
    MadeUpTensors tensors_;
};

TEST_F(Weights, AreWrittenWithTheLayersSettings) {
    const CommandResult result = weights("decoder.self.1");
    EXPECT_EQ(
        result.output,
        "format: attnc-layer-1\nlayer: decoder.self.1\nmodel_type: mistral\n"
        "problem: d32_h2_kv1_f32_causal_rope_cache\nrotary_base: 20000\nrotary_dim: 16\nwindow_left: 7\n");
    EXPECT_EQ(result.exit_code, 0);
    const SafetensorsFile file(folder_ / "layer.safetensors");
    EXPECT_EQ(file.metadata().at("window_left"), "7");
    EXPECT_EQ(file.to_f32(file.at("wk")), tensors_[begin_ + "k_proj.weight"]);
    EXPECT_EQ(file.at("wk").type, StoredType::kF32);
}

TEST_F(Weights, OfAMissingLayerWriteNothing) {
    const CommandResult result = weights("0");
    EXPECT_EQ(result.output,
              "attnc: " + folder_ / "model.safetensors" +
                  ": no tensor 'layers.0.self_attn.q_proj.weight', with or without a prefix\n");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(names_in(folder_.path()), testing::ElementsAre("config.json", "model.safetensors"));
}

TEST_F(Weights, NeedANumber) {
    const CommandResult result = weights("decoder.self");
    EXPECT_EQ(result.output, "attnc: " + folder_ / "config.json" +
                                 ": no number of a layer is given, as in decoder.self.0\n");
    EXPECT_EQ(result.exit_code, 2);
}

// What a library supports beside what the model computes is the caller's choice.
TEST_F(Weights, HaveALibraryThatTheSameFileDescribes) {
    folder_.write("gpt2.json", R"({"model_type": "gpt2", "n_embd": 32, "n_head": 2, "n_layer": 2})");
    const CommandResult result = run_attnc(
        {"build", "--hf-config", folder_ / "gpt2.json", "--layer", "decoder.self", "--no-cache", "--no-masks",
         "--no-probs", "--target", "x86-64-linux", "--name", "small", "-o", folder_ / "out"});
    EXPECT_EQ(result.output, "");
    ASSERT_EQ(result.exit_code, 0);
    EXPECT_THAT(contents(folder_ / "out/small.json"), HasSubstr("\"d32_h2_f32_causal_nomask_noprobs\""));
}

TEST_F(Weights, APageSizeNeedsTheCache) {
    const CommandResult result = run_attnc({"build", "--hf-config", folder_ / "config.json", "--no-cache",
                                            "--page-size", "16", "-o", folder_ / "out"});
    EXPECT_EQ(result.output, "attnc: a page size needs a cache\n");
    EXPECT_EQ(result.exit_code, 2);
}

}  // namespace
}  // namespace attnc::test
