// Caches in a device's memory, outside of calls: their lengths, and what is copied to, from and within them.
#pragma once

#include "runtime/cache_copy.h"
#include "runtime/cuda/device_layer.h"

namespace attnc::cuda {

// What the block of a cache keeps, so that functions without a layer reach the device.
struct CachePart {
    Driver driver;
    Context context;
};

attnc_status create_cache(const attnc_layer& layer, attnc_cache& cache, attnc_error* error);
attnc_status check_cache_context(const attnc_layer& layer, const attnc_cache& cache, attnc_error* error);
attnc_status read_slot_keys(const attnc_cache& cache, int64_t slot, SlotKeys* keys, attnc_error* error);
attnc_status write_slot_keys(attnc_cache& cache, int64_t slot, const SlotKeys& keys, attnc_error* error);
attnc_status transfer_rows(const Transfer& transfer, bool imports, attnc_error* error);
attnc_status reorder_slots(attnc_cache& cache, const int64_t* from, int64_t count, attnc_error* error);

// A part of the cache's memory on the device.
template <typename T>
T* in_cache(const attnc_cache& cache, int64_t offset) {
    return reinterpret_cast<T*>(static_cast<unsigned char*>(cache.device_memory) + offset);
}

}  // namespace attnc::cuda
