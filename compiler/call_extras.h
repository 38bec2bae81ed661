// What a call has beside its tokens and its out, by name: for the programs that time and count calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/attnc.h"
#include "stages/config.h"

namespace attnc {

// Owns what it gives. Numbers follow from seeds; a tenth of the pairs, or keys, is dropped at random, so that nothing is
// dropped in whole blocks.
class CallExtras {
public:
    // Names: causal; key_keep_mask, key_drop_mask, key_bias; keep_mask, drop_mask, bias of all pairs, and with _of_heads
    // those of every item and head; full_lengths, lengths (an eighth to all of the tokens); probs, probs_averaged, lse.
    // Throws std::runtime_error for another one.
    CallExtras(const Problem& problem, const std::vector<std::string>& names);

    void apply(attnc_inputs& inputs, attnc_outputs& outputs) const;

    // Of items, of queries as of keys; empty: none were asked for.
    const std::vector<int64_t>& lengths() const { return lengths_; }

private:
    void add(const Problem& problem, const std::string& name);
    void add_mask(attnc_tensor attnc_inputs::*field, bool per_key, bool of_heads, const Sizes& sizes,
                  int64_t heads);
    void add_output(attnc_tensor attnc_outputs::*field, const std::vector<int64_t>& extents);

    template <typename Struct>
    struct Given {
        attnc_tensor Struct::*field;
        attnc_tensor view;
    };

    bool causal_ = false;
    std::vector<std::vector<float>> floats_;
    std::vector<std::vector<uint8_t>> bytes_;
    std::vector<int64_t> lengths_;
    std::vector<Given<attnc_inputs>> inputs_;
    std::vector<Given<attnc_outputs>> outputs_;
};

}  // namespace attnc
