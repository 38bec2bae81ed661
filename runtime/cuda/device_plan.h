// What forward does on a device, and how it uses its workspace: one function decides it for attnc_layer_workspace, for the
// bound and for forward. Large batches go through the workspace in waves of items.
#pragma once

#include <cstdint>

#include "runtime/cuda/device_layer.h"
#include "runtime/request.h"

namespace attnc::cuda {

inline constexpr int64_t kNowhere = -1;

// Offsets of what fill_items makes.
struct ItemTable {
    int64_t items = kNowhere;         // int32_t[items][ATTNC_ITEM_COLUMNS]
    int64_t query_counts = kNowhere;  // int32_t[items]
    int64_t key_counts = kNowhere;    // int32_t[items]
};

struct DevicePlan {
    // What is done.
    bool packed = false;
    bool attends = false;       // there are queries; else a cache grows and that is all
    bool cached = false;        // the call's keys lie in a cache
    bool appends = false;       // new ones go there
    bool counts_apart = false;  // of new keys, which can't be those of the queries, or of packed ones
    int32_t mask_flags = 0;     // ATTNC_MASK_* of the call's keys
    bool decodes = false;       // few queries: attend_decode
    bool guards = false;        // something may be dropped within a block of keys
    bool merges = false;        // parts of attention, or sinks
    bool opens = false;         // scores of keys that the call's diagonal or window drops
    bool averages = false;      // probabilities are averaged
    bool owns_probs = false;    // that nobody asked for before
    int64_t batch = 0;          // items of the call
    int64_t wave_items = 0;     // those that are in the workspace at a time
    int64_t splits = 1;         // of the call's keys
    int64_t parts = 1;          // splits, and each appended key
    int64_t pair_items =
        0;  // items and heads of a launch whose buffers have an element for each pair of query and key
    int64_t pair_heads = 0;
    int64_t launch_heads =
        0;             // of a launch that has K and V, so that they span no more than a kernel may be given
    int64_t runs = 0;  // of 16 keys of an item, whose rows a table has; 0: the library does without
    int64_t average_items = 0;  // items whose probabilities are averaged at a time
    // Masks that are made of the call's, where present; their data is in the workspace. Strides of what is the same for all
    // items, or heads, are 0.
    MaskView made_key_bias = {};  // of all that is given per key
    MaskView made_key_blocks =
        {};  // of blocks that aren't granules; query_stride and key_stride step over granules

    // Sizes that the workspace has room for.
    int64_t rows_q = 0, rows_kv = 0;
    int64_t run_count = 0;                    // of all items
    int64_t part_floats = 0, part_stats = 0;  // of parts of attention
    int64_t probs_floats = 0;
    int64_t key_bias_floats = 0, key_blocks_bytes = 0;

    // Offsets in the workspace, in bytes.
    ItemTable call;      // the items as the call has them
    ItemTable all;       // packed: one item of all rows
    ItemTable appended;  // an appended key for each item
    ItemTable open;      // without diagonal and window
    ItemTable fresh;     // of new keys, where counts_apart
    // Of a call with a cache int32_t[batch] each: keys before and after the call, and slots.
    int64_t held = kNowhere, counts = kNowhere, slots = kNowhere;
    int64_t key_runs = kNowhere;       // int32_t[items][runs]
    int64_t appended_runs = kNowhere;  // int32_t[items], of an appended key
    int64_t q = kNowhere;         // [plane][rows_q][qk_width]; where q, k and v are joined, k and v behind
    int64_t k = kNowhere;         // [plane][rows_kv][qk_width]; where k and v are joined, v behind
    int64_t v = kNowhere;         // [plane][rows_kv][v_width]
    int64_t q_angles = kNowhere;  // cosines [rows_q][pairs], then sines
    int64_t k_angles = kNowhere;  // the same for rows_kv
    int64_t q_positions = kNowhere, k_positions = kNowhere;  // packed: int32_t[rows_q], [rows_kv]
    int64_t part_context = kNowhere;                         // [part][rows_q][num_heads][v_width]
    int64_t part_row_stats = kNowhere;                       // [part][2][num_heads][rows_q]
    int64_t context = kNowhere;                              // [rows_q][num_heads][v_width]
    int64_t row_stats = kNowhere;                            // [2][num_heads][rows_q]
    int64_t suspects = kNowhere;                             // int32_t[items][num_heads]
    int64_t probs = kNowhere;     // [average_items][num_heads][seq_q][seq_kv + appended]
    int64_t key_bias = kNowhere;  // [items or 1][seq_kv]
    int64_t key_blocks =
        kNowhere;  // uint8_t[items or 1][num_heads or 1][seq_q / 16][seq_kv / 16], rounded up
    int64_t bytes = 0;
};

// Places of an item table for so many items.
ItemTable take_table(Carver& carver, int64_t items);

attnc_status plan_device_call(attnc_error* error, const DeviceLayer& layer, const Request& request,
                              DevicePlan* plan);

// Suffices for every call within the limits, and never shrinks when a limit grows.
attnc_status plan_device_bound(attnc_error* error, const DeviceLayer& layer, const attnc_limits& limits,
                               DevicePlan* plan);

// Whether rows, or items, of a tensor can be one dimension of a kernel's buffer: `count` of them, `stride` elements of `size`
// bytes apart.
bool fits(int64_t count, int64_t stride, int64_t size);

}  // namespace attnc::cuda
