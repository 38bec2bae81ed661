// An encoder-decoder pair: the encoder's self-attention reads padded sources of up to 50 tokens, the
// decoder's cross-attention asks 7 queries of what the encoder made of them. The decoder is narrower than the
// encoder, and each layer has a library of its own. At the end the program puts NaN in all padding: not one
// bit of the result may change.
#include <algorithm>
#include <attnc.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "decoder_attention.h"  // d_model 256, 4 heads, k_dim and v_dim 320
#include "encoder_attention.h"  // d_model 320, 5 heads

namespace {

constexpr int64_t kBatch = 3, kSeqQ = 7, kSeqKv = 50;
constexpr int64_t kEncoderModel = ENCODER_ATTENTION_D_MODEL, kDecoderModel = DECODER_ATTENTION_D_MODEL;

// Uniform numbers of the variance 1/fan_in: what a layer is usually initialised with.
std::vector<float> random_floats(std::mt19937& engine, int64_t rows, int64_t fan_in) {
    std::vector<float> numbers(static_cast<size_t>(rows * fan_in));
    const float scale = std::sqrt(12.0F / static_cast<float>(fan_in));
    for (float& x : numbers) x = (static_cast<float>(engine() >> 8) * 0x1p-24F - 0.5F) * scale;
    return numbers;
}

// The four matrices of a layer; key and value are source_size wide.
attnc::Layer make_layer(const attnc_library* library, std::mt19937& engine, int64_t d_model,
                        int64_t source_size) {
    const auto wq = random_floats(engine, d_model, d_model), wk = random_floats(engine, d_model, source_size);
    const auto wv = random_floats(engine, d_model, source_size), wo = random_floats(engine, d_model, d_model);
    return attnc::Layer(library, {.wq = {wq, {d_model, d_model}},
                                  .wk = {wk, {d_model, source_size}},
                                  .wv = {wv, {d_model, source_size}},
                                  .wo = {wo, {d_model, d_model}}});
}

struct Translation {
    std::vector<float> out;    // [batch, seq_q, decoder d_model]
    std::vector<float> probs;  // [batch, seq_q, seq_kv], averaged over the heads
};

class EncoderDecoder {
public:
    EncoderDecoder()
        : engine_(7),
          encoder_(make_layer(encoder_attention(), engine_, kEncoderModel, kEncoderModel)),
          decoder_(make_layer(decoder_attention(), engine_, kDecoderModel, kEncoderModel)),
          pool_(2),
          encode_(encoder_, {.max_batch = kBatch, .max_seq = kSeqKv}, pool_),
          decode_(decoder_, {.max_batch = kBatch, .max_seq_q = kSeqQ, .max_seq_kv = kSeqKv}, pool_) {}

    // source [batch, seq_kv, encoder d_model], its items lengths[b] tokens long; target [batch, seq_q,
    // decoder d_model]. The encoder's output past a length is set to `padding` before the decoder gets it.
    Translation run(std::span<const float> source, std::span<const int32_t> lengths,
                    std::span<const float> target, float padding) {
        std::vector<float> memory(source.size(), padding);
        encode_.forward({.query = {source, {kBatch, kSeqKv, kEncoderModel}},
                         .key_lengths = lengths,
                         .query_lengths = lengths},
                        {.out = {memory, {kBatch, kSeqKv, kEncoderModel}}});
        for (size_t b = 0; b < kBatch; ++b) {
            const auto item = memory.begin() + static_cast<int64_t>(b) * kSeqKv * kEncoderModel;
            std::fill(item + lengths[b] * kEncoderModel, item + kSeqKv * kEncoderModel, padding);
        }

        Translation result{std::vector<float>(target.size()), std::vector<float>(kBatch * kSeqQ * kSeqKv)};
        decode_.forward({.query = {target, {kBatch, kSeqQ, kDecoderModel}},
                         .key = {memory, {kBatch, kSeqKv, kEncoderModel}},
                         .key_lengths = lengths},
                        {.out = {result.out, {kBatch, kSeqQ, kDecoderModel}},
                         .probs_averaged = {result.probs, {kBatch, kSeqQ, kSeqKv}}});
        return result;
    }

private:
    std::mt19937 engine_;
    attnc::Layer encoder_, decoder_;
    attnc::ThreadPool pool_;
    attnc::Session encode_, decode_;
};

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

int run() {
    const std::vector<int32_t> lengths{50, 31, 12};
    std::mt19937 engine(1);
    std::vector<float> source = random_floats(engine, kBatch * kSeqKv * kEncoderModel, 1);
    const std::vector<float> target = random_floats(engine, kBatch * kSeqQ * kDecoderModel, 1);

    EncoderDecoder model;
    const Translation clean = model.run(source, lengths, target, 0);

    std::printf("decoder: out [%jd, %jd, %jd] from seq_kv %jd, d_model %jd\n", intmax_t{kBatch},
                intmax_t{kSeqQ}, intmax_t{kDecoderModel}, intmax_t{kSeqKv}, intmax_t{kEncoderModel});
    for (size_t b = 0; b < kBatch; ++b) {
        std::printf("source of %2d tokens: queries look most at tokens", lengths[b]);
        for (size_t q = 0; q < kSeqQ; ++q) {
            const auto row = clean.probs.begin() + static_cast<int64_t>((b * kSeqQ + q) * kSeqKv);
            std::printf(" %td", std::max_element(row, row + kSeqKv) - row);
        }
        std::printf("\n");
    }

    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (size_t b = 0; b < kBatch; ++b) {
        const auto item = source.begin() + static_cast<int64_t>(b) * kSeqKv * kEncoderModel;
        std::fill(item + lengths[b] * kEncoderModel, item + kSeqKv * kEncoderModel, nan);
    }
    const Translation filled = model.run(source, lengths, target, nan);
    const bool same = equal_bits(clean.out, filled.out) && equal_bits(clean.probs, filled.probs);
    std::printf("NaN in all padding changes %s\n", same ? "no bit of the result" : "the result");
    return same ? 0 : 1;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "cross_attention: %s\n", error.what());
        return 1;
    }
}
