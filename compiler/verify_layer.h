// Random calls of a library whose right results float64 gives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/layer_data.h"
#include "runtime/attnc.h"
#include "stages/config.h"
#include "support/reference.h"

namespace attnc {

// A call with everything that it refers to.
struct VerifyCall {
    Problem problem;
    uint64_t seed = 0;
    GeneratedWeights weights;
    LayerTokens tokens;
    std::vector<uint8_t> keep_mask, drop_mask, key_keep_mask, key_drop_mask, block_keep_mask;
    std::vector<float> bias, key_bias;
    std::vector<int64_t> key_lengths, query_lengths, causal_offsets;
    std::vector<int64_t> position_offsets, query_positions, key_positions;
    std::vector<float> past_keys, past_values;
    ReferencePast past;   // in a cache before the call
    bool packed = false;  // runs as a packed batch
    attnc_inputs inputs = ATTNC_INPUTS_INIT;
    ReferenceOptions options;  // of the layer
};

// Sizes, lengths, a past, masks, biases, diagonals, windows, score options, rotations, positions and empty-row policy drawn by the
// seed, of what `config` supports. Small enough that the reference takes about a second at most.
std::unique_ptr<VerifyCall> random_call(const Config& config, uint64_t seed);

// "" if the call's outputs are within their bounds, else what is outside.
std::string check_call(const attnc_library* library, const std::string& target, const VerifyCall& call,
                       const Reference& want);
Reference reference_of(const VerifyCall& call);

// The library's configuration.
Config config_of(const attnc_library* library);

}  // namespace attnc
