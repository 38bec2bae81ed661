// The sentence embedder as a user runs it, against a float64 run of the whole model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "models/layer_weights.h"
#include "run_program.h"
#include "support/safetensors.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Largest error of an element of a normalised embedding that the project promises.
constexpr double kTolerance = 5e-6;

const Json& reference() {
    static const Json json = [] {
        std::ifstream file(fs::path(ATTNC_TEST_DATA) / "minilm/sentence_embeddings.json");
        return Json::parse(file);
    }();
    return json;
}

std::vector<std::string> texts() {
    std::vector<std::string> result;
    for (const Json& sentence : reference()["sentences"]) result.push_back(sentence["text"]);
    return result;
}

class Minilm : public testing::Test {
protected:
    void SetUp() override {
        if (std::string(MINILM_MODEL).empty()) GTEST_SKIP() << "no model: run scripts/setup --examples";
    }

    Finished run(std::vector<std::string> arguments, const std::string& input = "") const {
        arguments.insert(arguments.begin(), MINILM_PROGRAM);
        return run_program(arguments, input);
    }

    // What --json writes for the sentences.
    Json embed(const std::vector<std::string>& sentences, std::vector<std::string> arguments = {}) const {
        const std::string file = directory_ / "embeddings.json";
        arguments.insert(arguments.end(), {"--model", MINILM_MODEL, "--json", file, "--"});
        arguments.insert(arguments.end(), sentences.begin(), sentences.end());
        const Finished finished = run(arguments);
        if (finished.status != 0) throw std::runtime_error("minilm failed: " + finished.err);
        return Json::parse(read_text(file));
    }

    TemporaryDirectory directory_;
};

class MinilmOnTarget : public Minilm, public testing::WithParamInterface<const char*> {};

TEST_P(MinilmOnTarget, EmbeddingsAgreeWithTheFloat64Model) {
    const Finished probe = run({"--model", MINILM_MODEL, "--target", GetParam(), "Why?"});
    if (probe.status != 0 && probe.err.find("needs instructions that this CPU") != std::string::npos)
        GTEST_SKIP() << probe.err;

    const Json got = embed(texts(), {"--target", GetParam()});
    EXPECT_EQ(got["dim"], 384);
    EXPECT_EQ(got["target"], std::string(GetParam()));
    const Json& wanted = reference()["sentences"];
    ASSERT_EQ(got["sentences"].size(), wanted.size());
    double worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
        const Json& sentence = got["sentences"][i];
        EXPECT_EQ(sentence["text"], wanted[i]["text"]);
        EXPECT_EQ(sentence["token_ids"], wanted[i]["token_ids"]) << wanted[i]["text"];
        ASSERT_EQ(sentence["embedding"].size(), wanted[i]["embedding"].size());
        for (size_t k = 0; k < wanted[i]["embedding"].size(); ++k) {
            const double error =
                std::abs(sentence["embedding"][k].get<double>() - wanted[i]["embedding"][k].get<double>());
            EXPECT_TRUE(error <= kTolerance) << "sentence " << i << ", element " << k << ": off by " << error;
            worst = std::max(worst, error);
        }
    }
    RecordProperty("worst_error", std::to_string(worst));

    // The reference's cosines have six digits.
    for (size_t i = 0; i < wanted.size(); ++i) {
        for (size_t j = 0; j < wanted.size(); ++j) {
            const double error =
                std::abs(got["cosine"][i][j].get<double>() - reference()["cosine"][i][j].get<double>());
            EXPECT_TRUE(error <= kTolerance + 5e-7)
                << "cosine of " << i << " and " << j << ": off by " << error;
        }
    }
}
INSTANTIATE_TEST_SUITE_P(, MinilmOnTarget,
                         testing::Values("x86-64-linux-avx512_skylake", "x86-64-linux-avx2-fma-f16c",
                                         "x86-64-linux"),
                         [](const auto& test) {
                             std::string name = test.param;
                             for (char& c : name)
                                 c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                             return name;
                         });

// The stored layers were taken from the model by other code.
TEST_F(Minilm, LayersLoadByTheModelsNames) {
    for (const int layer : {0, 5}) {
        const LoadedLayer loaded = load_model_layer(fs::path(MINILM_MODEL) / "config.json",
                                                    "encoder.self." + std::to_string(layer), MINILM_MODEL);
        const SafetensorsFile stored(ATTNC_TEST_DATA "/vectors/minilm/layer" + std::to_string(layer) +
                                     ".safetensors");
        EXPECT_EQ(to_string(loaded.layer.config), "d384_h12_f32");
        for (const char* const name : {"wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo"}) {
            ASSERT_NE(loaded.find(name), nullptr) << name;
            EXPECT_TRUE(loaded.find(name)->values == stored.to_f32(stored.at(name)))
                << name << " of layer " << layer;
        }
    }
}

TEST_F(Minilm, SentenceAloneHasTheSameBitsAsInAPaddedBatch) {
    const Json together = embed(texts());
    for (size_t i = 0; i < texts().size(); ++i) {
        const Json alone = embed({texts()[i]});
        EXPECT_TRUE(alone["sentences"][0] == together["sentences"][i]) << texts()[i];
    }
}

TEST_F(Minilm, BitsDoNotDependOnThreads) {
    const Json one = embed(texts(), {"--threads", "1"});
    for (const char* threads : {"2", "3", "8"})
        EXPECT_TRUE(embed(texts(), {"--threads", threads}) == one) << threads;
}

TEST_F(Minilm, MoreSentencesThanABatchChangeNoBit) {
    std::vector<std::string> many;
    for (int i = 0; i < 40; ++i) many.push_back(texts()[static_cast<size_t>(i) % texts().size()]);
    const Json few = embed(texts()), got = embed(many);
    ASSERT_EQ(got["sentences"].size(), many.size());
    for (size_t i = 0; i < many.size(); ++i) {
        EXPECT_TRUE(got["sentences"][i] == few["sentences"][i % few["sentences"].size()]) << "sentence " << i;
    }
}

TEST_F(Minilm, PrintsTheTableTheNearestPairAndAttentionsShare) {
    std::vector<std::string> arguments{"--model", MINILM_MODEL};
    for (const std::string& text : texts()) arguments.push_back(text);
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.status, 0);
    EXPECT_EQ(finished.err, "");
    EXPECT_NE(finished.out.find("  4  Why?  (4 tokens)\n"), std::string::npos) << finished.out;
    EXPECT_NE(finished.out.find("  5  0.063 -0.001 -0.026  0.088  1.000  0.626 -0.005  0.007\n"),
              std::string::npos)
        << finished.out;
    EXPECT_NE(finished.out.find("nearest pair: 5 and 6, cosine 0.626\n  How do I sort a list of numbers?\n"
                                "  What is the way to order an array of integers?\n"),
              std::string::npos)
        << finished.out;
    EXPECT_NE(finished.out.find("attention took "), std::string::npos) << finished.out;
}

TEST_F(Minilm, ReadsSentencesFromStandardInput) {
    const std::string file = directory_ / "stdin.json";
    const Finished finished =
        run({"--model", MINILM_MODEL, "--json", file}, "Why?\r\n\n  \nHow do I sort a list?");
    ASSERT_EQ(finished.status, 0) << finished.err;
    const Json from_arguments = embed({"Why?", "How do I sort a list?"});
    EXPECT_TRUE(Json::parse(read_text(file))["sentences"] == from_arguments["sentences"]);
}

TEST_F(Minilm, TakesEachArgumentAsItStands) {
    const std::vector<std::string> odd{"[a, b]", "-", "--json", "%%", "\"quoted\" 'text'", "a=b", "[]"};
    const Json got = embed(odd);
    ASSERT_EQ(got["sentences"].size(), odd.size());
    for (size_t i = 0; i < odd.size(); ++i) EXPECT_EQ(got["sentences"][i]["text"], odd[i]);
}

TEST_F(Minilm, OneSentenceHasNoNearestPair) {
    const Finished finished = run({"--model", MINILM_MODEL, "Why?"});
    EXPECT_EQ(finished.status, 0);
    EXPECT_EQ(finished.out.find("nearest"), std::string::npos);
}

TEST_F(Minilm, LongSentenceIsCutWithANote) {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "why ";
    const Finished finished = run({"--model", MINILM_MODEL, "Why?", text});
    EXPECT_EQ(finished.status, 0);
    EXPECT_EQ(finished.err, "minilm: note: only the first 256 tokens of sentence 2 are used\n");
}

// Wrong use and wrong files: one line each.
class MinilmRefuses : public Minilm {
protected:
    void SetUp() override {
        Minilm::SetUp();
        if (IsSkipped()) return;
        for (const char* name : {"config.json", "vocab.txt", "model.safetensors"}) {
            fs::create_symlink(fs::path(MINILM_MODEL) / name, directory_ / name);
        }
    }

    void replace(const std::string& name, const std::string& text) {
        fs::remove(directory_ / name);
        std::ofstream(directory_ / name, std::ios::binary) << text;
    }

    Json config() const { return Json::parse(read_text(fs::path(MINILM_MODEL) / "config.json")); }

    std::string here(const std::string& name) const { return (directory_ / name).string(); }

    void expect_error(const std::string& line, const std::vector<std::string>& sentences = {"Why?"}) const {
        std::vector<std::string> arguments{"--model", directory_.path().string(), "--"};
        arguments.insert(arguments.end(), sentences.begin(), sentences.end());
        const Finished finished = run(arguments);
        EXPECT_EQ(finished.status, 1);
        EXPECT_EQ(finished.err, "minilm: " + line + "\n");
        EXPECT_EQ(finished.out, "");
    }
};

TEST_F(MinilmRefuses, WrongUse) {
    const auto expect = [&](const std::vector<std::string>& arguments, const std::string& line) {
        const Finished finished = run(arguments);
        EXPECT_EQ(finished.status, 2);
        EXPECT_EQ(finished.err, "minilm: " + line + "\n");
    };
    expect({"Why?"}, "--model is required");
    expect({"--model", MINILM_MODEL, "--threads", "0", "Why?"}, "--threads: Value 0 not in range 1 to 1024");
    expect({"--model", MINILM_MODEL, "--threads", "two", "Why?"},
           "--threads: Value two not in range 1 to 1024");
}

TEST_F(MinilmRefuses, NoSentences) {
    const Finished finished = run({"--model", MINILM_MODEL}, "\n \n");
    EXPECT_EQ(finished.status, 1);
    EXPECT_EQ(finished.err,
              "minilm: no sentences: give them as arguments or on standard input, one per line\n");
}

TEST_F(MinilmRefuses, EmptySentence) { expect_error("sentence 2 is empty", {"Why?", " \t"}); }

TEST_F(MinilmRefuses, TextThatIsNotUtf8) { expect_error("sentence 1 is not valid UTF-8", {"caf\xe9"}); }

TEST_F(MinilmRefuses, UnknownTarget) {
    const Finished finished = run({"--model", MINILM_MODEL, "--target", "pdp-11", "Why?"});
    EXPECT_EQ(finished.status, 1);
    EXPECT_EQ(finished.err, "minilm: target pdp-11 is not in the library\n");
}

TEST_F(MinilmRefuses, DirectoryThatIsNotThere) {
    const Finished finished = run({"--model", "/nonexistent", "Why?"});
    EXPECT_EQ(finished.status, 1);
    EXPECT_EQ(finished.err, "minilm: no model directory /nonexistent\n");
}

TEST_F(MinilmRefuses, MissingConfiguration) {
    fs::remove(directory_ / "config.json");
    expect_error("cannot read " + here("config.json"));
}

TEST_F(MinilmRefuses, ConfigurationThatIsNotJson) {
    replace("config.json", "{\"hidden_size\": 384,");
    expect_error(here("config.json") + " is not a JSON object");
    replace("config.json", "[1, 2]");
    expect_error(here("config.json") + " is not a JSON object");
}

TEST_F(MinilmRefuses, ConfigurationWithWrongFields) {
    const auto with = [&](const char* name, const Json& value) {
        Json json = config();
        json[name] = value;
        replace("config.json", json.dump());
    };
    Json json = config();
    json.erase("vocab_size");
    replace("config.json", json.dump());
    expect_error(here("config.json") + " has no 'vocab_size'");
    with("intermediate_size", -1);
    expect_error(here("config.json") +
                 ": 'intermediate_size' is -1, wanted a whole number from 1 to 1048576");
    with("intermediate_size", "many");
    expect_error(here("config.json") +
                 ": 'intermediate_size' is \"many\", wanted a whole number from 1 to 1048576");
    with("layer_norm_eps", 0);
    expect_error(here("config.json") + ": 'layer_norm_eps' is 0, wanted a number between 0 and 1");
    with("hidden_act", "relu");
    expect_error(here("config.json") + ": 'hidden_act' is \"relu\", wanted \"gelu\"");
    with("num_attention_heads", 6);
    expect_error(here("config.json") +
                 " has hidden_size 384 and 6 heads, but the program was built for 384 and 12");
}

TEST_F(MinilmRefuses, MissingVocabulary) {
    fs::remove(directory_ / "vocab.txt");
    expect_error("cannot read " + here("vocab.txt"));
}

TEST_F(MinilmRefuses, VocabularyOfAnotherSize) {
    replace("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n");
    expect_error(here("vocab.txt") + " has 4 pieces, wanted vocab_size 30522");
}

TEST_F(MinilmRefuses, MissingWeights) {
    fs::remove(directory_ / "model.safetensors");
    EXPECT_THROW(SafetensorsFile(here("model.safetensors")), SafetensorsError);
    expect_error([&] {
        try {
            SafetensorsFile file(here("model.safetensors"));
        } catch (const SafetensorsError& error) {
            return std::string(error.what());
        }
        return std::string();
    }());
}

TEST_F(MinilmRefuses, TruncatedWeights) {
    const std::string whole = read_text(fs::path(MINILM_MODEL) / "model.safetensors");
    for (const size_t size : {size_t{0}, size_t{7}, size_t{1000}, whole.size() - 1}) {
        replace("model.safetensors", whole.substr(0, size));
        const Finished finished = run({"--model", directory_.path().string(), "Why?"});
        EXPECT_EQ(finished.status, 1);
        EXPECT_EQ(finished.err.rfind("minilm: " + here("model.safetensors") + ": ", 0), 0U) << finished.err;
        EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    }
}

TEST_F(MinilmRefuses, MissingTensorAndTensorOfAnotherShape) {
    fs::remove(directory_ / "model.safetensors");
    const std::vector<float> numbers(6);
    const std::string words = "embeddings.word_embeddings.weight";
    write_safetensors(here("model.safetensors"), {},
                      std::vector<TensorToStore>{{"other", StoredType::kF32, {2, 3}, numbers.data()}});
    expect_error(here("model.safetensors") + ": no tensor '" + words + "'");
    write_safetensors(here("model.safetensors"), {},
                      std::vector<TensorToStore>{{words, StoredType::kF32, {2, 3}, numbers.data()}});
    expect_error(here("model.safetensors") + ": tensor '" + words + "' is F32[2,3], wanted F32[30522,384]");
}

TEST_F(MinilmRefuses, FileThatCannotBeWritten) {
    const auto expect = [&](const std::string& file, const std::string& reason) {
        const Finished finished = run({"--model", MINILM_MODEL, "--json", file, "Why?"});
        EXPECT_EQ(finished.status, 1);
        EXPECT_EQ(finished.err, "minilm: cannot write " + file + ": " + reason + "\n");
        EXPECT_EQ(finished.out, "");
    };
    expect("/nonexistent/x.json", "No such file or directory");
    expect(directory_.path().string(), "Is a directory");
    expect("/dev/full", "No space left on device");
}

TEST_F(MinilmRefuses, FullStandardOutput) {
    const Finished finished = run_program({MINILM_PROGRAM, "--model", MINILM_MODEL, "Why?"}, "", "/dev/full");
    EXPECT_EQ(finished.status, 1);
    EXPECT_EQ(finished.err, "minilm: cannot write to standard output\n");
}

TEST_F(Minilm, JsonFileReplacesAnOlderOneAndLeavesNothingElse) {
    const fs::path folder = directory_ / "results";
    fs::create_directory(folder);
    std::ofstream(folder / "e.json") << "old";
    fs::create_symlink("e.json", folder / "link.json");
    EXPECT_EQ(run({"--model", MINILM_MODEL, "--json", folder / "link.json", "Why?"}).status, 0);
    EXPECT_TRUE(fs::is_symlink(folder / "link.json"));
    EXPECT_EQ(Json::parse(read_text(folder / "e.json"))["sentences"].size(), 1U);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
}

}  // namespace
}  // namespace attnc::test
