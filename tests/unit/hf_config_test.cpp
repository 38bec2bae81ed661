#include "models/hf_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace attnc {
namespace {

namespace fs = std::filesystem;

const fs::path kData = ATTNC_TEST_DATA "/hf";

std::string problem_of(const std::string& model, std::string_view layer = "") {
    return to_string(config_from_hf(kData / (model + ".json"), layer));
}

// What is said of a file, without its name.
std::string error_of(const fs::path& file, std::string_view layer) {
    try {
        config_from_hf(file, layer);
    } catch (const ConfigError& error) {
        const std::string text = error.what();
        const std::string prefix = file.string() + ": ";
        EXPECT_TRUE(text.starts_with(prefix)) << text;
        EXPECT_EQ(text.find('\n'), std::string::npos) << text;
        return text.substr(std::min(prefix.size(), text.size()));
    }
    return "no error";
}

std::string error_of_model(const std::string& model, std::string_view layer = "") {
    return error_of(kData / (model + ".json"), layer);
}

// A file that is gone when the test is over.
class TemporaryFile {
public:
    explicit TemporaryFile(const std::string& text) {
        path_ = fs::path(testing::TempDir()) / ("attnc_hf_config_" + std::to_string(getpid()) + ".json");
        std::ofstream(path_, std::ios::binary) << text;
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    ~TemporaryFile() { fs::remove(path_); }
    const fs::path& path() const { return path_; }

private:
    fs::path path_;
};

std::string error_of_text(const std::string& text) { return error_of(TemporaryFile(text).path(), ""); }

TEST(HfConfig, EncodersHaveOneKindOfLayer) {
    EXPECT_EQ(problem_of("bert"), "d384_h12_f32");
    EXPECT_EQ(problem_of("bert", "encoder.self"), "d384_h12_f32");
    EXPECT_EQ(problem_of("roberta"), "d768_h12_f32");
    EXPECT_EQ(problem_of("distilbert"), "d768_h12_f32");
    EXPECT_EQ(problem_of("vit"), "d192_h3_f32");
}

TEST(HfConfig, EncoderDecodersHaveThree) {
    EXPECT_EQ(problem_of("whisper", "encoder.self"), "d384_h6_f32");
    EXPECT_EQ(problem_of("whisper", "decoder.self"), "d384_h6_f32_causal_cache");
    EXPECT_EQ(problem_of("whisper", "decoder.cross"), "d384_h6_f32_cache");
    EXPECT_EQ(problem_of("marian", "encoder.self"), "d512_h16_f32");
    EXPECT_EQ(problem_of("marian", "decoder.cross"), "d512_h8_f32_cache");
}

TEST(HfConfig, DecodersAreCausalAndHaveACache) {
    EXPECT_EQ(problem_of("gpt2"), "d768_h12_f32_causal_cache");
    EXPECT_EQ(problem_of("opt", "decoder.self"), "d768_h12_f32_causal_cache");
    EXPECT_EQ(problem_of("gpt_bigcode"), "d2048_h16_kv1_f32_causal_cache");
    EXPECT_EQ(problem_of("gpt_neo"), "d768_h12_f32_causal_cache");
}

TEST(HfConfig, DecodersWithAlibiHaveSlopes) {
    EXPECT_EQ(problem_of("bloom"), "d1024_h16_f32_causal_alibi_cache");
    EXPECT_EQ(problem_of("mpt"), "d4096_h32_f32_causal_alibi_cache");
}

TEST(HfConfig, DecodersThatRotateSayHow) {
    EXPECT_EQ(problem_of("llama"), "d2048_h32_kv8_f32_causal_rope_cache");
    EXPECT_EQ(problem_of("mistral"), "d4096_h32_kv8_f32_causal_rope_cache");
    EXPECT_EQ(problem_of("qwen2"), "d896_h14_kv2_f32_causal_rope_cache");
    EXPECT_EQ(problem_of("qwen3"), "d1024_h16_kv8_hd128_f32_causal_qknorm_rope_cache");
    EXPECT_EQ(problem_of("gemma2"), "d4608_h32_kv16_hd128_f32_causal_softcap_rope_cache");
    EXPECT_EQ(problem_of("gemma3_text"), "d1152_h4_kv1_hd256_f32_causal_qknorm_rope_cache");
    EXPECT_EQ(problem_of("phi3"), "d3072_h32_f32_causal_rope_cache");
    EXPECT_EQ(problem_of("gpt_oss"), "d2880_h64_kv8_hd64_f32_causal_sink_rope_cache");
    EXPECT_EQ(problem_of("gpt_neox"), "d1024_h16_f32_causal_rope_cache");
    EXPECT_EQ(problem_of("gptj"), "d4096_h16_f32_causal_ropepairs_cache");
}

TEST(HfConfig, LayersOfAKindHaveOneConfiguration) {
    EXPECT_EQ(problem_of("gpt_oss", "decoder.self.0"), problem_of("gpt_oss", "decoder.self"));
    EXPECT_EQ(problem_of("gpt_oss", "1"), problem_of("gpt_oss"));
    EXPECT_EQ(problem_of("whisper", "decoder.cross.3"), problem_of("whisper", "decoder.cross"));
}

TEST(HfConfig, SectionsOfAFileAreLayersOfTheirOwn) {
    EXPECT_EQ(problem_of("clip", "text.self"), "d512_h8_f32_causal");
    EXPECT_EQ(problem_of("clip", "text.self.11"), "d512_h8_f32_causal");
    EXPECT_EQ(problem_of("clip", "vision.self"), "d768_h12_f32");
    EXPECT_EQ(error_of(TemporaryFile(R"({"model_type": "clip", "text_config": {"hidden_size": 512}})").path(),
                       "text.self"),
              "in text_config, num_attention_heads is missing");
    EXPECT_EQ(error_of(TemporaryFile(R"({"model_type": "clip", "text_config": 3})").path(), "text.self"),
              "text_config is not a JSON object");
    EXPECT_EQ(error_of(TemporaryFile(R"({"model_type": "clip"})").path(), "text.self"),
              "text_config is missing");
}

TEST(HfConfig, DecoderFlagOfAnEncoderModelMakesItCausal) {
    const TemporaryFile file(
        R"({"model_type": "bert", "is_decoder": true, "hidden_size": 64, "num_attention_heads": 4})");
    EXPECT_EQ(to_string(config_from_hf(file.path(), "")), "d64_h4_f32_causal_cache");
}

TEST(HfConfig, RefusesAnUnknownLayer) {
    EXPECT_EQ(error_of_model("bert", "decoder.self"),
              "model_type bert has no layer 'decoder.self', it has encoder.self");
    EXPECT_EQ(error_of_model("whisper"),
              "model_type whisper has several kinds of layers, name one of encoder.self, decoder.self, "
              "decoder.cross");
    EXPECT_EQ(error_of_model("whisper", "cross"),
              "model_type whisper has no layer 'cross', it has encoder.self, decoder.self, decoder.cross");
    EXPECT_EQ(error_of_model("whisper", "3"),
              "model_type whisper has several kinds of layers, name one of encoder.self, decoder.self, "
              "decoder.cross");
    EXPECT_EQ(error_of_model("llama", "decoder.self.16"),
              "no layer 16, num_hidden_layers is 16 and they count from 0");
    EXPECT_EQ(error_of_model("clip", "text.self.12"),
              "in text_config, no layer 12, num_hidden_layers is 12 and they count from 0");
    EXPECT_EQ(error_of_model("llama", "decoder.self.99999999999999999999"),
              "layer number '99999999999999999999' is too large");
    EXPECT_EQ(error_of_model("llama", "decoder.self."),
              "model_type llama has no layer 'decoder.self.', it has decoder.self");
    EXPECT_EQ(error_of_model("llama", "decoder.self.-1"),
              "model_type llama has no layer 'decoder.self.-1', it has decoder.self");
}

TEST(HfConfig, RefusesAModelThatNeedsWhatALibraryLacks) {
    EXPECT_EQ(
        error_of_model("mpnet"),
        "attention of model_type mpnet has learned biases for relative positions, which are not supported");
    EXPECT_EQ(
        error_of_text(R"({"model_type": "deepseek_v3"})"),
        "attention of model_type deepseek_v3 has keys and values in a compressed form (latent attention), "
        "which are not supported");
}

TEST(HfConfig, RefusesAnUnknownModel) {
    EXPECT_EQ(
        error_of_text(R"({"model_type": "mystery"})"),
        "model_type 'mystery' is unknown, known are albert, audio-spectrogram-transformer, bart, bert, "
        "blenderbot, bloom, camembert, clip, clip_text_model, clip_vision_model, deit, dinov2, distilbert, "
        "electra, ernie, gemma, gemma2, gemma3, gemma3_text, gpt2, gpt_bigcode, gpt_neo, gpt_neox, gpt_oss, "
        "gptj, "
        "llama, m2m_100, marian, mbart, mistral, mixtral, mpt, opt, pegasus, phi, phi3, qwen2, qwen2_moe, "
        "qwen3, "
        "qwen3_moe, roberta, stablelm, starcoder2, vit, vit_mae, wav2vec2, whisper, xlm-roberta");
    EXPECT_EQ(error_of_text(R"({"hidden_size": 384, "num_attention_heads": 12})"), "model_type is missing");
    EXPECT_EQ(error_of_text(R"({"model_type": 7})"), "model_type is not a string");
    EXPECT_TRUE(error_of_text(R"({"model_type": "a\nb)" + std::string(1000, 'x') + R"("})")
                    .starts_with("model_type 'a?b" + std::string(57, 'x') + "...' is unknown"));
}

// A bert of 64 features and 4 heads, with `fields` before these: a later field of one name counts.
std::string bert(const std::string& hidden_size, const std::string& heads, const std::string& more = "") {
    return R"({"model_type": "bert", "hidden_size": )" + hidden_size + R"(, "num_attention_heads": )" +
           heads + more + "}";
}

TEST(HfConfig, RefusesSizesThatAreNone) {
    EXPECT_EQ(error_of_text(R"({"model_type": "bert", "num_attention_heads": 12})"),
              "hidden_size is missing");
    EXPECT_EQ(error_of_text(bert("null", "4")), "hidden_size is missing");
    EXPECT_EQ(error_of_text(bert("\"64\"", "4")), "hidden_size is not a whole number but '\"64\"'");
    EXPECT_EQ(error_of_text(bert("64.5", "4")), "hidden_size is not a whole number but '64.5'");
    EXPECT_EQ(error_of_text(bert("true", "4")), "hidden_size is not a whole number but 'true'");
    EXPECT_EQ(error_of_text(bert("[64]", "4")), "hidden_size is not a whole number but 'array'");
    EXPECT_EQ(error_of_text(bert("64", "-4")), "num_attention_heads -4 is not a positive size");
    EXPECT_EQ(error_of_text(bert("64", "0")), "num_attention_heads 0 is not a positive size");
    EXPECT_EQ(error_of_text(bert("18446744073709551615", "4")),
              "hidden_size 18446744073709551615 is not a positive size");
    EXPECT_EQ(error_of_text(bert("1000000000000000000000000000000", "4")),
              "hidden_size is not a whole number but '1e+30'");
    EXPECT_EQ(error_of_text(bert("9223372036854775807", "4")),
              "d_model 9223372036854775807 is outside 1..65536");
    EXPECT_EQ(error_of_text(bert("500", "12")), "d_model 500 is not divisible by num_heads 12");
}

TEST(HfConfig, RefusesOptionsThatChangeTheScores) {
    EXPECT_EQ(error_of_text(bert("64", "4", R"(, "position_embedding_type": "relative_key")")),
              "position_embedding_type 'relative_key' is not supported, absolute is");
    EXPECT_EQ(error_of_text(bert("64", "4", R"(, "position_embedding_type": 3)")),
              "position_embedding_type is not a string");
    EXPECT_EQ(error_of_text(bert("64", "4", R"(, "pruned_heads": {"0": [1]})")),
              "pruned_heads is not empty, so that layers differ in their heads, which is not supported");
    EXPECT_EQ(error_of_text(bert("64", "4", R"(, "pruned_heads": {})")), "no error");
    EXPECT_EQ(error_of_text(bert("64", "4", R"(, "is_decoder": "yes")")),
              "is_decoder is neither true nor false");
}

TEST(HfConfig, RefusesWhatIsNoJsonObject) {
    EXPECT_EQ(error_of_text(""), "ends before its JSON does");
    EXPECT_EQ(error_of_text("{\"model_type\": \"be"), "ends before its JSON does");
    EXPECT_EQ(error_of_text("{\"model_type\": \"bert\","), "ends before its JSON does");
    EXPECT_EQ(error_of_text("hello"), "not JSON from byte 1 of 5 on");
    EXPECT_EQ(error_of_text("{} {}"), "not JSON from byte 4 of 5 on");
    EXPECT_EQ(error_of_text("[1, 2]"), "not a JSON object");
    EXPECT_EQ(error_of_text("null"), "not a JSON object");
    EXPECT_EQ(error_of_text("{\"a\": \"\xff\"}"), "not JSON from byte 8 of 10 on");
    EXPECT_EQ(error_of_text("{\"a\": 1e999}"), "holds a number beyond double precision");
}

TEST(HfConfig, RefusesHostileFiles) {
    EXPECT_EQ(error_of_text(std::string(1000000, '[')), "nested deeper than 64 levels");
    std::string objects;
    for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
    EXPECT_EQ(error_of_text(objects), "nested deeper than 64 levels");
    EXPECT_EQ(error_of_text(std::string((size_t{16} << 20) + 1, ' ')),
              "longer than 16 MiB, which no configuration is");
}

TEST(HfConfig, EveryTruncationGivesOneLine) {
    std::ifstream stream(kData / "bert.json", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    ASSERT_GT(text.size(), 100U);
    for (size_t length = 0; length + 2 < text.size(); ++length) {
        EXPECT_EQ(error_of_text(text.substr(0, length)), "ends before its JSON does") << length;
    }
}

TEST(HfConfig, RefusesWhatCannotBeRead) {
    EXPECT_EQ(error_of("/nowhere/config.json", ""), "cannot be read: No such file or directory");
    EXPECT_EQ(error_of(testing::TempDir(), ""), "cannot be read: Is a directory");
}

}  // namespace
}  // namespace attnc
