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
    std::vector<TensorToStore> more;

    std::string path() const { return ::testing::TempDir() + "attnc_case_file_test.safetensors"; }

    CaseFile read() const {
        std::vector<TensorToStore> tensors = {{"q", StoredType::kF32, {1, 1, 1, 1}, q.data()},
                                              {"k", StoredType::kF32, {1, 1, 2, 1}, k.data()},
                                              {"v", StoredType::kF32, {1, 1, 2, 1}, v.data()},
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
