// Embeds sentences with all-MiniLM-L6-v2 and says which are near each other.
//   minilm --model DIR [--json FILE] [--threads N] [--target NAME] [SENTENCE...]
// Without sentences it reads them from standard input, one per line.
// Exit status: 0, 1 for a failure, 2 for wrong use.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "model.h"
#include "report.h"
#include "tokenizer.h"

namespace {

// The model was trained on sentences of at most this many tokens (its sentence_bert_config.json), although it
// has 512 position embeddings.
constexpr size_t kMaxTokens = 256;

struct Options {
    std::string model, json, target;
    int64_t threads = 1;
    std::vector<std::string> sentences;
};

// CLI11 takes an argument "[a, b]" for a list of two. A line end, which no sentence needs, keeps it whole.
std::vector<std::string> guarded(int argc, char** argv) {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    for (std::string& argument : arguments) {
        if (argument.starts_with('[') && argument.ends_with(']')) argument += '\n';
    }
    std::reverse(arguments.begin(), arguments.end());  // the order that CLI11 wants
    return arguments;
}

void unguard(std::string& argument) {
    if (argument.starts_with('[') && argument.ends_with("]\n")) argument.pop_back();
}

// Blank lines separate nothing and are skipped.
std::vector<std::string> read_lines(std::istream& stream) {
    std::vector<std::string> lines;
    std::string line;
    while (std::getline(stream, line)) {
        if (line.ends_with('\r')) line.pop_back();
        if (line.find_first_not_of(" \t") != std::string::npos) lines.push_back(line);
    }
    if (stream.bad()) throw std::runtime_error("cannot read standard input");
    return lines;
}

std::vector<std::vector<int32_t>> tokenize(const minilm::Tokenizer& tokenizer, const Options& options,
                                           size_t max_tokens) {
    std::vector<std::vector<int32_t>> token_ids;
    for (const std::string& sentence : options.sentences) {
        const std::string number = "sentence " + std::to_string(token_ids.size() + 1);
        minilm::Tokens tokens;
        try {
            tokens = tokenizer.encode(sentence, max_tokens);
        } catch (const std::invalid_argument& error) {
            throw std::runtime_error(number + " is " + error.what());
        }
        if (tokens.ids.size() == 2) throw std::runtime_error(number + " is empty");
        if (tokens.truncated) {
            std::fprintf(stderr, "minilm: note: only the first %zu tokens of %s are used\n", max_tokens,
                         number.c_str());
        }
        token_ids.push_back(std::move(tokens.ids));
    }
    return token_ids;
}

void run(Options options) {
    if (options.sentences.empty()) {
        if (::isatty(STDIN_FILENO) != 0) std::fprintf(stderr, "minilm: reading sentences, one per line\n");
        options.sentences = read_lines(std::cin);
        if (options.sentences.empty()) {
            throw std::runtime_error(
                "no sentences: give them as arguments or on standard input, one per line");
        }
    }
    const std::filesystem::path directory(options.model);
    if (!std::filesystem::is_directory(directory)) {
        throw std::runtime_error("no model directory " + options.model);
    }

    minilm::Model model(directory, options.threads, options.target);
    const minilm::Tokenizer tokenizer(directory / "vocab.txt");
    if (tokenizer.size() != static_cast<size_t>(model.config().vocab_size)) {
        throw std::runtime_error((directory / "vocab.txt").string() + " has " +
                                 std::to_string(tokenizer.size()) + " pieces, wanted vocab_size " +
                                 std::to_string(model.config().vocab_size));
    }
    const size_t max_tokens =
        std::min(kMaxTokens, static_cast<size_t>(model.config().max_position_embeddings));
    const auto token_ids = tokenize(tokenizer, options, max_tokens);

    minilm::Times times;
    const minilm::Result result{options.sentences, token_ids, model.encode(token_ids, times)};
    if (!options.json.empty()) {
        minilm::write_file(options.json, minilm::to_json(result, options.model, model.target()));
    }
    minilm::print_similarities(result);
    std::printf("attention took %.2f of %.2f ms (%.0f %%) on %s, threads: %jd\n", times.attention_s * 1e3,
                times.total_s * 1e3, times.attention_s / times.total_s * 100, model.target(),
                static_cast<intmax_t>(options.threads));
    if (std::fflush(stdout) != 0) throw std::runtime_error("cannot write to standard output");
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app(
        "Sentence embeddings by all-MiniLM-L6-v2: prints how similar the sentences are.\n"
        "Example: minilm --model DIR 'A cat sleeps.' 'A kitten is resting.' 'Shares fell.'",
        "minilm");
    app.add_option("--model", options.model, "directory with config.json, model.safetensors and vocab.txt")
        ->required();
    app.add_option("--json", options.json, "also write the token ids, embeddings and cosines to this file");
    options.threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
    app.add_option("--threads", options.threads, "threads (default: one for each processor)")
        ->check(CLI::Range(int64_t{1}, int64_t{1024}));
    app.add_option("--target", options.target,
                   "instruction set for attention (default: the best that runs here)");
    app.add_option("sentences", options.sentences, "sentences; without any, one per line of standard input");
    try {
        app.parse(guarded(argc, argv));
    } catch (const CLI::CallForHelp& help) {
        return app.exit(help);
    } catch (const CLI::ParseError& error) {
        std::fprintf(stderr, "minilm: %s\n", error.what());
        return 2;
    }
    try {
        for (std::string* text : {&options.model, &options.json, &options.target}) unguard(*text);
        for (std::string& sentence : options.sentences) unguard(sentence);
        run(std::move(options));
        return 0;
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr, "minilm: out of memory\n");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "minilm: %s\n", error.what());
    }
    return 1;
}
