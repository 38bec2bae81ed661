// Keys and values that stay from call to call: one block of the caller's memory, which begins with the numbers of its
// layout. Offsets instead of pointers, so that the block may be moved. Of a layer on a device the block is this head alone, and
// the rest lies in the device's memory, at the same kinds of offsets.
#pragma once

#include <cstdint>

#include "runtime/attnc.h"
#include "runtime/layer.h"

// For each KV head a plane of K, [rows][qk_width], and one of V, [rows][v_width]. A slot is slot_rows of these rows: key j
// is row j of its slot, in a ring row j % capacity. Paged: page p is rows p * page_size ..
struct attnc_cache {
    uint64_t magic;
    int64_t bytes;  // of the block
    int64_t kind;   // attnc_cache_kind, never NOT_GIVEN
    int64_t kv_heads, head_dim, v_head_dim;
    int64_t qk_width, v_width;  // padded features of a head
    int64_t slots, capacity, slot_rows;
    int64_t pages, page_size;
    int64_t rows;  // on a device with those of a slot more, where slots can change places
    // Offsets in bytes: in the block, of a cache on a device the first four in its memory.
    int64_t lengths;  // int64_t[slots]: keys so far, in a ring those too that are gone; on a device int32_t
    int64_t first_held;  // the same: keys first_held .. length are there; 0 unless a ring
    int64_t k, v;
    int64_t marks;  // int64_t[slots]: for reordering

    const attnc_device_runtime* device;  // null: everything is in the block
    void* device_memory;
    int64_t device_bytes;
    int64_t device_part;  // offset of what the device's runtime keeps in the block
    int64_t staged;       // offset: int32_t[2][slots], lengths and first_held while slots are reordered

    bool is(attnc_cache_kind wanted) const { return kind == wanted; }
    // The memory that has keys and values.
    struct Memory {
        const void* data;
        int64_t bytes;
    };
    Memory contents() const {
        return device != nullptr ? Memory{device_memory, device_bytes} : Memory{this, bytes};
    }
    template <typename T>
    T* at(int64_t offset) {
        return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(this) + offset);
    }
    template <typename T>
    const T* at(int64_t offset) const {
        return reinterpret_cast<const T*>(reinterpret_cast<const unsigned char*>(this) + offset);
    }
    // The following are of a cache in the host's memory.
    int64_t length_of(int64_t slot) const { return at<int64_t>(lengths)[slot]; }
    int64_t first_held_of(int64_t slot) const { return at<int64_t>(first_held)[slot]; }
    float* k_rows(int64_t kv_head, int64_t row) { return at<float>(k) + (kv_head * rows + row) * qk_width; }
    float* v_rows(int64_t kv_head, int64_t row) { return at<float>(v) + (kv_head * rows + row) * v_width; }
    const float* k_rows(int64_t kv_head, int64_t row) const {
        return at<float>(k) + (kv_head * rows + row) * qk_width;
    }
    const float* v_rows(int64_t kv_head, int64_t row) const {
        return at<float>(v) + (kv_head * rows + row) * v_width;
    }
};

namespace attnc {

// Keys of one table entry of decoding: runs of so many keys always lie in rows one after another.
inline constexpr int64_t kRunKeys = ATTNC_RUN_KEYS;

// Rows of consecutive keys.
struct RowRun {
    int64_t row, count;
};

// The keys that a slot has: first_held .. length.
struct SlotKeys {
    int64_t length, first_held;
};
attnc_status slot_keys(attnc_error* error, const attnc_cache& cache, int64_t slot, SlotKeys* keys);
attnc_status set_slot_keys(attnc_error* error, attnc_cache& cache, int64_t slot, const SlotKeys& keys);

// Where the keys of one item lie: in a slot, or in the pages of its block table.
struct CachePlace {
    const attnc_cache* cache;
    int64_t slot;
    const int32_t* pages;  // of a paged cache
    int64_t page_stride;

    // The row of `key`, and how many of the `count` keys from it on lie one after another.
    RowRun at(int64_t key, int64_t count) const;
};

// Refuses what is no cache.
attnc_status check_cache(attnc_error* error, const attnc_cache* cache);

// Refuses a cache of another kind of layer, by its numbers and where it lies, and a ring where the layer can't use one.
attnc_status check_cache_of_layer(attnc_error* error, const attnc_layer& layer, const attnc_cache* cache);

attnc_status check_slot(attnc_error* error, const char* name, int64_t slot, const attnc_cache& cache);

}  // namespace attnc
