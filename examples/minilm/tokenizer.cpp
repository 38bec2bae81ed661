#include "tokenizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <stdexcept>

namespace minilm {
namespace {

// A longer word is unknown without a search; the model's training did the same.
constexpr size_t kMaxWordCharacters = 100;

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Tab and line ends are control characters by their category, but separate words.
bool is_space(char32_t c) {
    if (c == U'\t' || c == U'\n' || c == U'\r') return true;
    const auto k = category(c);
    return k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP;
}

// Never part of a word, nor the end of one: controls, invisible formatting (zero-width joiner), private use,
// and the replacement character. Characters that this Unicode version doesn't know are kept: the vocabulary
// decides.
bool is_dropped(char32_t c) {
    if (c == U'\t' || c == U'\n' || c == U'\r') return false;
    const auto k = category(c);
    return c == 0xFFFD || k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

// ASCII symbols ($ + < = > ^ ` | ~) count as punctuation, the other scripts' symbols do not.
bool is_punctuation(char32_t c) {
    if (c < 0x80)
        return (c > 0x20 && c < 0x30) || (c > 0x39 && c < 0x41) || (c > 0x5A && c < 0x61) ||
               (c > 0x7A && c < 0x7F);
    const auto k = category(c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

// Ideographs stand for words, so each is one; kana and hangul are written with spaces or left together.
bool is_cjk_ideograph(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) ||
           (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// Code points of the canonical decomposition (NFD): an accented letter becomes the letter and its marks.
std::u32string decompose(std::u32string_view text) {
    std::string utf8;
    for (const char32_t c : text) {
        utf8proc_uint8_t bytes[4];
        const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
        utf8.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
    }
    std::u32string result(utf8.size() * 4 + 1, U'\0');  // no character decomposes to more than 4
    static_assert(sizeof(char32_t) == sizeof(utf8proc_int32_t));
    const auto n = utf8proc_decompose(
        reinterpret_cast<const utf8proc_uint8_t*>(utf8.data()), static_cast<utf8proc_ssize_t>(utf8.size()),
        reinterpret_cast<utf8proc_int32_t*>(result.data()), static_cast<utf8proc_ssize_t>(result.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE));
    if (n < 0 || static_cast<size_t>(n) > result.size()) throw std::runtime_error(utf8proc_errmsg(n));
    result.resize(static_cast<size_t>(n));
    return result;
}

std::u32string to_code_points(std::string_view text) {
    std::u32string result;
    const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    auto left = static_cast<utf8proc_ssize_t>(text.size());
    while (left > 0) {
        utf8proc_int32_t c = 0;
        const auto n = utf8proc_iterate(at, left, &c);
        if (n <= 0) throw std::invalid_argument("not valid UTF-8");
        result.push_back(static_cast<char32_t>(c));
        at += n;
        left -= n;
    }
    return result;
}

}  // namespace

std::vector<std::u32string> basic_words(std::string_view text) {
    std::u32string clean;
    for (const char32_t c : to_code_points(text)) {
        if (is_dropped(c)) continue;
        if (is_cjk_ideograph(c)) {
            clean += {U' ', c, U' '};
        } else {
            clean += is_space(c) ? U' ' : c;
        }
    }

    std::vector<std::u32string> words;
    bool in_word = false;
    for (const char32_t decomposed : decompose(clean)) {
        if (category(decomposed) == UTF8PROC_CATEGORY_MN) continue;
        const auto c = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(decomposed)));
        if (is_space(c)) {
            in_word = false;
        } else if (is_punctuation(c)) {
            words.emplace_back(1, c);
            in_word = false;
        } else if (in_word) {
            words.back() += c;
        } else {
            words.emplace_back(1, c);
            in_word = true;
        }
    }
    return words;
}

Tokenizer::Tokenizer(const std::filesystem::path& vocabulary) {
    std::ifstream file(vocabulary, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + vocabulary.string());
    std::string piece;
    while (std::getline(file, piece)) {
        if (!ids_.emplace(piece, static_cast<int32_t>(ids_.size())).second) {
            throw std::runtime_error(vocabulary.string() + ": line " + std::to_string(ids_.size() + 1) +
                                     " repeats '" + piece + "'");
        }
    }
    if (file.bad()) throw std::runtime_error("cannot read " + vocabulary.string());
    unknown_ = special("[UNK]", vocabulary);
    first_ = special("[CLS]", vocabulary);
    last_ = special("[SEP]", vocabulary);
}

int32_t Tokenizer::special(const char* piece, const std::filesystem::path& vocabulary) const {
    const auto found = ids_.find(std::string_view(piece));
    if (found == ids_.end()) throw std::runtime_error(vocabulary.string() + " has no " + piece);
    return found->second;
}

// The longest piece that the word starts with, then the longest continuation, and so on. A word that can't be
// written in pieces is unknown as a whole.
void Tokenizer::append_pieces(std::u32string_view word, std::vector<int32_t>& ids) const {
    if (word.size() > kMaxWordCharacters) {
        ids.push_back(unknown_);
        return;
    }
    std::string utf8 = "##";
    std::vector<size_t> end{utf8.size()};  // of the first n characters in utf8
    for (const char32_t c : word) {
        utf8proc_uint8_t bytes[4];
        const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
        utf8.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
        end.push_back(utf8.size());
    }

    const size_t before = ids.size();
    for (size_t from = 0; from < word.size();) {
        std::string rest = (from == 0 ? "" : "##") + utf8.substr(end[from]);
        size_t to = word.size();
        for (; to > from; --to) {
            const std::string_view piece(rest.data(), rest.size() - (utf8.size() - end[to]));
            if (const auto found = ids_.find(piece); found != ids_.end()) {
                ids.push_back(found->second);
                break;
            }
        }
        if (to == from) {
            ids.resize(before);
            ids.push_back(unknown_);
            return;
        }
        from = to;
    }
}

Tokens Tokenizer::encode(std::string_view text, size_t max_tokens) const {
    Tokens tokens;
    tokens.ids.push_back(first_);
    for (const std::u32string& word : basic_words(text)) {
        append_pieces(word, tokens.ids);
        if (tokens.ids.size() > max_tokens - 1) {
            tokens.ids.resize(max_tokens - 1);
            tokens.truncated = true;
            break;
        }
    }
    tokens.ids.push_back(last_);
    return tokens;
}

}  // namespace minilm
