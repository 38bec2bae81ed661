// How a call uses its workspace: one function decides it for attnc_layer_workspace, for the bound and for
// forward, so that they can't disagree. Large batches go through the workspace in waves of items.
#pragma once

#include <cstdint>

#include "runtime/layer.h"
#include "runtime/request.h"

namespace attnc {

inline constexpr int64_t kNoOffset = -1;

struct Plan {
    // What is done.
    int64_t wave_items = 0;    // items that are in the workspace at a time
    int64_t attend_rows = 0;   // queries of one task of attention
    int64_t average_rows = 0;  // queries, and keys, that probabilities are averaged for at a time
    int64_t average_columns = 0;
    int64_t concurrency = 1;
    bool copies_q = false, copies_k = false, copies_v = false;  // projected, or split into padded heads
    bool owns_context = false;                                  // false: attention writes into out
    bool makes_key_addend = false;  // everything per key becomes one number to add, -inf where dropped
    bool makes_key_runs = false;    // of a cache whose rows are not one after another
    bool keeps_row_stats = false;   // for probabilities that are only averaged
    bool maps_key_blocks = false;   // of what masks drop whole
    int64_t mapped_columns = 0;     // granules of the keys of a block

    // Rows that each head's plane of q and of k and v has room for.
    int64_t rows_q = 0, rows_kv = 0;
    int64_t rows_context = 0;  // contexts that there is room for: those of a long item are made in parts
    int64_t attended = 0;      // keys that there is room for in what is per key
    int64_t run_count = 0;     // runs of 16 keys that there is room for
    int64_t block_keys = 0;    // keys that a worker has room for, as their rows don't lie one after another
    int64_t split_rows = 0;    // results of splits of keys, of one query of one head each

    // Offsets in the workspace, in bytes.
    int64_t items = kNoOffset;          // Item[wave_items]
    int64_t q = kNoOffset;              // [plane][rows_q][qk_width]
    int64_t k = kNoOffset;              // [plane][rows_kv][qk_width]
    int64_t v = kNoOffset;              // [plane][rows_kv][v_width]
    int64_t q_angles = kNoOffset;       // [rows_q][2 * rotary.stride]
    int64_t k_angles = kNoOffset;       // [rows_kv][2 * rotary.stride]
    int64_t context = kNoOffset;        // [rows_context][num_heads][v_width]
    int64_t key_addend = kNoOffset;     // [attended]
    int64_t key_runs = kNoOffset;       // int32_t[run_count]: cache rows of the first key of each run
    int64_t row_stats = kNoOffset;      // [num_heads][2][rows_q]
    int64_t split_context = kNoOffset;  // [split_rows][v_width]
    int64_t split_stats = kNoOffset;    // [2][split_rows]
    int64_t workers = kNoOffset;        // one part a task, each worker_bytes long

    // Offsets in a worker's part.
    int64_t worker_row_stats = kNoOffset;  // three times [2][attend_rows]
    int64_t worker_context = kNoOffset;    // [attend_rows][v_width]: of a block of keys before it is merged
    int64_t worker_split_drop =
        kNoOffset;  // [ATTNC_DECODE_ROWS][split_kv] bytes: what a block mask drops of a split
    int64_t worker_key_blocks = kNoOffset;  // [attend_rows / 16][tile_kv / 16], rounded up: a KeyBlockMap
    int64_t worker_probs = kNoOffset;       // [average_rows][average_columns]
    int64_t worker_k = kNoOffset;           // [block_keys][qk_width]: a block of keys
    int64_t worker_v = kNoOffset;           // [block_keys][v_width]
    int64_t worker_scratch = kNoOffset;     // the kernels' arena
    int64_t worker_bytes = 0;

    int64_t bytes = 0;
};

attnc_status plan_call(attnc_error* error, const attnc_layer& layer, const Request& request, Plan* plan);

// Suffices for every call within the limits, and never shrinks when a limit grows.
attnc_status plan_bound(attnc_error* error, const attnc_layer& layer, const attnc_limits& limits, Plan* plan);

// That the caller's workspace is there, aligned and has `bytes`, where that is not 0.
attnc_status check_workspace(attnc_error* error, int64_t bytes, int64_t alignment, const attnc_run& run);

// Rows, at least one, that a buffer with this row stride (elements of `size` bytes) may have for a kernel.
int64_t safe_rows(int64_t row_stride, int64_t size);

// What masks a call has, once those that are the same for all heads and queries are joined into one number
// per key.
struct MaskUse {
    bool any = false;
    bool key_addend = false;                        // a number per key is added
    bool addend_by_item = false;                    // and is not the same for all items
    const MaskView* in_place = nullptr;             // the caller's own, where nothing had to be joined
    bool keep = false, drop = false, bias = false;  // rank-4 ones that are handed to the kernel
    bool blocks = false;                            // a block mask
};
MaskUse use_masks(const Request& request);

}  // namespace attnc
