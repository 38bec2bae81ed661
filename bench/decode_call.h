// A query's attention over keys that a cache holds already, in one of several slots in turn: as many of them as make every
// call find its keys in the same level of the memory.
#pragma once

#include <memory>
#include <vector>

#include "compiler/layer_call.h"

namespace attnc::bench {

class DecodeCall {
public:
    // A problem of a library with a cache and without input projections; seq_kv keys are held in each slot.
    DecodeCall(const LayerCallSetup& setup, int64_t slots);
    DecodeCall(const DecodeCall&) = delete;
    DecodeCall& operator=(const DecodeCall&) = delete;
    ~DecodeCall();

    void call();
    // Of keys and values, that a call reads.
    int64_t bytes() const;

private:
    void fill(int64_t slots);

    Problem problem_;
    attnc_layer* layer_ = nullptr;
    LayerTokens tokens_;
    std::vector<float> out_;
    std::unique_ptr<AlignedBytes> memory_, workspace_;
    attnc_cache* cache_ = nullptr;
    std::vector<int64_t> slots_;
    attnc_inputs inputs_ = ATTNC_INPUTS_INIT;
    attnc_outputs outputs_ = ATTNC_OUTPUTS_INIT;
    attnc_run run_ = ATTNC_RUN_INIT;
    size_t next_ = 0;
};

}  // namespace attnc::bench
