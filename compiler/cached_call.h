// Calls of a layer over keys that a cache holds already, again and again: a token of generation, a chunk of a prompt, or
// queries over a memory that was projected before.
#pragma once

#include <memory>
#include <vector>

#include "compiler/device_call.h"
#include "compiler/layer_call.h"

namespace attnc {

class CachedCall {
public:
    // A problem of a library with a cache. Where it projects its inputs, each call appends seq_q keys to those that its slot
    // holds, which are seq_kv then; otherwise the slots hold seq_kv keys, which calls read. The batch takes that many slots
    // side by side, and calls take the next ones in turn among `batches` of them: as many as make every call find its keys
    // in the same level of the memory. On a device the slots that a call appended to are set back by copies, which take their
    // time with it. Throws std::runtime_error.
    explicit CachedCall(const LayerCallSetup& setup, int64_t batches = 1);
    CachedCall(const CachedCall&) = delete;
    CachedCall& operator=(const CachedCall&) = delete;
    ~CachedCall();

    void call();  // on a device until it is done
    const attnc_outputs& outputs() const { return outputs_; }

private:
    void make_cache(int64_t slots);
    void place();

    Problem problem_;
    int64_t held_;  // keys of a slot before a call
    attnc_layer* layer_ = nullptr;
    bool on_device_ = false;
    LayerTokens tokens_;
    std::vector<float> out_;
    std::unique_ptr<PlacedCache> cache_;
    std::unique_ptr<PlacedWorkspace> workspace_;
    std::vector<int64_t> slots_;
    std::vector<std::unique_ptr<PlacedTensor>> placed_;  // what inputs_ and placed_outputs_ have
    attnc_inputs inputs_ = ATTNC_INPUTS_INIT;
    attnc_outputs outputs_ = ATTNC_OUTPUTS_INIT;  // the host's
    attnc_outputs placed_outputs_ = ATTNC_OUTPUTS_INIT;
    const int64_t* placed_slots_ = nullptr;
    attnc_run run_ = ATTNC_RUN_INIT;
    size_t next_ = 0;
};

// Bytes of the keys and values that a call reads.
int64_t kv_bytes(const Problem& problem);

}  // namespace attnc
