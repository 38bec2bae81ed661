// Runs calls of one layer that share a cache, and the same calls with all keys given. On a device too, where its memory is any
// memory: on a stand-in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/attnc.h"
#include "tests/harness/guarded_memory.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/packed_run.h"

namespace attnc::test {

// Sequences of at most `capacity` keys. Paged ones have their pages all over the cache.
struct CacheShape {
    attnc_cache_kind kind = ATTNC_CACHE_SLOTS;
    int64_t slots = 1, capacity = 64;
};

class CachedLayer {
public:
    // The layer's weights and options are those of `model`.
    CachedLayer(const attnc_library* library, const LayerCall& model, const CacheShape& shape,
                const char* target = nullptr);

    // Item b appends its key and value rows, or query rows where key isn't given, to sequence slots[b] (empty: b) and
    // attends all. sizes.seq_kv of the call is what masks and probabilities count: the most keys of an item. On a device it
    // is max_keys, which the call can't know by itself.
    RunResult append(const LayerCall& call, const std::vector<int64_t>& slots = {},
                     const attnc_executor* executor = nullptr);
    // The same with the items' valid rows one after another; all lengths are given.
    RunResult append_packed(const LayerCall& call, const std::vector<int64_t>& slots = {},
                            const Packing& packing = {});
    // Attends what is there; key and value of the call are not looked at.
    RunResult read(const LayerCall& call, const std::vector<int64_t>& slots = {},
                   const attnc_executor* executor = nullptr);
    RunResult read_packed(const LayerCall& call, const std::vector<int64_t>& slots = {});
    // Projects key and value into the cache.
    RunResult memory(const LayerCall& call, const std::vector<int64_t>& slots = {});
    RunResult memory_packed(const LayerCall& call, const std::vector<int64_t>& slots = {});
    // Without the cache.
    RunResult plain(const LayerCall& call);

    // The call with these inputs in place of its own.
    RunResult run(const LayerCall& call, attnc_inputs in, const attnc_executor* executor = nullptr) const;

    attnc_cache* cache() const { return cache_; }
    const attnc_layer* layer() const { return layer_.get(); }
    int64_t length(int64_t slot) const;
    void set_paged_length(int64_t slot, int64_t length) { lengths_[static_cast<size_t>(slot)] = length; }

    // The cache's part of a call; the arrays must live as long.
    struct Places {
        std::vector<int64_t> slots, lengths;
        std::vector<int32_t> table;
    };
    void place(attnc_inputs& in, Places& places, const std::vector<int64_t>& slots, int64_t batch) const;

private:
    struct LayerDelete {
        void operator()(attnc_layer* layer) const { attnc_layer_destroy(layer); }
    };
    void grow(const LayerCall& call, const std::vector<int64_t>& slots);
    RunResult project(const LayerCall& call, attnc_inputs in, const std::vector<int64_t>& slots);
    attnc_status wait(attnc_status launched, attnc_error* error) const;
    GuardedMemory workspace_of(size_t bytes) const {
        return {bytes, Placement::kAtEnd, static_cast<size_t>(on_device_ ? 256 : 64)};
    }

    Config config_;
    CacheShape shape_;
    bool on_device_;
    std::unique_ptr<attnc_layer, LayerDelete> layer_;
    std::unique_ptr<GuardedMemory> memory_, device_memory_;
    attnc_cache* cache_ = nullptr;
    std::vector<int64_t> lengths_;  // of paged sequences
};

// The part of a call with tokens for all keys: queries first_query .. + queries of every item, keys first_key ..
// first_key + keys, and of its masks the rows of the queries and the columns up to that last key. sizes.seq_kv becomes
// first_key + keys. Without key and value the queries are the keys.
struct Part {
    int64_t first_query, queries, first_key, keys;
};
LayerCall part_of(const LayerCall& call, const Part& part);

// A random call whose keys and values are its queries, with a diagonal that ends at the last key.
LayerCall self_attention(std::string_view problem, uint64_t seed);
// Queries and keys first .. first + count of such a call: appended, and with all keys up to them given.
LayerCall appended(const LayerCall& call, int64_t first, int64_t count);
LayerCall whole(const LayerCall& call, int64_t first, int64_t count);

}  // namespace attnc::test
