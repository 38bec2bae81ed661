// A layer's weights and one call's inputs as owned memory, filled with numbers that follow from a seed: for the commands
// that run a library. Sizes and shapes are in C order.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/attnc.h"
#include "stages/config.h"

namespace attnc {

struct GeneratedWeights {
    std::vector<float> wq, wk, wv, wo, bq, bk, bv, bo, bias_k, bias_v, sink, alibi_slopes, q_norm, k_norm;
    attnc_weights view = ATTNC_WEIGHTS_INIT;  // of the vectors

    // What `config` takes, biases included; of a size that leaves scores of a few units.
    GeneratedWeights(const Config& config, uint64_t seed) : GeneratedWeights(config, config, seed) {}
    // The same without the weights of options that `used` does not have: the layer then does without them.
    GeneratedWeights(const Config& config, const Config& used, uint64_t seed);
    GeneratedWeights(GeneratedWeights&&) = default;
};

struct LayerTokens {
    std::vector<float> query, key, value;
    attnc_tensor query_view = {}, key_view = {}, value_view = {};

    // Without input projections tokens have rank 4, [batch, heads, seq, features].
    LayerTokens(const Problem& problem, uint64_t seed);
    LayerTokens(LayerTokens&&) = default;
};

// Elements of `out` of a call.
int64_t out_elements(const Problem& problem);
// `out` for tokens as above: rank 3, or rank 4 where neither side is projected.
attnc_tensor out_view(const Problem& problem, float* data);

// Memory aligned to 64 bytes.
class AlignedBytes {
public:
    explicit AlignedBytes(size_t bytes);  // throws std::bad_alloc
    AlignedBytes(const AlignedBytes&) = delete;
    AlignedBytes& operator=(const AlignedBytes&) = delete;
    ~AlignedBytes();
    void* data() const { return data_; }
    size_t size() const { return bytes_; }

private:
    void* data_;
    size_t bytes_;
};

struct StatusError : std::runtime_error {
    StatusError(attnc_status refused, const std::string& text) : std::runtime_error(text), status(refused) {}
    attnc_status status;
};

// A status of the C API as a StatusError: "attnc_layer_forward: <its sentence>".
void check_status(attnc_status status, const attnc_error& error, const char* function);

}  // namespace attnc
