// Making a cache, its lengths, and whose it is.
#include "runtime/cache.h"

#include "runtime/arithmetic.h"
#include "runtime/carve.h"
#include "runtime/check.h"
#include "runtime/device_runtime.h"
#include "runtime/text.h"

namespace attnc {
namespace {

constexpr uint64_t kMagic = 0x3265686361636b61;  // of this layout
constexpr int64_t kFloat = sizeof(float);

attnc_status check_positive(attnc_error* error, const char* name, int64_t value) {
    if (value >= 1) return ATTNC_OK;
    return fail(error, ATTNC_BAD_VALUE, {name, " is ", value, ", wanted 1 or more"});
}

attnc_status check_unused(attnc_error* error, const char* name, int64_t value, const char* why) {
    if (value == 0) return ATTNC_OK;
    return fail(error, ATTNC_BAD_VALUE, {name, " is ", value, ", but the cache is ", why});
}

// A ring forgets keys, so only a layer that never asks for them may have one.
attnc_status check_ring_layer(attnc_error* error, const attnc_layer& layer) {
    if ((layer.window & ATTNC_WINDOW_LEFT) == 0) {
        return fail(error, ATTNC_NOT_SUPPORTED, {"a ring needs a layer with window_left"});
    }
    if (layer.empty_rows == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES) {
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {"a ring does not keep all keys, which empty_rows mean_of_values averages over"});
    }
    return ATTNC_OK;
}

attnc_status check_place(attnc_error* error, const attnc_layer& layer, const attnc_cache& cache) {
    if (cache.device == nullptr && layer.device == nullptr) return ATTNC_OK;
    if (cache.device == nullptr || layer.device == nullptr) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"cache was made for a layer ", cache.device == nullptr ? "on no device" : "on a device",
                     ", the layer is on target ", attnc_layer_target(&layer)});
    }
    return cache.device->check_cache(layer, cache, error);
}

attnc_status check_options(attnc_error* error, const attnc_layer& layer, const attnc_cache_options* options) {
    if (options == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"options is null"});
    if (options->struct_size != sizeof(attnc_cache_options)) {
        return fail(error, ATTNC_BAD_STRUCT_SIZE,
                    {"struct_size of attnc_cache_options is ", options->struct_size, ", wanted ",
                     sizeof(attnc_cache_options)});
    }
    if (!layer.has(ATTNC_CONFIG_CACHE)) {
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {"a cache is asked for, but the library was compiled without cache"});
    }
    if (layer.device == nullptr && (options->device_memory != nullptr || options->device_bytes != 0)) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"device_memory is given, but the layer is on target ", attnc_layer_target(&layer)});
    }
    const int kind = number_of(options->kind);
    if (kind < ATTNC_CACHE_KIND_NOT_GIVEN || kind > ATTNC_CACHE_PAGED) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"kind is ", kind, ", wanted 0 to ", static_cast<int>(ATTNC_CACHE_PAGED)});
    }
    if (kind == ATTNC_CACHE_PAGED) {
        if (layer.config.page_size == 0) {
            return fail(error, ATTNC_NOT_SUPPORTED,
                        {"a paged cache is asked for, but the library was compiled without a page size"});
        }
        ATTNC_TRY(check_unused(error, "slots", options->slots, "paged"));
        ATTNC_TRY(check_unused(error, "capacity", options->capacity, "paged"));
        return check_positive(error, "pages", options->pages);
    }
    ATTNC_TRY(check_unused(error, "pages", options->pages, "not paged"));
    ATTNC_TRY(check_positive(error, "slots", options->slots));
    ATTNC_TRY(check_positive(error, "capacity", options->capacity));
    if (kind != ATTNC_CACHE_RING) return ATTNC_OK;
    if (options->capacity % kRunKeys != 0) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"capacity is ", options->capacity, ", wanted a multiple of ", kRunKeys, " for a ring"});
    }
    return check_ring_layer(error, layer);
}

// Rows of all slots or pages for each head, within what a kernel may be given at once: of a CPU one slot or all pages, of a
// device everything.
attnc_status describe_rows(attnc_error* error, const attnc_layer& layer, const attnc_cache_options& options,
                           attnc_cache& cache) {
    const bool paged = cache.is(ATTNC_CACHE_PAGED), on_device = layer.device != nullptr;
    const int64_t page_size = layer.config.page_size;
    const int64_t device_rows = INT32_MAX / (most(cache.qk_width, cache.v_width) * kFloat);
    const int64_t rows = on_device ? device_rows : layer.max_rows;
    const int64_t limit = paged ? rows / page_size : rows / kRunKeys * kRunKeys;
    const int64_t asked = paged ? options.pages : options.capacity;
    if (asked > limit) {
        return fail(error, ATTNC_TOO_LARGE,
                    {paged ? "pages" : "capacity", " is ", asked, ", at most ", limit});
    }
    if (paged) {
        cache.pages = options.pages, cache.page_size = page_size;
        cache.rows = options.pages * page_size;
        return ATTNC_OK;
    }
    cache.slots = options.slots, cache.capacity = options.capacity;
    cache.slot_rows = divide_up(options.capacity, kRunKeys) * kRunKeys;
    int64_t slots = cache.slots;
    if (on_device && slots > 1) ++slots;  // one to put a slot aside while others change places
    if (__builtin_mul_overflow(slots, cache.slot_rows, &cache.rows)) cache.rows = INT64_MAX;
    if (on_device && cache.rows > device_rows) {
        return fail(error, ATTNC_TOO_LARGE,
                    {"the cache has ", cache.rows, " rows for a head, on a device at most ", device_rows});
    }
    return ATTNC_OK;
}

// Lengths, then keys and values.
void take_contents(Carver& carver, int64_t length_bytes, attnc_cache& cache) {
    for (int64_t* offset : {&cache.lengths, &cache.first_held})
        *offset = carver.take(length_bytes, {cache.slots});
    cache.k = carver.take(kFloat, {cache.kv_heads, cache.rows, cache.qk_width});
    cache.v = carver.take(kFloat, {cache.kv_heads, cache.rows, cache.v_width});
}

// The block's head: all numbers, and so its size.
attnc_status describe(attnc_error* error, const attnc_layer& layer, const attnc_cache_options* options,
                      attnc_cache* cache) {
    ATTNC_TRY(check_options(error, layer, options));
    const attnc_config& c = layer.config;
    *cache = {};
    cache->magic = kMagic;
    cache->kind = options->kind == ATTNC_CACHE_KIND_NOT_GIVEN ? ATTNC_CACHE_SLOTS : options->kind;
    cache->kv_heads = c.num_kv_heads;
    cache->head_dim = c.head_dim, cache->v_head_dim = c.v_head_dim;
    cache->qk_width = layer.qk_width, cache->v_width = layer.v_width;
    ATTNC_TRY(describe_rows(error, layer, *options, *cache));
    Carver block, device(kDeviceAlignment);
    block.take(sizeof(attnc_cache), {1});
    if (layer.device != nullptr) {
        cache->device = layer.device->runtime;
        cache->device_part = block.take(cache->device->cache_part_bytes, {1});
        cache->staged = block.take(sizeof(int32_t), {2, cache->slots});
        take_contents(device, sizeof(int32_t), *cache);
    } else {
        take_contents(block, sizeof(int64_t), *cache);
    }
    cache->marks = block.take(sizeof(int64_t), {cache->slots});
    if (block.overflow() || device.overflow()) {
        return fail(error, ATTNC_TOO_LARGE, {"the size of the cache overflows"});
    }
    cache->bytes = block.bytes();
    cache->device_bytes = device.bytes();
    return ATTNC_OK;
}

struct CacheMemory {
    const char* name;
    void* data;
    size_t bytes;
    int64_t alignment, wanted;
};
attnc_status check_memory(attnc_error* error, const CacheMemory& memory) {
    if (memory.data == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {memory.name, " is null"});
    if (reinterpret_cast<uintptr_t>(memory.data) % static_cast<uintptr_t>(memory.alignment) != 0) {
        return fail(error, ATTNC_WORKSPACE_MISALIGNED,
                    {memory.name, " is not aligned to ", memory.alignment, " bytes"});
    }
    if (memory.bytes < static_cast<size_t>(memory.wanted)) {
        return fail(error, ATTNC_WORKSPACE_TOO_SMALL,
                    {memory.name, " has ", memory.bytes, " bytes, wanted ", memory.wanted});
    }
    return ATTNC_OK;
}

}  // namespace

RowRun CachePlace::at(int64_t key, int64_t count) const {
    int64_t row = 0, together = count;
    switch (cache->kind) {
        case ATTNC_CACHE_RING:
            row = key % cache->capacity;
            together = cache->capacity - row;
            row += slot * cache->slot_rows;
            break;
        case ATTNC_CACHE_PAGED: {
            const int64_t size = cache->page_size, within = key % size;
            row = int64_t{pages[key / size * page_stride]} * size + within;
            together = size - within;
            break;
        }
        default:
            row = slot * cache->slot_rows + key;
    }
    return {row, together < count ? together : count};
}

attnc_status check_cache(attnc_error* error, const attnc_cache* cache) {
    if (cache == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"cache is null"});
    if (reinterpret_cast<uintptr_t>(cache) % kAlignment != 0 || cache->magic != kMagic) {
        return fail(error, ATTNC_BAD_VALUE, {"cache is not one that attnc_cache_create made"});
    }
    return ATTNC_OK;
}

attnc_status check_cache_of_layer(attnc_error* error, const attnc_layer& layer, const attnc_cache* cache) {
    if (!layer.has(ATTNC_CONFIG_CACHE)) {
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {"cache is given, but the library was compiled without cache"});
    }
    ATTNC_TRY(check_cache(error, cache));
    const attnc_config& c = layer.config;
    if (cache->kv_heads != c.num_kv_heads || cache->head_dim != c.head_dim ||
        cache->v_head_dim != c.v_head_dim) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"cache was made for ", cache->kv_heads, " KV heads of ", cache->head_dim, " and ",
                     cache->v_head_dim, " features, the layer has ", c.num_kv_heads, " of ", c.head_dim,
                     " and ", c.v_head_dim});
    }
    if (cache->is(ATTNC_CACHE_PAGED) && cache->page_size != c.page_size) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"cache was made for pages of ", cache->page_size, " keys, the layer has pages of ",
                     c.page_size});
    }
    ATTNC_TRY(check_place(error, layer, *cache));
    return cache->is(ATTNC_CACHE_RING) ? check_ring_layer(error, layer) : ATTNC_OK;
}

attnc_status slot_keys(attnc_error* error, const attnc_cache& cache, int64_t slot, SlotKeys* keys) {
    if (cache.device != nullptr) return cache.device->slot_keys(cache, slot, keys, error);
    *keys = {cache.length_of(slot), cache.first_held_of(slot)};
    return ATTNC_OK;
}

attnc_status set_slot_keys(attnc_error* error, attnc_cache& cache, int64_t slot, const SlotKeys& keys) {
    if (cache.device != nullptr) return cache.device->set_slot_keys(cache, slot, keys, error);
    cache.at<int64_t>(cache.lengths)[slot] = keys.length;
    cache.at<int64_t>(cache.first_held)[slot] = keys.first_held;
    return ATTNC_OK;
}

attnc_status check_slot(attnc_error* error, const char* name, int64_t slot, const attnc_cache& cache) {
    if (slot >= 0 && slot < cache.slots) return ATTNC_OK;
    return fail(error, ATTNC_BAD_VALUE, {name, " is ", slot, ", wanted 0 to ", cache.slots - 1});
}

}  // namespace attnc

using namespace attnc;

namespace {

attnc_status size_of(const attnc_layer* layer, const attnc_cache_options* options, int64_t attnc_cache::*size,
                     size_t* bytes, attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (bytes == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"bytes is null"});
    attnc_cache described;
    ATTNC_TRY(describe(error, *layer, options, &described));
    *bytes = static_cast<size_t>(described.*size);
    return ATTNC_OK;
}

}  // namespace

extern "C" attnc_status attnc_cache_bytes(const attnc_layer* layer, const attnc_cache_options* options,
                                          size_t* bytes, attnc_error* error) {
    return size_of(layer, options, &attnc_cache::bytes, bytes, error);
}

extern "C" attnc_status attnc_cache_device_bytes(const attnc_layer* layer, const attnc_cache_options* options,
                                                 size_t* bytes, attnc_error* error) {
    return size_of(layer, options, &attnc_cache::device_bytes, bytes, error);
}

extern "C" attnc_status attnc_cache_create(const attnc_layer* layer, const attnc_cache_options* options,
                                           void* memory, size_t bytes, attnc_cache** cache,
                                           attnc_error* error) {
    if (cache == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"cache is null"});
    *cache = nullptr;
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    attnc_cache described;
    ATTNC_TRY(describe(error, *layer, options, &described));
    ATTNC_TRY(check_memory(error, {"memory", memory, bytes, kAlignment, described.bytes}));
    if (described.device != nullptr) {
        described.device_memory = options->device_memory;
        ATTNC_TRY(check_memory(error, {"device_memory", options->device_memory, options->device_bytes,
                                       kDeviceAlignment, described.device_bytes}));
    }
    auto* made = static_cast<attnc_cache*>(memory);
    *made = described;
    if (made->device != nullptr) {
        const attnc_status status = made->device->create_cache(*layer, *made, error);
        if (status != ATTNC_OK) {
            made->magic = 0;
            return status;
        }
    } else {
        for (int64_t slot = 0; slot < made->slots; ++slot)
            made->at<int64_t>(made->lengths)[slot] = made->at<int64_t>(made->first_held)[slot] = 0;
    }
    *cache = made;
    return ATTNC_OK;
}

extern "C" int64_t attnc_cache_length(const attnc_cache* cache, int64_t slot) {
    SlotKeys keys;
    if (check_cache(nullptr, cache) != ATTNC_OK || slot < 0 || slot >= cache->slots) return -1;
    return slot_keys(nullptr, *cache, slot, &keys) == ATTNC_OK ? keys.length : -1;
}

extern "C" attnc_status attnc_cache_rewind(attnc_cache* cache, int64_t slot, int64_t length,
                                           attnc_error* error) {
    ATTNC_TRY(check_cache(error, cache));
    if (cache->is(ATTNC_CACHE_PAGED)) {
        return fail(error, ATTNC_NOT_SUPPORTED, {"a paged cache keeps no lengths to rewind"});
    }
    ATTNC_TRY(check_slot(error, "slot", slot, *cache));
    SlotKeys keys;
    ATTNC_TRY(slot_keys(error, *cache, slot, &keys));
    if (length < 0 || length > keys.length) {
        return fail(error, ATTNC_BAD_VALUE, {"length is ", length, ", wanted 0 to ", keys.length});
    }
    if (length != 0 && length < keys.first_held) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"length is ", length, ", but the ring holds keys from ", keys.first_held, " on"});
    }
    return set_slot_keys(error, *cache, slot, {length, length == 0 ? 0 : keys.first_held});
}
