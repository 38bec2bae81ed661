// Greedy decoding with a key-value cache: a prompt in chunks, then one token at a time; and the same without a cache, with
// all tokens in every call. Both must write the same text.
#include <algorithm>
#include <attnc.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <vector>

#include "cached_attention.h"  // d_model 128, 4 heads, 2 KV heads, causal, cache

namespace {

constexpr int64_t kModel = CACHED_ATTENTION_D_MODEL, kKv = kModel / 2;
constexpr int64_t kTokens = 64, kPrompt = 40, kChunk = 20;  // of the text, of its beginning, of one call
constexpr int64_t kVocabulary = 500;

// Uniform numbers of the variance 1/fan_in.
std::vector<float> random_floats(std::mt19937& engine, int64_t rows, int64_t fan_in) {
    std::vector<float> numbers(static_cast<size_t>(rows * fan_in));
    const float scale = std::sqrt(12.0F / static_cast<float>(fan_in));
    for (float& x : numbers) x = (static_cast<float>(engine() >> 8) * 0x1p-24F - 0.5F) * scale;
    return numbers;
}

attnc::Layer make_layer(std::mt19937& engine) {
    const auto wq = random_floats(engine, kModel, kModel), wo = random_floats(engine, kModel, kModel);
    const auto wk = random_floats(engine, kKv, kModel), wv = random_floats(engine, kKv, kModel);
    return attnc::Layer(cached_attention(), {.wq = {wq, {kModel, kModel}},
                                             .wk = {wk, {kKv, kModel}},
                                             .wv = {wv, {kKv, kModel}},
                                             .wo = {wo, {kModel, kModel}}});
}

class Model {
public:
    Model()
        : engine_(7),
          layer_(make_layer(engine_)),
          session_(layer_, {.max_batch = 1, .max_seq = kTokens}),
          embeddings_(random_floats(engine_, kVocabulary, kModel)) {}

    const attnc::Layer& layer() const { return layer_; }

    // The likeliest token behind `tokens`, which stand at first .. in the text. With a cache those before them are in it.
    int64_t next(std::span<const int64_t> tokens, int64_t first, attnc_cache* cache) {
        const auto count = static_cast<int64_t>(tokens.size());
        std::vector<float> x(static_cast<size_t>(count * kModel)), y(x.size());
        for (int64_t i = 0; i < count; ++i) {
            for (int64_t n = 0; n < kModel; ++n)
                x[static_cast<size_t>(i * kModel + n)] = input(tokens[static_cast<size_t>(i)], first + i, n);
        }
        session_.forward({.query = {x, {1, count, kModel}}, .cache = cache},
                         {.out = {y, {1, count, kModel}}});
        const std::span<const float> last = std::span<const float>(y).last(kModel);
        int64_t best = 0;
        for (int64_t token = 1; token < kVocabulary; ++token) {
            if (score(token, last) > score(best, last)) best = token;
        }
        return best;
    }

private:
    float input(int64_t token, int64_t position, int64_t n) const {
        const double rate = std::pow(1e-3, static_cast<double>(n / 2 * 2) / static_cast<double>(kModel));
        const double angle = static_cast<double>(position) * rate;
        return 9 * embeddings_[static_cast<size_t>(token * kModel + n)] +
               static_cast<float>(n % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
    float score(int64_t token, std::span<const float> features) const {
        float sum = 0;
        for (int64_t n = 0; n < kModel; ++n)
            sum += embeddings_[static_cast<size_t>(token * kModel + n)] * features[static_cast<size_t>(n)];
        return sum;
    }
    std::mt19937 engine_;
    attnc::Layer layer_;
    attnc::Session session_;
    std::vector<float> embeddings_;
};

// The prompt in chunks, then token by token.
std::vector<int64_t> write_with_cache(Model& model, std::vector<int64_t> text, const attnc::Cache& cache) {
    int64_t next = 0;
    for (int64_t first = 0; first < kPrompt; first += kChunk)
        next = model.next(std::span(text).subspan(static_cast<size_t>(first), kChunk), first, cache.c());
    while (static_cast<int64_t>(text.size()) < kTokens) {
        text.push_back(next);
        next = model.next(std::span(text).last(1), static_cast<int64_t>(text.size()) - 1, cache.c());
    }
    return text;
}

std::vector<int64_t> write_anew(Model& model, std::vector<int64_t> text) {
    while (static_cast<int64_t>(text.size()) < kTokens) text.push_back(model.next(text, 0, nullptr));
    return text;
}

int run() {
    Model model;
    std::mt19937 engine(1);
    std::vector<int64_t> prompt(kPrompt);
    for (int64_t& token : prompt) token = static_cast<int64_t>(engine() % kVocabulary);

    const attnc::Cache cache(model.layer(), {.slots = 1, .capacity = kTokens});
    const std::vector<int64_t> text = write_with_cache(model, prompt, cache);
    std::printf("prompt of %jd tokens, then:", intmax_t{kPrompt});
    for (size_t i = kPrompt; i < text.size(); ++i) std::printf(" %jd", intmax_t{text[i]});
    std::printf("\nkeys and values of %jd tokens in %zu bytes\n", intmax_t{cache.length(0)}, cache.bytes());

    const bool same = write_anew(model, prompt) == text;
    std::printf("without a cache: %s\n", same ? "the same text" : "another text");
    return same ? 0 : 1;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "decoder: %s\n", error.what());
        return 1;
    }
}
