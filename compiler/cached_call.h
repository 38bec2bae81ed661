// Calls of a layer over keys that a cache holds already, again and again: a token of generation, a chunk of a prompt, or
// queries over a memory that was projected before.
#pragma once

#include <memory>
#include <vector>

#include "compiler/layer_call.h"

namespace attnc {

class CachedCall {
public:
    // A problem of a library with a cache. Where it projects its inputs, each call appends seq_q keys to those that its slot
    // holds, which are seq_kv then; otherwise the slots hold seq_kv keys, which calls read. The batch takes that many slots
    // side by side, and calls take the next ones in turn among `batches` of them: as many as make every call find its keys
    // in the same level of the memory. Throws std::runtime_error.
    explicit CachedCall(const LayerCallSetup& setup, int64_t batches = 1);
    CachedCall(const CachedCall&) = delete;
    CachedCall& operator=(const CachedCall&) = delete;
    ~CachedCall();

    void call();
    const attnc_outputs& outputs() const { return outputs_; }

private:
    void make_cache(int64_t slots);
    void fill(int64_t slot);

    Problem problem_;
    int64_t held_;  // keys of a slot before a call
    attnc_layer* layer_ = nullptr;
    LayerTokens tokens_;
    std::vector<float> out_, keys_, values_;
    std::unique_ptr<AlignedBytes> memory_, workspace_;
    attnc_cache* cache_ = nullptr;
    std::vector<int64_t> slots_;
    attnc_inputs inputs_ = ATTNC_INPUTS_INIT;
    attnc_outputs outputs_ = ATTNC_OUTPUTS_INIT;
    attnc_run run_ = ATTNC_RUN_INIT;
    size_t next_ = 0;
};

// Bytes of the keys and values that a call reads.
int64_t kv_bytes(const Problem& problem);

}  // namespace attnc
