// The parts of a layer on a wave of items, each a few launches on the call's stream.
#pragma once

#include "runtime/cuda/device_plan.h"
#include "runtime/cuda/launcher.h"
#include "runtime/text.h"

namespace attnc::cuda {

// Items of a side's tokens, as kernels take them that go by rows: packed tokens are one item.
struct TokenRows {
    int64_t items, seq;
    const int32_t* counts;  // rows that count, of each item
    int64_t rows() const { return items * seq; }
};

struct DeviceWave {
    const DeviceLayer& layer;
    const Request& request;
    const DevicePlan& plan;
    Stream stream;
    unsigned char* workspace;
    attnc_error* error;
    int64_t first, items;     // of the batch
    TokenRows queries, keys;  // keys: those that the call brings
    const float *q, *k, *v;   // planes of rows; set by project_tokens

    template <typename T>
    T* at(int64_t offset) const {
        return reinterpret_cast<T*>(workspace + offset);
    }
    attnc_status run(int kernel, DeviceCall& call) const {
        return run_kernel(error, layer, stream, kernel, call);
    }
    // A mask of the call, from the wave's first item on; elements of so many bytes.
    MaskView of_wave(const MaskView& view, int64_t size) const {
        MaskView moved = view;
        moved.data = static_cast<const unsigned char*>(view.data) + first * view.batch_stride * size;
        return moved;
    }
    // A table of all items of a call with a cache, from the wave's first item on.
    int32_t* cached(int64_t offset) const { return at<int32_t>(offset) + first; }
    // int32 numbers of a table of the call, whose first is that of item `first`; not given: any.
    struct Numbers {
        const void* data;
        int64_t stride;
    };
    Numbers numbers(const ItemNumbers& table) const {
        if (!table.present) return {layer.anything(), 0};
        const int64_t width = table.wide ? 8 : 4;
        return {static_cast<const unsigned char*>(table.data) + first * width, width / 4};
    }
};

// Items first .. of the batch, as many as the workspace holds. A call begins and ends with all of them.
DeviceWave begin_wave(attnc_error* error, const DeviceLayer& layer, const Request& request,
                      const DevicePlan& plan, void* workspace, Stream stream, int64_t first);

attnc_status fill_tables(const DeviceWave& wave);

// The new keys of items, where their counts are apart from those of the queries.
attnc_status fill_new_keys(const DeviceWave& wave);

// The call's table for items of `rows` queries, all of which count, and no keys.
attnc_status fill_whole_items(const DeviceWave& wave, int64_t rows);

// `wave` is all items of a call. In front: the tables of its cache, and that a ring won't hold what the call overwrites, which stays
// true after a failure. At the end: lengths grow.
attnc_status begin_cached(const DeviceWave& wave);
attnc_status end_cached(const DeviceWave& wave);

// Where the items' keys lie, and appended ones, of a library with cache; behind all other tables.
attnc_status fill_key_runs(const DeviceWave& wave);

// Masks in the forms that attention takes, where the call's are of others.
attnc_status make_masks(const DeviceWave& wave);

// Q, K and V as attention reads them: projected or split into heads, normalised, rotated.
attnc_status project_tokens(DeviceWave& wave);

// New keys and values into the cache.
attnc_status append_keys(const DeviceWave& wave);

// K and V of the cache: planes of so many rows.
struct CacheRows {
    const float *k, *v;
    int64_t rows;
};
CacheRows cache_rows(const DeviceWave& wave);

// Contexts and row statistics of all heads.
attnc_status attend_items(const DeviceWave& wave);

// lse, probabilities and scores, where they are asked for.
attnc_status write_pairs(const DeviceWave& wave);

// The output, from the contexts.
attnc_status write_output(const DeviceWave& wave);

}  // namespace attnc::cuda
