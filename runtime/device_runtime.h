// What the runtime does with a device, behind one table of functions: layer, forward and the device's own calls go through
// it, so that a program whose libraries are for CPUs alone links none of runtime/cuda.
#pragma once

#include "runtime/attnc.h"
#include "runtime/kernel_abi.h"

namespace attnc {
struct LayerSources;
struct SlotKeys;
struct Transfer;
}  // namespace attnc

struct attnc_device_runtime {
    bool (*is_there)();  // a driver and a device
    attnc_status (*create)(attnc_error* error, const attnc_device_entry& entry,
                           const attnc::LayerSources& sources, attnc_layer** layer);
    void (*destroy)(attnc_layer* layer);
    // As the functions of attnc.h; the layer is there.
    attnc_status (*workspace)(const attnc_layer& layer, const attnc_inputs* inputs,
                              const attnc_outputs* outputs, const attnc_run* run, size_t* bytes,
                              attnc_error* error);
    attnc_status (*workspace_bound)(const attnc_layer& layer, const attnc_limits& limits, size_t* bytes,
                                    attnc_error* error);
    attnc_status (*forward)(const attnc_layer& layer, const attnc_inputs* inputs,
                            const attnc_outputs* outputs, const attnc_run& run, attnc_error* error);
    attnc_status (*memory_workspace)(const attnc_layer& layer, const attnc_inputs* inputs, attnc_cache* cache,
                                     const attnc_run* run, size_t* bytes, attnc_error* error);
    attnc_status (*memory_project)(const attnc_layer& layer, const attnc_inputs* inputs, attnc_cache* cache,
                                   const attnc_run& run, attnc_error* error);
    attnc_status (*rotate_workspace)(const attnc_layer& layer, const attnc_run* run, size_t* bytes,
                                     attnc_error* error);
    attnc_status (*rotate)(const attnc_layer& layer, const attnc_rotation* rotation, const attnc_run& run,
                           attnc_error* error);
    // Caches: a block that is described, and its arguments are checked.
    int64_t cache_part_bytes;  // of the block, for what the device's runtime keeps of its own
    attnc_status (*create_cache)(const attnc_layer& layer, attnc_cache& cache, attnc_error* error);
    // Refuses a cache whose memory the layer can't reach.
    attnc_status (*check_cache)(const attnc_layer& layer, const attnc_cache& cache, attnc_error* error);
    attnc_status (*slot_keys)(const attnc_cache& cache, int64_t slot, attnc::SlotKeys* keys,
                              attnc_error* error);
    attnc_status (*set_slot_keys)(attnc_cache& cache, int64_t slot, const attnc::SlotKeys& keys,
                                  attnc_error* error);
    attnc_status (*transfer)(const attnc::Transfer& transfer, bool imports, attnc_error* error);
    attnc_status (*reorder)(attnc_cache& cache, const int64_t* from, int64_t count, attnc_error* error);
    attnc_status (*allocate)(const attnc_layer& layer, size_t bytes, void** memory, attnc_error* error);
    attnc_status (*free)(const attnc_layer& layer, void* memory, attnc_error* error);
    attnc_status (*copy_in)(const attnc_layer& layer, void* to, const void* from, size_t bytes, void* stream,
                            attnc_error* error);
    attnc_status (*copy_out)(const attnc_layer& layer, void* to, const void* from, size_t bytes, void* stream,
                             attnc_error* error);
    attnc_status (*synchronize)(const attnc_layer& layer, void* stream, attnc_error* error);
};
