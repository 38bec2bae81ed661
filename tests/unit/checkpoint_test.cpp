// Checkpoints: one file or several, types, and every way in which they can be wrong.
#include "models/checkpoint.h"

#include <gtest/gtest.h>

#include "models/layer_weights.h"
#include "tests/unit/model_files.h"

namespace attnc::test {
namespace {

constexpr int64_t kShape[] = {2, 3};

TEST(Checkpoint, ConvertsHalfPrecisionExactly) {
    const ModelFolder folder;
    MadeUpTensors tensors;
    tensors.add("x", {2, 3});
    for (const StoredType type : {StoredType::kF32, StoredType::kF16, StoredType::kBF16}) {
        tensors.write(folder / "model.safetensors", type);
        EXPECT_EQ(Checkpoint(folder.path()).read("x", kShape), tensors["x"]) << stored_type_name(type);
    }
}

TEST(Checkpoint, ReadsShardsByTheirIndex) {
    const ModelFolder folder;
    MadeUpTensors first, second;
    first.add("a", {2, 3});
    second.add("other", {5});
    second.add("b", {2, 3});
    first.write(folder / "model-00001-of-00002.safetensors");
    second.write(folder / "model-00002-of-00002.safetensors", StoredType::kBF16);
    folder.write("model.safetensors.index.json",
                 R"({"metadata": {"total_size": 1}, "weight_map": {"a": "model-00001-of-00002.safetensors",
                     "b": "model-00002-of-00002.safetensors", "other": "model-00002-of-00002.safetensors"}})");
    for (const std::string& path : {folder.path(), folder / "model.safetensors.index.json"}) {
        const Checkpoint checkpoint(path);
        EXPECT_EQ(checkpoint.path(), folder / "model.safetensors.index.json");
        EXPECT_EQ(checkpoint.read("a", kShape), first["a"]);
        EXPECT_EQ(checkpoint.read("b", kShape), second["b"]);
    }
}

TEST(Checkpoint, OpensOnlyTheShardThatItReads) {
    const ModelFolder folder;
    MadeUpTensors tensors;
    tensors.add("a", {2, 3});
    tensors.write(folder / "one.safetensors");
    folder.write(
        "model.safetensors.index.json",
        R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}})");
    const Checkpoint checkpoint(folder.path());
    EXPECT_EQ(checkpoint.read("a", kShape), tensors["a"]);
    EXPECT_EQ(error_of_action([&] { (void)checkpoint.read("b", kShape); }),
              folder / "two.safetensors" + ": cannot open: No such file or directory");
    EXPECT_EQ(error_of_action([&] { (void)checkpoint.read("c", kShape); }),
              folder / "one.safetensors" + ": no tensor 'c', which " +
                  folder / "model.safetensors.index.json" + " says is there");
}

TEST(Checkpoint, NamesTheTensorThatIsMissingOrOtherThanWanted) {
    const ModelFolder folder;
    const int64_t integers[] = {1, 2, 3};
    const TensorToStore stored[] = {{"i", StoredType::kI64, {3}, integers}};
    write_safetensors(folder / "x.safetensors", {}, stored);
    const Checkpoint checkpoint(folder / "x.safetensors");
    EXPECT_EQ(error_of_action([&] { (void)checkpoint.read("a", kShape); }),
              folder / "x.safetensors" + ": no tensor 'a'");
    const int64_t three[] = {3};
    EXPECT_EQ(error_of_action([&] { (void)checkpoint.read("i", three); }),
              folder / "x.safetensors" + ": tensor 'i' is I64[3], wanted F32, F16 or BF16[3]");
}

TEST(Checkpoint, FindsThePrefixOfAModel) {
    const ModelFolder folder;
    MadeUpTensors tensors;
    for (const char* const name : {"plain", "bert.known", "a.b.other", "x.twice", "y.twice", "bert.twice"})
        tensors.add(name, {1});
    tensors.write(folder / "model.safetensors");
    const Checkpoint checkpoint(folder.path());
    EXPECT_EQ(checkpoint.prefix_of("plain", {"bert."}), "");
    EXPECT_EQ(checkpoint.prefix_of("known", {"roberta.", "bert."}), "bert.");
    EXPECT_EQ(checkpoint.prefix_of("other", {}), "a.b.");
    EXPECT_EQ(checkpoint.prefix_of("twice", {"bert."}), "bert.");
    EXPECT_EQ(
        error_of_action([&] { (void)checkpoint.prefix_of("twice", {}); }),
        folder / "model.safetensors" + ": tensor 'twice' is there after several prefixes, 'bert.' and 'x.'");
    EXPECT_EQ(error_of_action([&] { (void)checkpoint.prefix_of("ther", {}); }),
              folder / "model.safetensors" + ": no tensor 'ther', with or without a prefix");
}

TEST(Checkpoint, RefusesWhatIsNone) {
    const ModelFolder folder;
    EXPECT_EQ(
        error_of_action([&] { const Checkpoint checkpoint(folder.path()); }),
        folder.path() + ": neither model.safetensors nor model.safetensors.index.json is in this folder");
    EXPECT_EQ(error_of_action([&] { const Checkpoint checkpoint(folder / "x.safetensors"); }),
              folder / "x.safetensors" + ": cannot open: No such file or directory");
    const std::string index = folder / "index.json";
    const auto error_of_index = [&](const char* text) {
        folder.write("index.json", text);
        return error_of_action([&] { const Checkpoint checkpoint(index); });
    };
    EXPECT_EQ(error_of_index("{"), index + ": ends before its JSON does");
    EXPECT_EQ(error_of_index("{}"), index + ": weight_map is missing");
    EXPECT_EQ(error_of_index(R"({"weight_map": []})"), index + ": weight_map is not a JSON object");
    EXPECT_EQ(error_of_index(R"({"weight_map": {"a": 1}})"),
              index + ": weight_map has an entry that is not a string");
    for (const char* const name : {"../a.safetensors", "/a.safetensors", "b/a.safetensors", "..", ""}) {
        EXPECT_EQ(error_of_index((R"({"weight_map": {"a": ")" + std::string(name) + "\"}}").c_str()),
                  index + ": weight_map names '" + name + "', which is not a file beside it");
    }
}

}  // namespace
}  // namespace attnc::test
