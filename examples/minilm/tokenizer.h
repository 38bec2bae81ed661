// Sentences to token ids as BERT's uncased models expect them: basic tokenisation (clean-up, accents, lower
// case, punctuation), then WordPiece over the model's vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace minilm {

struct Tokens {
    std::vector<int32_t> ids;  // [CLS], the sentence's pieces, [SEP]
    bool truncated = false;    // true: pieces past the limit were left out
};

class Tokenizer {
public:
    // Reads a vocabulary: one piece a line, its id is the line's number from 0; a piece that continues a word
    // starts with ##. Throws std::runtime_error when it can't be read or lacks [UNK], [CLS] or [SEP].
    explicit Tokenizer(const std::filesystem::path& vocabulary);

    size_t size() const { return ids_.size(); }

    // At most max_tokens ids, [CLS] and [SEP] among them. Throws std::invalid_argument when text is not
    // UTF-8. Names of special tokens in the text ("[SEP]") are words like any others.
    Tokens encode(std::string_view text, size_t max_tokens) const;

private:
    struct Hash {
        using is_transparent = void;
        size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
    };

    void append_pieces(std::u32string_view word, std::vector<int32_t>& ids) const;
    int32_t special(const char* piece, const std::filesystem::path& vocabulary) const;

    std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
    int32_t unknown_ = 0, first_ = 0, last_ = 0;  // [UNK], [CLS], [SEP]
};

// The words that WordPiece gets: cleaned, lower-cased, without accents, punctuation and CJK ideographs each
// by itself.
std::vector<std::u32string> basic_words(std::string_view text);

}  // namespace minilm
