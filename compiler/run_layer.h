// Runs one call of a layer of a loaded library.
#pragma once

#include <string>
#include <vector>

#include "runtime/attnc.h"
#include "support/reference.h"

namespace attnc {

// Outputs that are asked for beside out; scores are where the options name their stage.
struct Wanted {
    bool probs = false, probs_averaged = false, lse = false;
};

// Runs a call on a target and returns its outputs as the reference holds them; `sizes` has the sizes. A past is put into a
// cache, which the call then appends to (or reads, where the past is alone), and keys and values after the call are what
// the cache gives back. Throws std::runtime_error with the runtime's sentence.
Reference run_layer(const attnc_library* library, const std::string& target, const attnc_weights& weights,
                    const attnc_inputs& inputs, const ReferenceOptions& layer_options, const Wanted& wanted,
                    const Reference& sizes, const ReferencePast& past = {});

// The same with its tokens as a packed batch. Some item has all queries, and one all keys.
Reference run_packed(const attnc_library* library, const std::string& target, const attnc_weights& weights,
                     const attnc_inputs& padded, const ReferenceOptions& layer_options, const Wanted& wanted,
                     const Reference& sizes);

// Heads [batch, heads, seq, head_dim] or [batch, seq, heads * head_dim] of the query, normalised and rotated as the layer
// does it, by the call's query_positions. Dense, of the same shape.
std::vector<double> run_rotation(const attnc_library* library, const std::string& target,
                                 const attnc_weights& weights, const attnc_inputs& inputs,
                                 const ReferenceOptions& layer_options);

}  // namespace attnc
