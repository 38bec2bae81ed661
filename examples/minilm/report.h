// What the program prints and writes about a set of embeddings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "model.h"

namespace minilm {

// Sentences with their embeddings [sentences, hidden_size]; rows have length 1, so that a product is a
// cosine.
struct Result {
    std::span<const std::string> texts;
    std::span<const std::vector<int32_t>> token_ids;
    RowMajor embeddings;
};

// The sentences, their table of cosines (up to 16 sentences) and the nearest pair, on standard output.
void print_similarities(const Result& result);

// {"model", "dim", "target", "sentences": [{"text", "token_ids", "embedding"}...], "cosine": [[...]...]};
// numbers are exact. The cosines are left out past 1000 sentences. Throws std::runtime_error.
std::string to_json(const Result& result, const std::string& model, const std::string& target);

// The file is there whole or not at all: it is written beside its place and renamed. A device or a pipe is
// written to as it is. Throws std::runtime_error.
void write_file(const std::filesystem::path& file, const std::string& text);

}  // namespace minilm
