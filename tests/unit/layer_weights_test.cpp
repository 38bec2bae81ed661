// Weights by the names of each family, element by element.
#include "models/layer_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/layer_arguments.h"
#include "models/layer_file.h"
#include "tests/unit/model_files.h"

namespace attnc::test {
namespace {

// A model whose projections are tensors of their own.
struct Separate {
    const char* name;
    const char* config;  // 8 features, 2 heads of 4
    const char* layer;
    const char* begin;            // before the names of all tensors
    const char *q, *k, *v, *out;  // without .weight
    const char* biases;           // "qkvo": which have one
    int64_t kv_heads = 2;
};

void PrintTo(const Separate& model, std::ostream* stream) { *stream << model.name; }

constexpr const char* kBert =
    R"({"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3})";
constexpr const char* kWhisper =
    R"({"model_type": "whisper", "d_model": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "encoder_layers": 3, "decoder_layers": 3})";
constexpr const char* kClip =
    R"({"model_type": "clip",
        "text_config": {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3},
        "vision_config": {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3}})";

// A descendant of Llama.
#define ATTNC_LLAMA_LIKE(type, more)                                                                  \
    R"({"model_type": ")" type                                                                        \
    R"(", "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,)" more \
    R"( "num_hidden_layers": 3})"

const Separate kSeparate[] = {
    {"Bert", kBert, "encoder.self.1", "bert.encoder.layer.1.attention.", "self.query", "self.key",
     "self.value", "output.dense", "qkvo"},
    {"BertWithoutPrefix", kBert, "1", "encoder.layer.1.attention.", "self.query", "self.key", "self.value",
     "output.dense", "qkvo"},
    {"BertInsideAnotherModel", kBert, "1", "0.auto_model.encoder.layer.1.attention.", "self.query",
     "self.key", "self.value", "output.dense", "qkvo"},
    {"Roberta",
     R"({"model_type": "roberta", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3})", "1",
     "roberta.encoder.layer.1.attention.", "self.query", "self.key", "self.value", "output.dense", "qkvo"},
    {"Albert",
     R"({"model_type": "albert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 6,
         "num_hidden_groups": 3})",
     "3", "albert.encoder.albert_layer_groups.1.albert_layers.0.attention.", "query", "key", "value", "dense",
     "qkvo"},
    {"Distilbert", R"({"model_type": "distilbert", "dim": 8, "n_heads": 2, "n_layers": 3})", "1",
     "distilbert.transformer.layer.1.attention.", "q_lin", "k_lin", "v_lin", "out_lin", "qkvo"},
    {"Vit", R"({"model_type": "vit", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3})",
     "encoder.self.1", "vit.encoder.layer.1.attention.", "attention.query", "attention.key",
     "attention.value", "output.dense", "qkvo"},
    {"VitWithoutBiases",
     R"({"model_type": "vit", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3,
         "qkv_bias": false})",
     "1", "encoder.layer.1.attention.", "attention.query", "attention.key", "attention.value", "output.dense",
     "o"},
    {"Wav2vec2",
     R"({"model_type": "wav2vec2", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3})", "1",
     "wav2vec2.encoder.layers.1.attention.", "q_proj", "k_proj", "v_proj", "out_proj", "qkvo"},
    {"ClipText", kClip, "text.self.1", "text_model.encoder.layers.1.self_attn.", "q_proj", "k_proj", "v_proj",
     "out_proj", "qkvo"},
    {"ClipVision", kClip, "vision.self.1", "vision_model.encoder.layers.1.self_attn.", "q_proj", "k_proj",
     "v_proj", "out_proj", "qkvo"},
    {"Bart",
     R"({"model_type": "bart", "d_model": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
         "encoder_layers": 3, "decoder_layers": 3})",
     "decoder.cross.1", "model.decoder.layers.1.encoder_attn.", "q_proj", "k_proj", "v_proj", "out_proj",
     "qkvo"},
    {"WhisperEncoder", kWhisper, "encoder.self.1", "model.encoder.layers.1.self_attn.", "q_proj", "k_proj",
     "v_proj", "out_proj", "qvo"},
    {"WhisperDecoder", kWhisper, "decoder.self.1", "model.decoder.layers.1.self_attn.", "q_proj", "k_proj",
     "v_proj", "out_proj", "qvo"},
    {"WhisperCross", kWhisper, "decoder.cross.1", "decoder.layers.1.encoder_attn.", "q_proj", "k_proj",
     "v_proj", "out_proj", "qvo"},
    {"Opt", R"({"model_type": "opt", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3})",
     "1", "model.decoder.layers.1.self_attn.", "q_proj", "k_proj", "v_proj", "out_proj", "qkvo"},
    {"GptNeo",
     R"({"model_type": "gpt_neo", "hidden_size": 8, "num_heads": 2, "num_layers": 2,
         "attention_layers": ["global", "local"]})",
     "1", "transformer.h.1.attn.attention.", "q_proj", "k_proj", "v_proj", "out_proj", "o"},
    {"Gptj", R"({"model_type": "gptj", "n_embd": 8, "n_head": 2, "n_layer": 3, "rotary_dim": 2})", "1",
     "transformer.h.1.attn.", "q_proj", "k_proj", "v_proj", "out_proj", ""},
    {"Llama", ATTNC_LLAMA_LIKE("llama", ""), "decoder.self.1", "model.layers.1.self_attn.", "q_proj",
     "k_proj", "v_proj", "o_proj", "", 1},
    {"LlamaWithBiases", ATTNC_LLAMA_LIKE("llama", R"("attention_bias": true,)"), "1",
     "model.layers.1.self_attn.", "q_proj", "k_proj", "v_proj", "o_proj", "qkvo", 1},
    {"Mistral", ATTNC_LLAMA_LIKE("mistral", R"("sliding_window": 16,)"), "1", "model.layers.1.self_attn.",
     "q_proj", "k_proj", "v_proj", "o_proj", "", 1},
    {"Mixtral", ATTNC_LLAMA_LIKE("mixtral", ""), "1", "model.layers.1.self_attn.", "q_proj", "k_proj",
     "v_proj", "o_proj", "", 1},
    {"Qwen2", ATTNC_LLAMA_LIKE("qwen2", ""), "1", "model.layers.1.self_attn.", "q_proj", "k_proj", "v_proj",
     "o_proj", "qkv", 1},
    {"Gemma2", ATTNC_LLAMA_LIKE("gemma2", ""), "1", "model.layers.1.self_attn.", "q_proj", "k_proj", "v_proj",
     "o_proj", "", 1},
    {"Starcoder2", ATTNC_LLAMA_LIKE("starcoder2", ""), "1", "model.layers.1.self_attn.", "q_proj", "k_proj",
     "v_proj", "o_proj", "qkvo", 1},
    {"Stablelm", ATTNC_LLAMA_LIKE("stablelm", R"("partial_rotary_factor": 0.5,)"), "1",
     "model.layers.1.self_attn.", "q_proj", "k_proj", "v_proj", "o_proj", "", 1},
    {"Phi", ATTNC_LLAMA_LIKE("phi", ""), "1", "model.layers.1.self_attn.", "q_proj", "k_proj", "v_proj",
     "dense", "qkvo", 1},
};

class SeparateProjections : public testing::TestWithParam<Separate> {};

TEST_P(SeparateProjections, AreLoadedByTheModelsNames) {
    const Separate& model = GetParam();
    const ModelFolder folder;
    MadeUpTensors tensors;
    const struct {
        const char* weight;
        const char* bias;
        char letter;
        const char* name;
        int64_t out_features;
    } projections[] = {{"wq", "bq", 'q', model.q, 8},
                       {"wk", "bk", 'k', model.k, 4 * model.kv_heads},
                       {"wv", "bv", 'v', model.v, 4 * model.kv_heads},
                       {"wo", "bo", 'o', model.out, 8}};
    const std::string begin = model.begin;
    const std::string biases = model.biases;
    std::vector<std::string> wanted_weights, wanted_biases;
    for (const auto& p : projections) {
        tensors.add(begin + p.name + ".weight", {p.out_features, 8});
        wanted_weights.emplace_back(p.weight);
        if (biases.find(p.letter) == std::string::npos) continue;
        tensors.add(begin + p.name + ".bias", {p.out_features});
        wanted_biases.emplace_back(p.bias);
    }
    tensors.add("something.else.weight", {3});
    folder.write("config.json", model.config);
    tensors.write(folder / "model.safetensors");

    const LoadedLayer loaded =
        load_model_layer(folder / "config.json", model.layer, folder / "model.safetensors");
    EXPECT_TRUE(std::string(model.layer).ends_with(std::to_string(loaded.layer.number)));
    for (const auto& p : projections) {
        EXPECT_EQ(loaded.find(p.weight)->values, tensors[begin + p.name + ".weight"]) << p.weight;
        EXPECT_EQ(loaded.find(p.weight)->shape, (std::vector<int64_t>{p.out_features, 8})) << p.weight;
        if (biases.find(p.letter) == std::string::npos) continue;
        EXPECT_EQ(loaded.find(p.bias)->values, tensors[begin + p.name + ".bias"]) << p.bias;
    }
    std::vector<std::string> names, wanted = wanted_weights;
    for (const LayerTensor& tensor : loaded.tensors) names.push_back(tensor.name);
    wanted.insert(wanted.end(), wanted_biases.begin(), wanted_biases.end());
    EXPECT_EQ(names, wanted);
}

INSTANTIATE_TEST_SUITE_P(, SeparateProjections, testing::ValuesIn(kSeparate),
                         [](const auto& test) { return std::string(test.param.name); });

// Rows [first, first + count) of [rows, width].
std::vector<float> rows_of(const std::vector<float>& values, int64_t width, int64_t first, int64_t count) {
    return {values.begin() + first * width, values.begin() + (first + count) * width};
}

std::vector<float> joined_rows(std::vector<float> a, const std::vector<float>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

class LayerWeights : public testing::Test {
protected:
    LoadedLayer load(const std::string& config, const std::string& layer) {
        folder_.write("config.json", config);
        tensors_.write(folder_ / "model.safetensors");
        return load_model_layer(folder_ / "config.json", layer, folder_.path());
    }

    ModelFolder folder_;
    MadeUpTensors tensors_;
};

TEST_F(LayerWeights, OfGpt2AreTakenApartAndTurned) {
    tensors_.add("transformer.h.2.attn.c_attn.weight", {8, 24});  // [in, out]
    tensors_.add("transformer.h.2.attn.c_attn.bias", {24});
    tensors_.add("transformer.h.2.attn.c_proj.weight", {8, 8});
    tensors_.add("transformer.h.2.attn.c_proj.bias", {8});
    const LoadedLayer loaded =
        load(R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 3})", "decoder.self.2");

    const std::vector<float>& fused = tensors_["transformer.h.2.attn.c_attn.weight"];
    const std::vector<float>& out = tensors_["transformer.h.2.attn.c_proj.weight"];
    const char* const names[] = {"wq", "wk", "wv"};
    for (size_t row = 0; row < 8; ++row) {
        for (size_t column = 0; column < 8; ++column) {
            for (size_t n = 0; n < 3; ++n) {
                EXPECT_EQ(loaded.find(names[n])->values[row * 8 + column], fused[column * 24 + 8 * n + row]);
            }
            EXPECT_EQ(loaded.find("wo")->values[row * 8 + column], out[column * 8 + row]);
        }
    }
    const std::vector<float>& bias = tensors_["transformer.h.2.attn.c_attn.bias"];
    EXPECT_EQ(loaded.find("bq")->values, rows_of(bias, 1, 0, 8));
    EXPECT_EQ(loaded.find("bk")->values, rows_of(bias, 1, 8, 8));
    EXPECT_EQ(loaded.find("bv")->values, rows_of(bias, 1, 16, 8));
    EXPECT_EQ(loaded.find("bo")->values, tensors_["transformer.h.2.attn.c_proj.bias"]);
}

TEST_F(LayerWeights, OfPhi3AreTakenApart) {
    tensors_.add("model.layers.0.self_attn.qkv_proj.weight", {16, 8});  // 8 + 4 + 4 rows
    tensors_.add("model.layers.0.self_attn.o_proj.weight", {8, 8});
    const LoadedLayer loaded = load(ATTNC_LLAMA_LIKE("phi3", ""), "0");
    const std::vector<float>& fused = tensors_["model.layers.0.self_attn.qkv_proj.weight"];
    EXPECT_EQ(loaded.find("wq")->values, rows_of(fused, 8, 0, 8));
    EXPECT_EQ(loaded.find("wk")->values, rows_of(fused, 8, 8, 4));
    EXPECT_EQ(loaded.find("wv")->values, rows_of(fused, 8, 12, 4));
    EXPECT_EQ(loaded.find("wk")->shape, (std::vector<int64_t>{4, 8}));
    EXPECT_EQ(loaded.find("wo")->values, tensors_["model.layers.0.self_attn.o_proj.weight"]);
    EXPECT_EQ(loaded.tensors.size(), 4U);
}

TEST_F(LayerWeights, OfGptBigcodeShareOneHeadOfKeysAndValues) {
    tensors_.add("transformer.h.0.attn.c_attn.weight", {16, 8});
    tensors_.add("transformer.h.0.attn.c_attn.bias", {16});
    tensors_.add("transformer.h.0.attn.c_proj.weight", {8, 8});
    tensors_.add("transformer.h.0.attn.c_proj.bias", {8});
    const LoadedLayer loaded =
        load(R"({"model_type": "gpt_bigcode", "n_embd": 8, "n_head": 2, "n_layer": 1})", "0");
    const std::vector<float>& fused = tensors_["transformer.h.0.attn.c_attn.weight"];
    EXPECT_EQ(loaded.find("wk")->values, rows_of(fused, 8, 8, 4));
    EXPECT_EQ(loaded.find("bv")->values, rows_of(tensors_["transformer.h.0.attn.c_attn.bias"], 1, 12, 4));
}

// Head by head its query, key and value.
TEST_F(LayerWeights, OfBloomAreTakenApartHeadByHead) {
    tensors_.add("transformer.h.0.self_attention.query_key_value.weight", {24, 8});
    tensors_.add("transformer.h.0.self_attention.query_key_value.bias", {24});
    tensors_.add("transformer.h.0.self_attention.dense.weight", {8, 8});
    tensors_.add("transformer.h.0.self_attention.dense.bias", {8});
    const LoadedLayer loaded =
        load(R"({"model_type": "bloom", "n_embed": 8, "num_attention_heads": 2, "n_layer": 1})", "0");
    const std::vector<float>& fused = tensors_["transformer.h.0.self_attention.query_key_value.weight"];
    const std::vector<float>& bias = tensors_["transformer.h.0.self_attention.query_key_value.bias"];
    int64_t first = 0;
    for (const char* const part : {"q", "k", "v"}) {
        EXPECT_EQ(loaded.find(std::string("w") + part)->values,
                  joined_rows(rows_of(fused, 8, first, 4), rows_of(fused, 8, first + 12, 4)));
        EXPECT_EQ(loaded.find(std::string("b") + part)->values,
                  joined_rows(rows_of(bias, 1, first, 4), rows_of(bias, 1, first + 12, 4)));
        first += 4;
    }
    EXPECT_EQ(loaded.find("alibi_slopes")->values, (std::vector<float>{1.0F / 16, 1.0F / 256}));
}

TEST_F(LayerWeights, OfGptNeoxAreTakenApartHeadByHead) {
    tensors_.add("gpt_neox.layers.0.attention.query_key_value.weight", {24, 8});
    tensors_.add("gpt_neox.layers.0.attention.query_key_value.bias", {24});
    tensors_.add("gpt_neox.layers.0.attention.dense.weight", {8, 8});
    tensors_.add("gpt_neox.layers.0.attention.dense.bias", {8});
    const LoadedLayer loaded =
        load(R"({"model_type": "gpt_neox", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1,
                 "rotary_pct": 0.5})",
             "0");
    const std::vector<float>& fused = tensors_["gpt_neox.layers.0.attention.query_key_value.weight"];
    EXPECT_EQ(loaded.find("wk")->values, joined_rows(rows_of(fused, 8, 4, 4), rows_of(fused, 8, 16, 4)));
}

TEST_F(LayerWeights, OfMptHaveSlopes) {
    tensors_.add("transformer.blocks.0.attn.Wqkv.weight", {24, 8});
    tensors_.add("transformer.blocks.0.attn.out_proj.weight", {8, 8});
    const LoadedLayer loaded =
        load(R"({"model_type": "mpt", "d_model": 8, "n_heads": 2, "n_layers": 1, "attn_config": {}})", "0");
    EXPECT_EQ(loaded.find("wv")->values,
              rows_of(tensors_["transformer.blocks.0.attn.Wqkv.weight"], 8, 16, 8));
    EXPECT_EQ(loaded.find("alibi_slopes")->values, (std::vector<float>{1.0F / 16, 1.0F / 256}));
}

void add_llama_like(MadeUpTensors& tensors, const std::string& begin) {
    tensors.add(begin + "q_proj.weight", {8, 8});
    tensors.add(begin + "k_proj.weight", {4, 8});
    tensors.add(begin + "v_proj.weight", {4, 8});
    tensors.add(begin + "o_proj.weight", {8, 8});
}

TEST_F(LayerWeights, OfQwen3HaveNorms) {
    const std::string begin = "model.layers.2.self_attn.";
    add_llama_like(tensors_, begin);
    tensors_.add(begin + "q_norm.weight", {4});
    tensors_.add(begin + "k_norm.weight", {4});
    const LoadedLayer loaded = load(ATTNC_LLAMA_LIKE("qwen3", R"("rms_norm_eps": 1e-5,)"), "2");
    EXPECT_EQ(loaded.find("q_norm")->values, tensors_[begin + "q_norm.weight"]);
    EXPECT_EQ(loaded.find("k_norm")->values, tensors_[begin + "k_norm.weight"]);
    EXPECT_EQ(loaded.layer.settings.qk_norm_epsilon, 1e-5);
}

TEST_F(LayerWeights, OfGemma3HaveNormsThatMultiplyByOneMore) {
    const std::string begin = "language_model.model.layers.0.self_attn.";
    add_llama_like(tensors_, begin);
    tensors_.add(begin + "q_norm.weight", {4});
    tensors_.add(begin + "k_norm.weight", {4});
    const LoadedLayer loaded = load(ATTNC_LLAMA_LIKE("gemma3_text", ""), "0");
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(loaded.find("q_norm")->values[i], 1 + tensors_[begin + "q_norm.weight"][i]);
        EXPECT_EQ(loaded.find("k_norm")->values[i], 1 + tensors_[begin + "k_norm.weight"][i]);
    }
}

TEST_F(LayerWeights, OfGptOssHaveBiasesAndSinks) {
    const std::string begin = "model.layers.1.self_attn.";
    add_llama_like(tensors_, begin);
    for (const auto& [name, features] : {std::pair{"q", 8}, {"k", 4}, {"v", 4}, {"o", 8}})
        tensors_.add(begin + name + "_proj.bias", {features});
    tensors_.add(begin + "sinks", {2});
    const LoadedLayer loaded = load(ATTNC_LLAMA_LIKE("gpt_oss", ""), "1");
    EXPECT_EQ(loaded.find("sink")->values, tensors_[begin + "sinks"]);
    EXPECT_EQ(loaded.find("bo")->values, tensors_[begin + "o_proj.bias"]);
    EXPECT_EQ(loaded.tensors.size(), 9U);
}

TEST_F(LayerWeights, RefuseABiasThatTheConfigurationDoesNotHave) {
    const std::string begin = "model.layers.1.self_attn.";
    add_llama_like(tensors_, begin);
    tensors_.add(begin + "k_proj.bias", {4});
    EXPECT_EQ(
        error_of_action([&] { load(ATTNC_LLAMA_LIKE("llama", ""), "1"); }),
        folder_ / "model.safetensors" +
            ": tensor 'model.layers.1.self_attn.k_proj.bias' is there, but the model's configuration has no "
            "such bias");
}

TEST_F(LayerWeights, NeedTheLayersNumber) {
    EXPECT_EQ(error_of_action([&] { load(kBert, "encoder.self"); }),
              folder_ / "config.json" + ": no number of a layer is given, as in encoder.self.0");
}

TEST_F(LayerWeights, NameTheMissingTensor) {
    const std::string begin = "model.layers.1.self_attn.";
    tensors_.add(begin + "q_proj.weight", {8, 8});
    const std::string file = folder_ / "model.safetensors";
    EXPECT_EQ(error_of_action([&] { load(ATTNC_LLAMA_LIKE("llama", ""), "1"); }),
              file + ": no tensor 'model.layers.1.self_attn.k_proj.weight'");
    EXPECT_EQ(error_of_action([&] { load(ATTNC_LLAMA_LIKE("llama", ""), "2"); }),
              file + ": no tensor 'layers.2.self_attn.q_proj.weight', with or without a prefix");
}

TEST_F(LayerWeights, NameTheTensorOfAnotherShape) {
    const std::string begin = "model.layers.1.self_attn.";
    add_llama_like(tensors_, begin);
    tensors_.add(begin + "v_proj.weight", {8, 8});
    EXPECT_EQ(
        error_of_action([&] { load(ATTNC_LLAMA_LIKE("llama", ""), "1"); }),
        folder_ / "model.safetensors" +
            ": tensor 'model.layers.1.self_attn.v_proj.weight' is F32[8,8], wanted F32, F16 or BF16[4,8]");
}

TEST_F(LayerWeights, BecomeAPlainFileWithTheSettingsAsAttributes) {
    const std::string begin = "model.layers.0.self_attn.";
    add_llama_like(tensors_, begin);
    const LoadedLayer loaded = load(
        ATTNC_LLAMA_LIKE("mistral", R"("sliding_window": 16, "max_position_embeddings": 64, "rope_scaling":
            {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},)"),
        "0");
    write_layer_file(folder_ / "layer.safetensors", loaded);
    const SafetensorsFile file(folder_ / "layer.safetensors");
    EXPECT_THAT(
        file.metadata(),
        testing::ElementsAre(
            testing::Pair("format", "attnc-layer-1"), testing::Pair("layer", "decoder.self.0"),
            testing::Pair("model_type", "mistral"),
            testing::Pair("problem", "d8_h2_kv1_f32_causal_rope_cache"), testing::Pair("rotary_dim", "4"),
            testing::Pair("rotary_magnitude", "1.138629436111989"), testing::Pair("window_left", "15")));
    EXPECT_EQ(file.to_f32(file.at("wk")), loaded.find("wk")->values);
    EXPECT_EQ(file.at("rotary_frequencies").type, StoredType::kF64);
    EXPECT_EQ(file.to_f64(file.at("rotary_frequencies")), loaded.layer.settings.rotary.frequencies);
    EXPECT_EQ(file.tensors().size(), 5U);
}

TEST_F(LayerWeights, BecomeTheArgumentsOfALayer) {
    const std::string begin = "model.layers.0.self_attn.";
    add_llama_like(tensors_, begin);
    const LoadedLayer loaded =
        load(ATTNC_LLAMA_LIKE(
                 "llama", R"("rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},)"),
             "0");
    const attnc_weights weights = layer_weights(loaded);
    EXPECT_EQ(weights.wk.data, loaded.find("wk")->values.data());
    EXPECT_EQ(weights.wk.dtype, ATTNC_F32);
    EXPECT_EQ(weights.wk.rank, 2);
    EXPECT_EQ(weights.wk.extent[0], 4);
    EXPECT_EQ(weights.wk.extent[1], 8);
    EXPECT_EQ(weights.wk.stride[0], 8);
    EXPECT_EQ(weights.wk.stride[1], 1);
    EXPECT_EQ(weights.bq.rank, 0);
    EXPECT_EQ(weights.rotary_frequencies.rank, 0);
    const attnc_layer_options options = layer_options(loaded);
    EXPECT_EQ(options.rotary.dim, 4);
    EXPECT_EQ(options.rotary.base, 500000.0);
    EXPECT_EQ(options.rotary.scaling, ATTNC_ROTARY_SCALING_LLAMA3);
    EXPECT_EQ(options.rotary.factor, 32);
    EXPECT_EQ(options.rotary.original_positions, 8192);
    EXPECT_EQ(options.window, ATTNC_WINDOW_NOT_GIVEN);
}

}  // namespace
}  // namespace attnc::test
