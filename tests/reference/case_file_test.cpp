// A case file is understood whole or refused.
#include "support/case_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/random.h"
#include "support/safetensors.h"

namespace attnc {
namespace {

using ::testing::HasSubstr;

// A bare attention of one query and two keys; tests spoil it.
struct CaseText {
    std::map<std::string, std::string> attributes = {
        {"op", "attention"}, {"heads", "1"}, {"head_dim", "1"}, {"batch", "1"},       {"q_len", "1"},
        {"kv_len", "2"},     {"scale", "1"}, {"rtol", "0"},     {"atol.out", "1e-6"}, {"causal", "none"}};
    std::vector<float> q = {1}, k = {0, 0}, v = {1, 3};
    std::vector<double> out = {2};
    int64_t features = 1;
    std::vector<TensorToStore> more;

    std::string path() const { return ::testing::TempDir() + "attnc_case_file_test.safetensors"; }

    CaseFile read() const {
        const auto rows = [&](const std::vector<float>& of, int64_t width) {
            return static_cast<int64_t>(of.size()) / width;
        };
        std::vector<TensorToStore> tensors = {
            {"q", StoredType::kF32, {1, 1, rows(q, features), features}, q.data()},
            {"k", StoredType::kF32, {1, 1, rows(k, features), features}, k.data()},
            {"v", StoredType::kF32, {1, 1, rows(v, 1), 1}, v.data()},
            {"out", StoredType::kF64, {1, 1, 1, 1}, out.data()}};
        tensors.insert(tensors.end(), more.begin(), more.end());
        write_safetensors(path(), attributes, tensors);
        return read_case(path());
    }

    std::string error() const {
        try {
            read();
        } catch (const CaseError& e) {
            const std::string what = e.what();
            EXPECT_TRUE(what.starts_with(path() + ": ")) << what;
            return what.substr(path().size() + 2);
        }
        return "no error";
    }
};

TEST(CaseFile, ReadsAMinimalCase) {
    const CaseFile file = CaseText().read();
    const Reference reference = reference_layer(file.config, file.weights, file.options, file.inputs);
    EXPECT_EQ(to_string(file.config), "d1_h1_f32_noin_noout");
    EXPECT_DOUBLE_EQ(result_of_role(file, reference, "out")[0], 2);
}

TEST(CaseFile, RefusesAnUnknownAttribute) {
    CaseText text;
    text.attributes["dropout"] = "0.1";
    EXPECT_EQ(text.error(), "unknown attribute 'dropout'");
}

TEST(CaseFile, RefusesAnUnknownRole) {
    CaseText text;
    text.more = {{"relative_bias", StoredType::kF32, {1}, text.q.data()}};
    EXPECT_EQ(text.error(), "unknown role 'relative_bias'");
}

TEST(CaseFile, RefusesUnknownValues) {
    CaseText text;
    text.attributes["causal"] = "diagonal";
    EXPECT_EQ(text.error(), "unknown causal 'diagonal'");
    text = {};
    text.attributes["op"] = "convolution";
    EXPECT_EQ(text.error(), "unknown op 'convolution'");
    text = {};
    text.attributes["empty_row"] = "one";
    EXPECT_EQ(text.error(), "unknown empty_row 'one'");
    text = {};
    text.attributes["heads"] = "two";
    EXPECT_EQ(text.error(), "attribute heads is 'two', wanted a number");
    text = {};
    text.attributes["head_dim"] = "1.5";
    EXPECT_EQ(text.error(), "attribute head_dim is '1.5', wanted a size");
    text = {};
    text.attributes.erase("atol.out");
    EXPECT_EQ(text.error(), "attribute atol.out is '', wanted a number");
}

TEST(CaseFile, RefusesShapesThatDisagree) {
    CaseText text;
    text.attributes["kv_len"] = "3";
    EXPECT_EQ(text.error(), "role 'k' has another shape than the attributes say");
    text = {};
    const uint8_t mask[3] = {1, 1, 1};
    text.more = {{"keep_mask", StoredType::kBool, {1, 3}, mask}};
    EXPECT_EQ(text.error(), "role 'keep_mask' does not broadcast to the scores");
}

TEST(CaseFile, RefusesBadGenerators) {
    CaseText text;
    text.attributes["gen.q"] = "seed=1 amp=1 shape=1,1,1,1";
    EXPECT_EQ(text.error(), "role 'q' is both stored and generated");
    text = {};
    text.attributes["gen.key_bias"] = "sead=1 amp=1 shape=1,2";
    EXPECT_THAT(text.error(), HasSubstr("wanted seed, amp and shape, or const and shape"));
    text.attributes["gen.key_bias"] = "const=1 shape=1000000,1000000";
    EXPECT_EQ(text.error(), "attribute gen.key_bias has shape 1000000,1000000");
}

TEST(CaseFile, ReadsOptionsOfTheLayer) {
    CaseText text;
    const std::vector<float> one = {0.5F}, past = {7, 8, 9};
    const std::vector<int64_t> length = {2};
    text.attributes.insert({{"softcap", "3"}, {"window_left", "1"}, {"window_right", "0"}});
    text.more = {{"sink", StoredType::kF32, {1}, one.data()},
                 {"alibi_slopes", StoredType::kF32, {1}, one.data()},
                 {"q_norm", StoredType::kF32, {1}, one.data()},
                 {"k_norm", StoredType::kF32, {1}, one.data()},
                 {"past_key", StoredType::kF32, {1, 1, 3, 1}, past.data()},
                 {"past_value", StoredType::kF32, {1, 1, 3, 1}, past.data()},
                 {"past_len", StoredType::kI64, {1}, length.data()}};
    const CaseFile file = text.read();
    EXPECT_EQ(to_string(file.config), "d1_h1_f32_noin_noout_sink_alibi_softcap_qknorm_cache");
    EXPECT_EQ(file.options.softcap, 3);
    EXPECT_EQ(file.options.window_left, 1);
    EXPECT_EQ(file.options.window_right, 0);
    EXPECT_EQ(file.past.length(0), 2);
    EXPECT_EQ(file.all_keys(), 4);
    EXPECT_EQ(reference_of(file).values_after, (std::vector<double>{7, 8, 1, 3}));
}

TEST(CaseFile, ReadsRotations) {
    CaseText text;
    text.attributes["head_dim"] = "2";
    text.attributes.insert({{"rotary", "pairs"},
                            {"rotary.base", "100"},
                            {"rotary.scaling", "llama3"},
                            {"rotary.factor", "8"},
                            {"rotary.low_freq_factor", "1"},
                            {"rotary.high_freq_factor", "4"},
                            {"rotary.original_positions", "64"},
                            {"v_head_dim", "1"}});
    text.q = {1, 0}, text.k = {1, 0, 0, 1};
    const std::vector<int64_t> offset = {5};
    text.more = {{"position_offset", StoredType::kI64, {1}, offset.data()}};
    text.features = 2;
    const CaseFile file = text.read();
    EXPECT_EQ(file.config.rotary, Rotary::kPairs);
    EXPECT_EQ(file.options.rotary.base, 100);
    EXPECT_EQ(file.options.rotary.scaling, ATTNC_ROTARY_SCALING_LLAMA3);
    EXPECT_EQ(file.options.rotary.original_positions, 64);
    EXPECT_EQ(static_cast<const int64_t*>(file.inputs.position_offsets.data)[0], 5);
    text.attributes["rotary.scaling"] = "yarn";
    EXPECT_EQ(text.error(), "unknown rotary.scaling 'yarn'");
}

TEST(CaseFile, RefusesOptionsThatDoNotBelongTogether) {
    CaseText text;
    text.attributes["rotary.base"] = "100";  // without rotary
    EXPECT_EQ(text.error(), "unknown attribute 'rotary.base'");
    text = {};
    const std::vector<float> norm = {1};
    text.more = {{"q_norm", StoredType::kF32, {1}, norm.data()}};
    EXPECT_EQ(text.error(), "role 'k_norm' is missing");
    text = {};
    text.attributes["causal"] = "offset";
    EXPECT_EQ(text.error(), "role 'causal_offset' is missing");
    text = {};
    const uint8_t blocks[1] = {1};
    text.more = {{"block_keep_mask", StoredType::kU8, {1, 1, 1, 1}, blocks}};
    EXPECT_EQ(text.error(), "attributes block_q and block_kv are missing");
    text.attributes.insert({{"block_q", "16"}, {"block_kv", "1"}});
    EXPECT_EQ(text.error(), "role 'block_keep_mask' has another shape than the attributes say");
}

TEST(CaseFile, OfAnotherTypeIsReadAndUnsupported) {
    CaseText text;
    text.attributes["dtype"] = "float16";
    EXPECT_EQ(text.read().unsupported, "dtype float16 is not supported");
    text.attributes["dropout"] = "0.5";
    EXPECT_EQ(text.error(), "unknown attribute 'dropout'");
    text.attributes["dtype"] = "int3";
    EXPECT_EQ(text.error(), "unknown dtype 'int3'");
}

// A node of ONNX's Attention, of one query and two keys; tests spoil it.
struct OnnxText : CaseText {
    OnnxText() {
        attributes = {{"op", "Attention"},   {"kind", "onnx_attention"}, {"dtype", "float32"},
                      {"layout", "B,H,L,D"}, {"atol", "1e-6"},           {"rtol", "0"}};
    }
};

TEST(OnnxCase, ReadsAMinimalNode) {
    const CaseFile file = OnnxText().read();
    EXPECT_EQ(to_string(file.config), "d1_h1_f32_noin_noout");
    EXPECT_EQ(file.inputs.causal, ATTNC_CAUSAL_NONE);
    EXPECT_DOUBLE_EQ(result_of_role(file, reference_of(file), "out")[0], 2);
    EXPECT_EQ(file.expected.at("out").atol, 1e-6);
}

TEST(OnnxCase, MasksMayEndBeforeTheKeys) {
    OnnxText text;
    text.k = {0, 0, 0}, text.v = {1, 3, 50};
    const uint8_t keep[2] = {1, 1};
    text.more = {{"attn_mask", StoredType::kBool, {1, 2}, keep}};
    EXPECT_DOUBLE_EQ(reference_of(text.read()).out[0], 2);
    const std::vector<float> bias = {0, 0};
    text.more = {{"attn_mask", StoredType::kF32, {1, 2}, bias.data()}};
    EXPECT_DOUBLE_EQ(reference_of(text.read()).out[0], 2);
}

TEST(OnnxCase, DiagonalsHaveThePastsLength) {
    OnnxText text;
    text.attributes["attr.is_causal"] = "1";
    EXPECT_EQ(text.read().inputs.causal, ATTNC_CAUSAL_TOP_LEFT);
    const std::vector<float> past = {7, 8, 9};
    text.more = {{"past_key", StoredType::kF32, {1, 1, 3, 1}, past.data()},
                 {"past_value", StoredType::kF32, {1, 1, 3, 1}, past.data()}};
    const CaseFile file = text.read();
    EXPECT_EQ(file.inputs.causal, ATTNC_CAUSAL_OFFSET);
    EXPECT_EQ(static_cast<const int64_t*>(file.inputs.causal_offsets.data)[0], 3);
    text.attributes["causal_offset"] = "2";
    EXPECT_EQ(text.error(), "attribute causal_offset is '2', wanted '3'");
}

TEST(OnnxCase, RefusesWhatItDoesNotKnow) {
    OnnxText text;
    text.attributes["attr.dropout"] = "1";
    EXPECT_EQ(text.error(), "unknown attribute 'attr.dropout'");
    text = {};
    text.attributes["attr.softmax_precision"] = "10";
    EXPECT_EQ(text.error(), "attribute attr.softmax_precision is not 1, float32");
    text = {};
    text.attributes["attr.qk_matmul_output_mode"] = "4";
    EXPECT_EQ(text.error(), "attribute attr.qk_matmul_output_mode is above 3");
    text = {};
    text.attributes["layout"] = "B,L,H*D";
    EXPECT_EQ(text.error(), "attribute layout disagrees with the tensors");
    text = {};
    text.attributes["kind"] = "onnx_rotary";
    EXPECT_EQ(text.error(), "attribute kind is 'onnx_rotary', wanted onnx_attention");
    text = {};
    text.attributes["attn_mask_rule"] = "additive";
    const uint8_t keep[2] = {1, 1};
    text.more = {{"attn_mask", StoredType::kBool, {1, 2}, keep}};
    EXPECT_EQ(text.error(), "attribute attn_mask_rule disagrees with the tensor");
}

TEST(CaseFile, GeneratesConstants) {
    CaseText text;
    text.attributes["gen.key_bias"] = "const=-0.5 shape=1,2";
    const CaseFile file = text.read();
    EXPECT_EQ(static_cast<const float*>(file.inputs.key_bias.data)[1], -0.5F);
}

TEST(CaseFile, GeneratedValuesAreThoseOfTheFormat) {
    EXPECT_EQ(generated(4, 1, 1), (std::vector<float>{0.13312304019927979F, 0.49156343936920166F,
                                                      0.9420053958892822F, -0.1112816333770752F}));
}

}  // namespace
}  // namespace attnc
