// Making a cache, its lengths, and whose it is.
#include "runtime/cache.h"

#include "runtime/carve.h"
#include "runtime/check.h"
#include "runtime/text.h"

namespace attnc {
namespace {

constexpr uint64_t kMagic = 0x3165686361636b61;  // of this layout
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

attnc_status refuse_device(attnc_error* error, const attnc_layer& layer) {
    if (layer.device == nullptr) return ATTNC_OK;
    return fail(error, ATTNC_NOT_SUPPORTED,
                {"the layer is on target ", layer.device->name, ", which has no caches"});
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
    ATTNC_TRY(refuse_device(error, layer));
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
    // A kernel may be given the rows of a slot, or of all pages, at once.
    const bool paged = cache->is(ATTNC_CACHE_PAGED);
    const int64_t most = paged ? layer.max_rows / c.page_size : layer.max_rows / kRunKeys * kRunKeys;
    const int64_t asked = paged ? options->pages : options->capacity;
    if (asked > most) {
        return fail(error, ATTNC_TOO_LARGE,
                    {paged ? "pages" : "capacity", " is ", asked, ", at most ", most});
    }
    bool overflow = false;
    if (paged) {
        cache->pages = options->pages, cache->page_size = c.page_size;
        cache->rows = options->pages * c.page_size;
    } else {
        cache->slots = options->slots, cache->capacity = options->capacity;
        cache->slot_rows = (options->capacity + kRunKeys - 1) / kRunKeys * kRunKeys;
        overflow = __builtin_mul_overflow(cache->slots, cache->slot_rows, &cache->rows);
    }
    Carver carver;
    carver.take(sizeof(attnc_cache), {1});
    for (int64_t* offset : {&cache->lengths, &cache->first_held, &cache->marks})
        *offset = carver.take(sizeof(int64_t), {cache->slots});
    cache->k = carver.take(kFloat, {cache->kv_heads, cache->rows, cache->qk_width});
    cache->v = carver.take(kFloat, {cache->kv_heads, cache->rows, cache->v_width});
    if (overflow || carver.overflow()) {
        return fail(error, ATTNC_TOO_LARGE, {"the size of the cache overflows"});
    }
    cache->bytes = carver.bytes();
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
    ATTNC_TRY(refuse_device(error, layer));
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
    return cache->is(ATTNC_CACHE_RING) ? check_ring_layer(error, layer) : ATTNC_OK;
}

attnc_status check_slot(attnc_error* error, const char* name, int64_t slot, const attnc_cache& cache) {
    if (slot >= 0 && slot < cache.slots) return ATTNC_OK;
    return fail(error, ATTNC_BAD_VALUE, {name, " is ", slot, ", wanted 0 to ", cache.slots - 1});
}

}  // namespace attnc

using namespace attnc;

extern "C" attnc_status attnc_cache_bytes(const attnc_layer* layer, const attnc_cache_options* options,
                                          size_t* bytes, attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (bytes == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"bytes is null"});
    attnc_cache described;
    ATTNC_TRY(describe(error, *layer, options, &described));
    *bytes = static_cast<size_t>(described.bytes);
    return ATTNC_OK;
}

extern "C" attnc_status attnc_cache_create(const attnc_layer* layer, const attnc_cache_options* options,
                                           void* memory, size_t bytes, attnc_cache** cache,
                                           attnc_error* error) {
    if (cache == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"cache is null"});
    *cache = nullptr;
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    attnc_cache described;
    ATTNC_TRY(describe(error, *layer, options, &described));
    if (memory == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"memory is null"});
    if (reinterpret_cast<uintptr_t>(memory) % kAlignment != 0) {
        return fail(error, ATTNC_WORKSPACE_MISALIGNED, {"memory is not aligned to ", kAlignment, " bytes"});
    }
    if (bytes < static_cast<size_t>(described.bytes)) {
        return fail(error, ATTNC_WORKSPACE_TOO_SMALL,
                    {"memory has ", bytes, " bytes, wanted ", described.bytes});
    }
    auto* made = static_cast<attnc_cache*>(memory);
    *made = described;
    for (int64_t slot = 0; slot < made->slots; ++slot)
        made->at<int64_t>(made->lengths)[slot] = made->at<int64_t>(made->first_held)[slot] = 0;
    *cache = made;
    return ATTNC_OK;
}

extern "C" int64_t attnc_cache_length(const attnc_cache* cache, int64_t slot) {
    if (check_cache(nullptr, cache) != ATTNC_OK || slot < 0 || slot >= cache->slots) return -1;
    return cache->length_of(slot);
}

extern "C" attnc_status attnc_cache_rewind(attnc_cache* cache, int64_t slot, int64_t length,
                                           attnc_error* error) {
    ATTNC_TRY(check_cache(error, cache));
    if (cache->is(ATTNC_CACHE_PAGED)) {
        return fail(error, ATTNC_NOT_SUPPORTED, {"a paged cache keeps no lengths to rewind"});
    }
    ATTNC_TRY(check_slot(error, "slot", slot, *cache));
    const int64_t now = cache->length_of(slot);
    if (length < 0 || length > now) {
        return fail(error, ATTNC_BAD_VALUE, {"length is ", length, ", wanted 0 to ", now});
    }
    int64_t& first = cache->at<int64_t>(cache->first_held)[slot];
    if (length != 0 && length < first) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"length is ", length, ", but the ring holds keys from ", first, " on"});
    }
    if (length == 0) first = 0;
    cache->at<int64_t>(cache->lengths)[slot] = length;
    return ATTNC_OK;
}
