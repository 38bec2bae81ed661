// What a layer is created with: scales, windows, rotations and slopes of each family.
#include <gtest/gtest.h>

#include <cmath>

#include "models/hf_config.h"
#include "models/layer_file.h"
#include "tests/unit/model_files.h"

namespace attnc::test {
namespace {

using Scaling = RotarySettings::Scaling;

LayerSettings settings_of(const std::string& model, const std::string& layer) {
    return model_layer_from_hf(std::string(ATTNC_TEST_DATA "/hf/") + model + ".json", layer).settings;
}

// Of a configuration as text.
LayerSettings settings_of_text(const std::string& text, const std::string& layer, int64_t max_positions = 0) {
    const ModelFolder folder;
    folder.write("config.json", text);
    return model_layer_from_hf(folder / "config.json", layer, max_positions).settings;
}

// What is said of the file, without its name.
std::string error_of_text(const std::string& text) {
    const ModelFolder folder;
    folder.write("config.json", text);
    const std::string error = error_of_action([&] { model_layer_from_hf(folder / "config.json", "0"); });
    const std::string begin = folder / "config.json" + ": ";
    return error.starts_with(begin) ? error.substr(begin.size()) : error;
}

// 64 features in 2 heads, 8 layers, with more fields: `more` begins with a comma.
std::string llama_like(const std::string& type, const std::string& more) {
    return R"({"model_type": ")" + type +
           R"(", "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
              "num_hidden_layers": 8)" +
           more + "}";
}

TEST(ModelSettings, OfEncodersAreTheDefaults) {
    EXPECT_EQ(settings_of("bert", "encoder.self.5"), LayerSettings{});
    EXPECT_EQ(settings_of("roberta", "0"), LayerSettings{});
    EXPECT_EQ(settings_of("distilbert", "0"), LayerSettings{});
    EXPECT_EQ(settings_of("vit", "11"), LayerSettings{});
    EXPECT_EQ(settings_of("clip", "vision.self.0"), LayerSettings{});
    EXPECT_EQ(settings_of("whisper", "decoder.cross.3"), LayerSettings{});
    EXPECT_EQ(settings_of("gpt2", "11"), LayerSettings{});
}

TEST(ModelSettings, OfGpt2MayScaleByTheLayersNumber) {
    const std::string gpt2 = R"({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 8)";
    EXPECT_EQ(settings_of_text(gpt2 + R"(, "scale_attn_weights": false})", "3").qk_scale, 1);
    EXPECT_EQ(settings_of_text(gpt2 + R"(, "scale_attn_by_inverse_layer_idx": true})", "3").qk_scale,
              0.25 / 4);
    EXPECT_EQ(settings_of_text(
                  gpt2 + R"(, "scale_attn_by_inverse_layer_idx": true, "scale_attn_weights": false})", "3")
                  .qk_scale,
              0.25);
}

TEST(ModelSettings, OfLlamaHaveItsFrequencyScaling) {
    const RotarySettings rotary = settings_of("llama", "15").rotary;
    EXPECT_EQ(rotary, (RotarySettings{.dim = 64,
                                      .base = 500000,
                                      .scaling = Scaling::kLlama3,
                                      .factor = 32,
                                      .low_freq_factor = 1,
                                      .high_freq_factor = 4,
                                      .original_positions = 8192}));
}

TEST(ModelSettings, OfMistralHaveAWindowOfKeysWithTheQuerysOwn) {
    const LayerSettings settings = settings_of("mistral", "0");
    EXPECT_EQ(settings.window_left, 4095);
    EXPECT_FALSE(settings.window_right);
    EXPECT_EQ(settings.rotary, (RotarySettings{.dim = 128, .base = 10000}));
    EXPECT_FALSE(settings_of_text(llama_like("mistral", R"(, "sliding_window": null)"), "0").window_left);
}

TEST(ModelSettings, OfQwenHaveAWindowFromALayerOn) {
    EXPECT_FALSE(settings_of("qwen2", "23").window_left);
    const std::string used = R"(, "use_sliding_window": true, "sliding_window": 16, "max_window_layers": 5)";
    for (const char* const type : {"qwen2", "qwen3"}) {
        EXPECT_FALSE(settings_of_text(llama_like(type, used), "4").window_left) << type;
        EXPECT_EQ(settings_of_text(llama_like(type, used), "5").window_left, 15) << type;
    }
    EXPECT_EQ(settings_of("qwen3", "0"),
              (LayerSettings{.qk_norm_epsilon = 1e-6, .rotary = {.dim = 128, .base = 1000000}}));
    EXPECT_EQ(error_of_text(llama_like("qwen3_moe", used)),
              "use_sliding_window true is not supported for this model_type");
}

TEST(ModelSettings, OfGemma2AlternateAndCapScores) {
    LayerSettings wanted{
        .qk_scale = 1.0 / 12, .softcap = 50, .window_left = 4095, .rotary = {.dim = 128, .base = 10000}};
    EXPECT_EQ(settings_of("gemma2", "0"), wanted);
    EXPECT_EQ(settings_of("gemma2", "44"), wanted);
    wanted.window_left.reset();
    EXPECT_EQ(settings_of("gemma2", "1"), wanted);
    EXPECT_EQ(error_of_text(llama_like("gemma2", R"(, "use_bidirectional_attention": true)")),
              "use_bidirectional_attention true is not supported: the layer is causal");
}

TEST(ModelSettings, OfGemma3HaveTwoBases) {
    const LayerSettings local = settings_of("gemma3_text", "4"), global = settings_of("gemma3_text", "5");
    EXPECT_EQ(local.window_left, 511);
    EXPECT_EQ(local.rotary, (RotarySettings{.dim = 256, .base = 10000}));
    EXPECT_FALSE(global.window_left);
    EXPECT_EQ(global.rotary, (RotarySettings{.dim = 256, .base = 1000000}));
    EXPECT_EQ(global.qk_scale, 1.0 / 16);

    const std::string newer = llama_like("gemma3_text", R"(, "sliding_window": 8,
        "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}})");
    EXPECT_EQ(settings_of_text(newer, "0").rotary, (RotarySettings{.dim = 32, .base = 20000}));
    EXPECT_EQ(settings_of_text(newer, "5").rotary,
              (RotarySettings{.dim = 32, .base = 1000000, .scaling = Scaling::kLinear, .factor = 8}));
}

TEST(ModelSettings, OfGptOssAlternateAndStretchByYarn) {
    const LayerSettings even = settings_of("gpt_oss", "0"), odd = settings_of("gpt_oss", "1");
    EXPECT_EQ(even.window_left, 127);
    EXPECT_FALSE(odd.window_left);
    EXPECT_EQ(even.rotary, odd.rotary);
    const RotarySettings& rotary = even.rotary;
    EXPECT_EQ(rotary.dim, 64);
    EXPECT_NEAR(rotary.magnitude, 1.3465735902799727, 1e-15);
    ASSERT_EQ(rotary.frequencies.size(), 32U);
    // From the definition, evaluated elsewhere: the ramp lies from pair 8.09 to 17.40.
    for (const auto& [pair, wanted] : {std::pair{0, 1.0},
                                       {8, 0.050813274815461475},
                                       {9, 0.03170569618466377},
                                       {12, 0.006794959489732219},
                                       {17, 0.00012931870124506317},
                                       {18, 3.8308812373753384e-05},
                                       {31, 3.0235114281192144e-07}}) {
        EXPECT_NEAR(rotary.frequencies[static_cast<size_t>(pair)] / wanted, 1, 1e-12) << pair;
    }
}

TEST(ModelSettings, OfQwenWithYarnStretchBetweenWholePairs) {
    const RotarySettings rotary =
        settings_of_text(
            R"({"model_type": "qwen2", "hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1,
                "num_hidden_layers": 1, "rope_theta": 1000000.0, "max_position_embeddings": 32768,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}})",
            "0")
            .rotary;
    EXPECT_NEAR(rotary.magnitude, 1.138629436111989, 1e-15);
    ASSERT_EQ(rotary.frequencies.size(), 64U);
    for (const auto& [pair, wanted] : {std::pair{0, 1.0},
                                       {23, 0.006978305848598663},
                                       {24, 0.005375321490790102},
                                       {30, 0.0010643609812470017},
                                       {40, 4.445698525097307e-05},
                                       {63, 3.102344401879299e-07}}) {
        EXPECT_NEAR(rotary.frequencies[static_cast<size_t>(pair)] / wanted, 1, 1e-12) << pair;
    }
}

TEST(ModelSettings, OfPhi3HaveAWindow) {
    EXPECT_EQ(settings_of("phi3", "31"),
              (LayerSettings{.window_left = 2046, .rotary = {.dim = 96, .base = 10000}}));
}

TEST(ModelSettings, OfPhi3WithLongropeDependOnTheContext) {
    const std::string text = R"({"model_type": "phi3", "hidden_size": 16, "num_attention_heads": 2,
        "num_hidden_layers": 1, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
        "rope_theta": 10000.0, "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.5, 2.0, 4.0],
                                                "long_factor": [1.0, 8.0, 32.0, 64.0]}})";
    const RotarySettings brief = settings_of_text(text, "0").rotary;
    const RotarySettings limit = settings_of_text(text, "0", 4096).rotary;
    const RotarySettings full = settings_of_text(text, "0", 4097).rotary;
    EXPECT_EQ(brief, limit);
    EXPECT_NEAR(brief.magnitude, 1.1902380714238083, 1e-15);
    EXPECT_EQ(brief.magnitude, full.magnitude);
    const double brief_divisors[] = {1, 1.5, 2, 4}, full_divisors[] = {1, 8, 32, 64};
    ASSERT_EQ(brief.frequencies.size(), 4U);
    for (size_t i = 0; i < 4; ++i) {
        const double plain = std::pow(10000.0, -static_cast<double>(i) / 4);
        EXPECT_NEAR(brief.frequencies[i] * brief_divisors[i] / plain, 1, 1e-15);
        EXPECT_NEAR(full.frequencies[i] * full_divisors[i] / plain, 1, 1e-15);
    }
}

TEST(ModelSettings, OfPartialRotationsSayHowManyFeatures) {
    EXPECT_EQ(settings_of("gpt_neox", "0").rotary, (RotarySettings{.dim = 16, .base = 10000}));
    EXPECT_EQ(settings_of("gptj", "0").rotary, (RotarySettings{.dim = 64, .base = 10000}));
    EXPECT_EQ(settings_of_text(llama_like("phi", R"(, "partial_rotary_factor": 0.4)"), "0").rotary.dim, 12);
    EXPECT_EQ(settings_of_text(llama_like("phi3", R"(, "partial_rotary_factor": 0.75)"), "0").rotary.dim, 24);
}

TEST(ModelSettings, OfGptNeoAreUnscaledAndAlternate) {
    EXPECT_EQ(settings_of("gpt_neo", "0"), (LayerSettings{.qk_scale = 1}));
    EXPECT_EQ(settings_of("gpt_neo", "1"), (LayerSettings{.qk_scale = 1, .window_left = 255}));
}

TEST(ModelSettings, OfAlibiHaveTheSlopesOfThePaper) {
    const std::vector<float> slopes = settings_of("bloom", "0").alibi_slopes;
    ASSERT_EQ(slopes.size(), 16U);
    for (size_t head = 0; head < 16; ++head)
        EXPECT_EQ(slopes[head], std::exp2(-0.5F * static_cast<float>(head + 1)));
    EXPECT_EQ(
        settings_of_text(R"({"model_type": "bloom", "hidden_size": 96, "n_head": 6, "n_layer": 1})", "0")
            .alibi_slopes,
        (std::vector<float>{0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}));
}

TEST(ModelSettings, TypesOfLayersComeFromTheList) {
    const std::string list =
        R"(, "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"])";
    for (const char* const type : {"mistral", "gemma2", "gpt_oss", "gemma3_text"}) {
        EXPECT_FALSE(settings_of_text(llama_like(type, list), "0").window_left) << type;
        EXPECT_EQ(settings_of_text(llama_like(type, list), "1").window_left, 7) << type;
        const ModelFolder folder;
        folder.write("config.json", llama_like(type, list));
        EXPECT_EQ(error_of_action([&] { model_layer_from_hf(folder / "config.json", "2"); }),
                  folder / "config.json" + ": layer_types has 2 entries, none for layer 2");
    }
    EXPECT_EQ(
        error_of_text(llama_like("mistral", R"(, "layer_types": ["chunked_attention"])")),
        "layer_types has 'chunked_attention', which is not supported, full_attention and sliding_attention "
        "are");
    EXPECT_EQ(error_of_text(llama_like("mistral", R"(, "layer_types": [1])")),
              "layer_types has an entry that is not a string");
}

TEST(ModelSettings, RefuseRotationsThatAreUnknown) {
    const auto error_of_scaling = [](const std::string& scaling) {
        return error_of_text(llama_like("llama", R"(, "rope_scaling": )" + scaling));
    };
    EXPECT_EQ(error_of_scaling(R"({"type": "dynamic", "factor": 2.0})"),
              "rope_type 'dynamic' is not supported, default, linear, llama3, yarn and longrope are");
    EXPECT_EQ(error_of_scaling(R"({"factor": 2.0})"), "rope_type is missing");
    EXPECT_EQ(error_of_scaling(R"({"type": "linear"})"), "factor is missing");
    EXPECT_EQ(error_of_scaling(R"({"type": "linear", "factor": -2})"), "factor -2 is not greater than 0");
    EXPECT_EQ(error_of_scaling(R"({"type": "linear", "factor": "2"})"), "factor is not a number but '\"2\"'");
    EXPECT_EQ(error_of_scaling("3"), "rope_scaling is not a JSON object");
    EXPECT_EQ(error_of_scaling(R"({"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1,
                                   "original_max_position_embeddings": 8192})"),
              "low_freq_factor is not less than high_freq_factor");
    EXPECT_EQ(error_of_scaling(R"({"type": "longrope", "factor": 8, "original_max_position_embeddings": 8,
                                   "short_factor": [1, 2]})"),
              "max_position_embeddings is missing");
    EXPECT_EQ(error_of_text(llama_like("llama", R"(, "max_position_embeddings": 16, "rope_scaling":
                  {"type": "longrope", "factor": 8, "short_factor": [1, 2]})")),
              "short_factor has 2 entries, wanted 16, half the rotary dimension");
    EXPECT_EQ(error_of_text(llama_like("llama", R"(, "partial_rotary_factor": 0.1)")),
              "rotary embedding of 3 of 32 features of a head: it must be an even number of them");
    EXPECT_EQ(error_of_text(llama_like("llama", R"(, "rope_theta": 0.5)")),
              "rope_theta is not greater than 1");
}

TEST(ModelSettings, RefuseWhatALayerCannotDo) {
    EXPECT_EQ(
        error_of_text(llama_like("phi", R"(, "qk_layernorm": true)")),
        "qk_layernorm true is not supported: queries and keys are normalised by their mean square, not by "
        "layer norms");
    const auto error_of_mpt = [](const std::string& attention) {
        return error_of_text(
            R"({"model_type": "mpt", "d_model": 8, "n_heads": 2, "n_layers": 1, "attn_config": {)" +
            attention + "}}");
    };
    EXPECT_EQ(error_of_mpt(R"("clip_qkv": 8)"), "clip_qkv is not supported: projections are not clipped");
    EXPECT_EQ(error_of_mpt(R"("qk_ln": true)"), "qk_ln true is not supported");
    EXPECT_EQ(error_of_mpt(R"("prefix_lm": true)"), "prefix_lm true is not supported");
    EXPECT_EQ(error_of_mpt(R"("alibi": false)"), "alibi false is not supported");
    EXPECT_EQ(error_of_mpt(R"("attn_type": "multiquery_attention")"),
              "attn_type 'multiquery_attention' is not supported, multihead_attention is");
    EXPECT_EQ(
        error_of_text(R"({"model_type": "gptj", "n_embd": 8, "n_head": 2, "n_layer": 1, "rotary_dim": 3})"),
        "rotary_dim 3 is not an even number of a head's 4 features");
    EXPECT_EQ(error_of_text(R"({"model_type": "albert", "hidden_size": 8, "num_attention_heads": 2,
                                "num_hidden_layers": 1, "inner_group_num": 2})"),
              "inner_group_num is not 1: layers of several sub-layers are not supported");
    EXPECT_EQ(
        error_of_text(R"({"model_type": "bloom", "hidden_size": 64, "n_head": 4000000000, "n_layer": 1})"),
        "num_heads 4000000000 is outside 1..4096");
    EXPECT_EQ(error_of_text(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2,
                                "head_dim": 4000000000, "num_hidden_layers": 1})"),
              "head_dim 4000000000 is outside 1..512");
}

TEST(ModelSettings, AttributesReadBackAsTheSameNumbers) {
    const ModelLayer layer = model_layer_from_hf(ATTNC_TEST_DATA "/hf/gemma2.json", "0");
    const auto attributes = layer_attributes(layer);
    EXPECT_EQ(std::stod(attributes.at("qk_scale")), 1.0 / 12);
    EXPECT_EQ(attributes.at("softcap"), "50");
    EXPECT_EQ(attributes.at("rotary_base"), "10000");
    EXPECT_EQ(attributes.at("window_left"), "4095");
    const auto llama = layer_attributes(model_layer_from_hf(ATTNC_TEST_DATA "/hf/llama.json", "0"));
    EXPECT_EQ(llama.at("rotary_scaling"), "llama3");
    EXPECT_EQ(llama.at("rotary_factor"), "32");
    EXPECT_EQ(llama.at("rotary_original_positions"), "8192");
    EXPECT_EQ(llama.at("rotary_base"), "500000");
}

}  // namespace
}  // namespace attnc::test
