// A call after its checks: every tensor as pointer and strides, in one form whatever way it was given.
#pragma once

#include <cstdint>

#include "runtime/attnc.h"
#include "runtime/cache.h"
#include "runtime/layer.h"

namespace attnc {

// Tokens or their heads: element (item, head, row, feature) is at origin * batch_stride + head * head_stride +
// row * row_stride + feature, with the item's origin of queries or keys. head_stride is 0 where tokens are not split
// into heads. In packed tokens batch_stride is row_stride.
struct TokenView {
    const float* data;
    int64_t batch_stride, head_stride, row_stride;
};
struct OutView {
    float* data;
    int64_t batch_stride, head_stride, row_stride;
};

// A mask or bias [batch, heads, seq_q, seq_kv]; broadcast dimensions have stride 0.
struct MaskView {
    const void* data;
    int64_t batch_stride, head_stride, query_stride, key_stride;
    bool present;
    bool per_key;  // the same for all heads and queries of an item
};

// A mask of blocks of queries and keys; query_stride and key_stride step over blocks.
struct BlockMask {
    MaskView view;
    int64_t block_q, block_kv;
};

// One number per item, 32 or 64 bits wide.
struct ItemNumbers {
    const void* data;
    bool present, wide;
    int64_t at(int64_t item) const {
        return wide ? static_cast<const int64_t*>(data)[item] : static_cast<const int32_t*>(data)[item];
    }
};

// One number for each row of each item, of an item that begins at `origin` as tokens do.
struct RowNumbers {
    const void* data;
    int64_t batch_stride;  // packed tokens: 1
    bool present, wide;
    int64_t at(int64_t origin, int64_t row) const {
        const int64_t i = origin * batch_stride + row;
        return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
    }
};

// The cache of a call, and which of its rows the items have.
struct CallCache {
    attnc_cache* cache;  // null: none
    bool appends;
    ItemNumbers slots;          // not present: item b has slot b
    ItemNumbers paged_lengths;  // keys there before the call
    const int32_t* table;       // page n of item b at table[b * table_stride + n * page_stride]
    int64_t table_stride, page_stride, table_pages;

    explicit operator bool() const { return cache != nullptr; }
    int64_t slot(int64_t item) const { return slots.present ? slots.at(item) : item; }
    // Keys that the item has before the call.
    int64_t held(int64_t item) const {
        return cache->is(ATTNC_CACHE_PAGED) ? paged_lengths.at(item) : cache->length_of(slot(item));
    }
    CachePlace place(int64_t item) const {
        if (!cache->is(ATTNC_CACHE_PAGED)) return {cache, slot(item), nullptr, 0};
        return {cache, 0, table + item * table_stride, page_stride};
    }
    // The most keys of an item that are there at a time.
    int64_t room() const {
        return cache->is(ATTNC_CACHE_PAGED) ? table_pages * cache->page_size : cache->capacity;
    }
};

struct Request {
    int64_t batch, seq_q;  // packed tokens: the longest of the batch
    int64_t seq_kv;        // keys that are attended; with a cache the most of an item, or the call's max_keys
    int64_t seq_new;       // rows of key and value: seq_kv, with a cache the keys that are appended
    TokenView query, key, value;
    MaskView keep_mask, drop_mask, bias;              // rank 4
    MaskView key_keep_mask, key_drop_mask, key_bias;  // [batch, seq_kv]
    BlockMask block_keep_mask;
    ItemNumbers key_lengths, query_lengths, causal_offsets;
    ItemNumbers query_starts,
        key_starts;             // packed tokens: first rows of the items, and the end of the last one
    int64_t total_q, total_kv;  // rows of packed tokens
    CallCache cache;
    attnc_causal causal;  // never NOT_GIVEN
    ItemNumbers position_offsets;
    RowNumbers query_positions, key_positions;  // self-attention: the queries' for keys without their own
    bool same_positions;                        // row t of queries and row t of new keys have one position
    OutView out;
    OutView probs, probs_averaged;  // row_stride steps over queries; data null where not asked for
    OutView lse, scores;
    attnc_scores_stage scores_stage;  // NOT_GIVEN: no scores are asked for
    bool wants_probs, wants_averaged, wants_lse;
    const attnc_executor* executor;  // null: the calling thread
    int64_t concurrency;
};

// Rows of an item before its length is looked at.
inline int64_t query_rows_of(const Request& r, int64_t item) {
    return r.query_starts.present ? r.query_starts.at(item + 1) - r.query_starts.at(item) : r.seq_q;
}
inline int64_t key_rows_of(const Request& r, int64_t item) {
    return r.key_starts.present ? r.key_starts.at(item + 1) - r.key_starts.at(item) : r.seq_new;
}
// Keys that an item brings, and those that it attends.
inline int64_t new_keys_of(const Request& r, int64_t item) {
    return r.key_lengths.present ? r.key_lengths.at(item) : key_rows_of(r, item);
}
inline int64_t all_keys_of(const Request& r, int64_t item) {
    if (!r.cache) return new_keys_of(r, item);
    return r.cache.held(item) + (r.cache.appends ? new_keys_of(r, item) : 0);
}

// Where an item's rows begin in the caller's tensors, in strides from item to item: its number, or in packed tokens its
// first row.
inline int64_t query_origin_of(const Request& r, int64_t item) {
    return r.query_starts.present ? r.query_starts.at(item) : item;
}
inline int64_t key_origin_of(const Request& r, int64_t item) {
    return r.key_starts.present ? r.key_starts.at(item) : item;
}

enum class DataNeed { kSizesOnly, kAll };

// Checks everything about a call but its workspace and overlaps. With kSizesOnly data pointers may be null;
// lengths whose data is there are checked all the same.
attnc_status check_call(attnc_error* error, const attnc_layer& layer, const attnc_inputs* inputs,
                        const attnc_outputs* outputs, const attnc_run* run, DataNeed need, Request* request);

// The same for attnc_memory_project: the Request appends keys and has no query.
attnc_status check_memory(attnc_error* error, const attnc_layer& layer, const attnc_inputs* inputs,
                          attnc_cache* cache, const attnc_run* run, DataNeed need, Request* request);

// The cache's fields of inputs; batch, seq_new and key_lengths are there already. Gives cache and seq_kv. With kSizesOnly
// and lengths, slots or pages without data seq_kv is the most that it can be, and `known` false. On a device their data is
// never looked at, and seq_kv is what the call says.
attnc_status check_cache_use(attnc_error* error, const attnc_layer& layer, const attnc_inputs& inputs,
                             DataNeed need, Request* request, bool* known);

// Whether a ring has room for what the call's items see. The rest of the request is complete.
attnc_status check_ring_rows(attnc_error* error, const attnc_layer& layer, const Request& request);

// An executor that can be used, and its concurrency; run may be null.
attnc_status check_executor(attnc_error* error, const attnc_run* run, Request& request);

// The part of check_call that is about positions; tokens, lengths and the cache are checked. `knows_keys`: as
// check_cache_use has it.
attnc_status check_positions(attnc_error* error, const attnc_layer& layer, const attnc_inputs& inputs,
                             bool needs_data, bool knows_keys, Request& request);

// The same for attnc_layer_rotate: its rows are the request's queries.
attnc_status check_rotated_positions(attnc_error* error, const attnc_layer& layer,
                                     const attnc_rotation& rotation, Request& request);

// The same as check_overlaps for attnc_layer_rotate; in_place: out is x.
attnc_status check_rotated_overlaps(attnc_error* error, const attnc_rotation& rotation, bool in_place,
                                    const void* workspace, size_t workspace_bytes);

// Refuses outputs that overlap inputs, each other or the workspace, and a workspace or cache that overlaps an
// input.
attnc_status check_overlaps(attnc_error* error, const attnc_inputs& inputs, const attnc_outputs& outputs,
                            const void* workspace, size_t workspace_bytes);

}  // namespace attnc
