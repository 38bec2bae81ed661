// MiniLM's tokenizer against token ids that the model's published tokenizer gives.
#include "examples/minilm/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "run_program.h"

namespace minilm {
namespace {

using attnc::test::TemporaryDirectory;

Tokenizer write_and_read(const std::string& vocabulary) {
    const TemporaryDirectory directory;
    std::ofstream(directory / "vocab.txt") << vocabulary;
    return Tokenizer(directory / "vocab.txt");
}

const std::string kSmall = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##able\n##a\nable\n!\n";

TEST(MinilmTokenizer, GivesThePublishedTokenizersIds) {
    if (std::string(MINILM_MODEL).empty()) GTEST_SKIP() << "no model: run scripts/setup --examples";
    const Tokenizer tokenizer(std::filesystem::path(MINILM_MODEL) / "vocab.txt");
    std::ifstream file(std::filesystem::path(ATTNC_TEST_DATA) / "minilm/tokenizer_cases.json");
    const auto cases = nlohmann::json::parse(file)["cases"];
    ASSERT_GT(cases.size(), 20U);
    for (const auto& item : cases) {
        EXPECT_EQ(tokenizer.encode(item["text"].get<std::string>(), 256).ids, item["token_ids"])
            << item["name"];
    }
}

TEST(MinilmTokenizer, TakesTheLongestPieceFirst) {
    const Tokenizer tokenizer = write_and_read(kSmall);
    EXPECT_EQ(tokenizer.encode("unable able una", 16).ids, (std::vector<int32_t>{2, 4, 5, 7, 4, 6, 3}));
}

TEST(MinilmTokenizer, WordThatCannotBeWrittenInPiecesIsUnknownAsAWhole) {
    EXPECT_EQ(write_and_read(kSmall).encode("unablex!", 16).ids, (std::vector<int32_t>{2, 1, 8, 3}));
}

TEST(MinilmTokenizer, TruncationKeepsTheEndMarker) {
    const Tokenizer tokenizer = write_and_read(kSmall);
    const Tokens cut = tokenizer.encode("un un un", 4), whole = tokenizer.encode("un un", 4);
    EXPECT_EQ(cut.ids, (std::vector<int32_t>{2, 4, 4, 3}));
    EXPECT_TRUE(cut.truncated);
    EXPECT_EQ(whole.ids, cut.ids);
    EXPECT_FALSE(whole.truncated);
}

TEST(MinilmTokenizer, NamesOfSpecialTokensInTheTextAreWords) {
    EXPECT_EQ(write_and_read(kSmall).encode("[SEP]", 16).ids, (std::vector<int32_t>{2, 1, 1, 1, 3}));
}

TEST(MinilmTokenizer, RefusesWhatIsNotUtf8) {
    const Tokenizer tokenizer = write_and_read(kSmall);
    for (const char* text : {"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80"}) {
        EXPECT_THROW(tokenizer.encode(text, 16), std::invalid_argument);
    }
}

TEST(MinilmTokenizer, RefusesAVocabularyWithoutItsSpecialTokens) {
    EXPECT_THROW(write_and_read("[PAD]\n[UNK]\n[CLS]\nun\n"), std::runtime_error);
    EXPECT_THROW(write_and_read(""), std::runtime_error);
    EXPECT_THROW(write_and_read(kSmall + "un\n"), std::runtime_error);
    EXPECT_THROW(Tokenizer("/nonexistent/vocab.txt"), std::runtime_error);
}

}  // namespace
}  // namespace minilm
