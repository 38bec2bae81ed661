// A stage of a call: numbered pieces of work that threads take one after another.
#pragma once

#include <cstdint>

#include "runtime/item.h"
#include "runtime/layer.h"
#include "runtime/plan.h"
#include "runtime/request.h"

namespace attnc {

// What all tasks of a stage read: the call, and the wave of items that is in the workspace.
struct Wave {
    const attnc_layer& layer;
    const Request& request;
    const Plan& plan;
    MaskUse masks;
    unsigned char* workspace;
    Item* items;
    int64_t item_count = 0;
    int64_t q_rows = 0, kv_rows = 0;  // valid ones of all items
    bool keys_share_angles = false;   // keys are rotated by the queries' angles
    int64_t most_splits = 0;          // of keys, of an item with few queries; 0: no item has few
    int64_t new_rows = 0;  // keys that are projected: kv_rows, with a cache those that are appended
    // Queries of each item whose contexts are in the workspace: all, or of a long item as many as there is room for.
    int64_t first_query = 0, end_query = 0;

    template <typename T>
    T* at(int64_t offset) const {
        return reinterpret_cast<T*>(workspace + offset);
    }
};

// Keys first .. first + count of an item for one head of K and V. Rows before `needed` are not read.
struct KvBlock {
    const Item* item;  // null: none
    int64_t kv_head, first, count, needed;
    bool wants_v;
    bool any_strides;  // rows may lie apart
};

// What one task has to itself.
struct Worker {
    attnc_task task;
    unsigned char* memory;  // of the workspace; Plan::worker_bytes
    KvBlock copied;         // what Plan::worker_k and worker_v hold

    float* floats(int64_t offset) const { return reinterpret_cast<float*>(memory + offset); }
};

// Work of one kind within a stage. `data` is what prepared it; run returns false after a kernel refused,
// having named the kernel in `refused`.
struct WorkList {
    int64_t count = 0;
    bool (*run)(const Wave& wave, const void* data, Worker& worker, int64_t index,
                const char** refused) = nullptr;
    const void* data = nullptr;
};

// Runs all work of all lists, in that order as far as threads are free for it. The first failure wins.
attnc_status run_stage(attnc_error* error, const Wave& wave, const WorkList* lists, int64_t list_count);

}  // namespace attnc
