// A call after its checks: every tensor as pointer and strides, in one form whatever way it was given.
#pragma once

#include <cstdint>

#include "runtime/attnc.h"
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

// One number per item, 32 or 64 bits wide.
struct ItemNumbers {
    const void* data;
    bool present, wide;
    int64_t at(int64_t item) const {
        return wide ? static_cast<const int64_t*>(data)[item] : static_cast<const int32_t*>(data)[item];
    }
};

struct Request {
    int64_t batch, seq_q, seq_kv;  // packed tokens: the longest of the batch
    TokenView query, key, value;
    MaskView keep_mask, drop_mask, bias;              // rank 4
    MaskView key_keep_mask, key_drop_mask, key_bias;  // [batch, seq_kv]
    ItemNumbers key_lengths, query_lengths, causal_offsets;
    ItemNumbers query_starts,
        key_starts;             // packed tokens: first rows of the items, and the end of the last one
    int64_t total_q, total_kv;  // rows of packed tokens
    attnc_causal causal;        // never NOT_GIVEN
    OutView out;
    OutView probs, probs_averaged;  // row_stride steps over queries; data null where not asked for
    OutView lse;
    bool wants_probs, wants_averaged, wants_lse;
    const attnc_executor* executor;  // null: the calling thread
    int64_t concurrency;
};

// Rows of an item before its length is looked at.
inline int64_t query_rows_of(const Request& r, int64_t item) {
    return r.query_starts.present ? r.query_starts.at(item + 1) - r.query_starts.at(item) : r.seq_q;
}
inline int64_t key_rows_of(const Request& r, int64_t item) {
    return r.key_starts.present ? r.key_starts.at(item + 1) - r.key_starts.at(item) : r.seq_kv;
}

enum class DataNeed { kSizesOnly, kAll };

// Checks everything about a call but its workspace and overlaps. With kSizesOnly data pointers may be null;
// lengths whose data is there are checked all the same.
attnc_status check_call(attnc_error* error, const attnc_layer& layer, const attnc_inputs* inputs,
                        const attnc_outputs* outputs, const attnc_run* run, DataNeed need, Request* request);

// Refuses outputs that overlap inputs, each other or the workspace, and a workspace that overlaps an input.
attnc_status check_overlaps(attnc_error* error, const attnc_inputs& inputs, const attnc_outputs& outputs,
                            const void* workspace, size_t workspace_bytes);

}  // namespace attnc
