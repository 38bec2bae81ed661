// Moving what a cache holds: to and from tensors, and between its slots.
#include "runtime/cache_copy.h"

#include <cstring>

#include "runtime/arithmetic.h"
#include "runtime/check.h"
#include "runtime/device_runtime.h"
#include "runtime/text.h"

namespace attnc {
namespace {

struct TransferChecker {
    attnc_error* error;
    const attnc_cache& cache;
    const attnc_cache_range& range;
    const attnc_tensor &key, &value;
    bool imports;
    Transfer& t;

    attnc_status all();
    attnc_status tensor(const char* name, const attnc_tensor& tensor, int64_t features, OutView* view);
    attnc_status items();
    attnc_status slots();
    attnc_status check_keys(int64_t slot);
    attnc_status pages();
    attnc_status overlap(const char* name, const attnc_tensor& tensor);
};

attnc_status TransferChecker::tensor(const char* name, const attnc_tensor& tensor, int64_t features,
                                     OutView* view) {
    if (!given(tensor)) {
        return imports ? fail(error, ATTNC_MISSING_TENSOR, {name, " is missing"}) : ATTNC_OK;
    }
    ATTNC_TRY(check_tensor(error, {name, ATTNC_F32, ATTNC_F32, false, !imports, true}, tensor,
                           {{"batch", t.batch},
                            {"num_kv_heads", cache.kv_heads},
                            {"count", range.count},
                            {"features of a head", features}}));
    t.batch = tensor.extent[0];
    *view = {static_cast<float*>(tensor.data), tensor.stride[0], tensor.stride[1], tensor.stride[2]};
    return overlap(name, tensor);
}

attnc_status TransferChecker::overlap(const char* name, const attnc_tensor& tensor) {
    if (is_empty(tensor)) return ATTNC_OK;
    const attnc_cache::Memory memory = cache.contents();
    const auto begin = reinterpret_cast<uintptr_t>(tensor.data),
               mine = reinterpret_cast<uintptr_t>(memory.data);
    const auto end = begin + static_cast<uintptr_t>(last_element(tensor) + 1) * sizeof(float);
    if (end <= mine || mine + static_cast<uintptr_t>(memory.bytes) <= begin) return ATTNC_OK;
    return fail(error, ATTNC_OVERLAP, {name, " overlaps the cache"});
}

attnc_status TransferChecker::check_keys(int64_t slot) {
    SlotKeys there;
    ATTNC_TRY(slot_keys(error, cache, slot, &there));
    const int64_t end = range.first + range.count, length = there.length;
    const bool ring = cache.is(ATTNC_CACHE_RING);
    if (!imports) {
        if (end > length) {
            return fail(error, ATTNC_BAD_VALUE,
                        {"slot ", slot, " has ", length, " keys, but first + count is ", end});
        }
        const int64_t held = there.first_held;
        if (range.first >= held || range.count == 0) return ATTNC_OK;
        return fail(error, ATTNC_BAD_VALUE,
                    {"first is ", range.first, ", but slot ", slot, " holds keys from ", held, " on"});
    }
    if (ring) {
        if (range.count <= cache.capacity) return ATTNC_OK;
        return fail(error, ATTNC_BAD_VALUE,
                    {"count is ", range.count, ", but the ring's capacity is ", cache.capacity});
    }
    if (range.first > length) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"first is ", range.first, ", but slot ", slot, " has ", length, " keys"});
    }
    if (end <= cache.capacity) return ATTNC_OK;
    return fail(error, ATTNC_BAD_VALUE, {"first + count is ", end, ", but the capacity is ", cache.capacity});
}

attnc_status TransferChecker::slots() {
    if (given(range.block_table))
        return fail(error, ATTNC_UNEXPECTED_TENSOR, {"block_table is given, but the cache is not paged"});
    if (given(range.slots)) {
        ATTNC_TRY(check_tensor(error, {"slots", ATTNC_I32, ATTNC_I64, false, false, true}, range.slots,
                               {{"batch", t.batch}}));
        t.use.slots = {range.slots.data, true, range.slots.dtype == ATTNC_I64};
    } else if (t.batch > cache.slots) {
        return fail(
            error, ATTNC_BAD_EXTENT,
            {"batch is ", t.batch, ", but slots is missing and the cache has ", cache.slots, " slots"});
    }
    for (int64_t b = 0; b < t.batch; ++b) {
        const int64_t slot = t.use.slot(b);
        if (slot < 0 || slot >= cache.slots) {
            return fail(error, ATTNC_BAD_VALUE,
                        {"slots[", b, "] is ", slot, ", wanted 0 to ", cache.slots - 1});
        }
        ATTNC_TRY(check_keys(slot));
    }
    return ATTNC_OK;
}

attnc_status TransferChecker::pages() {
    if (given(range.slots))
        return fail(error, ATTNC_UNEXPECTED_TENSOR, {"slots is given, but a paged cache has no slots"});
    if (!given(range.block_table)) return fail(error, ATTNC_MISSING_TENSOR, {"block_table is missing"});
    const attnc_tensor& table = range.block_table;
    ATTNC_TRY(check_tensor(error, {"block_table", ATTNC_I32, ATTNC_I32, true, false, true}, table,
                           {{"batch", t.batch}, {"pages", kAny}}));
    t.use.table = static_cast<const int32_t*>(table.data);
    t.use.table_stride = table.stride[0], t.use.page_stride = table.stride[1];
    t.use.table_pages = table.extent[1];
    const int64_t end = range.first + range.count, size = cache.page_size;
    if (range.count == 0) return ATTNC_OK;
    if ((end - 1) / size >= t.use.table_pages) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"first + count is ", end, ", but block_table has ", t.use.table_pages, " pages of ",
                     size, " keys for an item"});
    }
    for (int64_t b = 0; b < t.batch; ++b) {
        for (int64_t n = range.first / size; n <= (end - 1) / size; ++n) {
            const int64_t page = t.use.table[b * t.use.table_stride + n * t.use.page_stride];
            if (page >= 0 && page < cache.pages) continue;
            return fail(error, ATTNC_BAD_VALUE,
                        {"block_table[", b, "][", n, "] is ", page, ", wanted 0 to ", cache.pages - 1});
        }
    }
    return ATTNC_OK;
}

attnc_status TransferChecker::items() { return cache.is(ATTNC_CACHE_PAGED) ? pages() : slots(); }

attnc_status TransferChecker::all() {
    int64_t end = 0;
    if (range.first < 0)
        return fail(error, ATTNC_BAD_VALUE, {"first is ", range.first, ", wanted 0 or more"});
    if (range.count < 0)
        return fail(error, ATTNC_BAD_VALUE, {"count is ", range.count, ", wanted 0 or more"});
    if (__builtin_add_overflow(range.first, range.count, &end) || end > INT32_MAX / 2)
        return fail(error, ATTNC_TOO_LARGE, {"first + count is more than ", INT32_MAX / 2});
    if (!given(key) && !given(value)) return fail(error, ATTNC_MISSING_TENSOR, {"key and value are missing"});
    t.batch = kAny, t.first = range.first, t.count = range.count;
    ATTNC_TRY(tensor("key", key, cache.head_dim, &t.key));
    ATTNC_TRY(tensor("value", value, cache.v_head_dim, &t.value));
    return items();
}

attnc_status check_transfer(attnc_error* error, attnc_cache* cache, const attnc_cache_range* range,
                            const attnc_tensor* key, const attnc_tensor* value, bool imports, Transfer* t) {
    *t = {};
    ATTNC_TRY(check_cache(error, cache));
    if (range == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"range is null"});
    if (range->struct_size != sizeof(attnc_cache_range)) {
        return fail(error, ATTNC_BAD_STRUCT_SIZE,
                    {"struct_size of attnc_cache_range is ", range->struct_size, ", wanted ",
                     sizeof(attnc_cache_range)});
    }
    t->use.cache = cache;
    const attnc_tensor none = {};
    TransferChecker checker = {
        error, *cache, *range, key != nullptr ? *key : none, value != nullptr ? *value : none, imports, *t};
    return checker.all();
}

// Calls copy(outside, inside, features, width) with each row of a tensor and its place in the cache.
template <typename Copy>
void for_each_row(const Transfer& t, const Copy& copy) {
    attnc_cache& cache = *t.use.cache;
    for (int64_t b = 0; b < t.batch; ++b) {
        (void)for_each_run(t, b, [&](int64_t done, const RowRun& run) {
            for (int64_t i = 0; i < run.count * cache.kv_heads; ++i) {
                const int64_t head = i / run.count, n = i % run.count;
                if (t.key.data != nullptr) {
                    copy(outside(t.key, b, head, done + n), cache.k_rows(head, run.row + n), cache.head_dim,
                         cache.qk_width);
                }
                if (t.value.data != nullptr) {
                    copy(outside(t.value, b, head, done + n), cache.v_rows(head, run.row + n),
                         cache.v_head_dim, cache.v_width);
                }
            }
            return ATTNC_OK;
        });
    }
}

// The slots of a cache in the host's memory.
struct HostSlots {
    attnc_cache& cache;
    const int64_t* from;

    // Rows that hold keys: the whole ring once it has gone round.
    int64_t rows_held(int64_t slot) const { return least(cache.length_of(slot), cache.capacity); }
    attnc_status copy(int64_t from_slot, int64_t to);
    attnc_status rotate(int64_t first);

private:
    void copy_keys(int64_t from_slot, int64_t to) {
        for (const int64_t offset : {cache.lengths, cache.first_held})
            cache.at<int64_t>(offset)[to] = cache.at<int64_t>(offset)[from_slot];
    }
    void rotate_floats(float* slots, int64_t stride, int64_t first, int64_t floats) const;
};

attnc_status HostSlots::copy(int64_t from_slot, int64_t to) {
    const auto rows = static_cast<size_t>(rows_held(from_slot));
    for (int64_t head = 0; head < cache.kv_heads; ++head) {
        memcpy(cache.k_rows(head, to * cache.slot_rows), cache.k_rows(head, from_slot * cache.slot_rows),
               rows * static_cast<size_t>(cache.qk_width) * sizeof(float));
        memcpy(cache.v_rows(head, to * cache.slot_rows), cache.v_rows(head, from_slot * cache.slot_rows),
               rows * static_cast<size_t>(cache.v_width) * sizeof(float));
    }
    copy_keys(from_slot, to);
    return ATTNC_OK;
}

// Each slot of the cycle takes over the next one's first `floats` numbers, which lie `stride` from slot to slot. A piece at a
// time goes round.
void HostSlots::rotate_floats(float* slots, int64_t stride, int64_t first, int64_t floats) const {
    constexpr int64_t kPiece = 1024;
    float saved[kPiece];
    for (int64_t at = 0; at < floats; at += kPiece) {
        const size_t bytes = static_cast<size_t>(least(kPiece, floats - at)) * sizeof(float);
        memcpy(saved, slots + first * stride + at, bytes);
        int64_t slot = first;
        for (; from[slot] != first; slot = from[slot])
            memcpy(slots + slot * stride + at, slots + from[slot] * stride + at, bytes);
        memcpy(slots + slot * stride + at, saved, bytes);
    }
}

attnc_status HostSlots::rotate(int64_t first) {
    int64_t rows = rows_held(first);
    for (int64_t slot = from[first]; slot != first; slot = from[slot]) rows = most(rows, rows_held(slot));
    for (int64_t head = 0; head < cache.kv_heads; ++head) {
        rotate_floats(cache.k_rows(head, 0), cache.slot_rows * cache.qk_width, first, rows * cache.qk_width);
        rotate_floats(cache.v_rows(head, 0), cache.slot_rows * cache.v_width, first, rows * cache.v_width);
    }
    const int64_t length = cache.length_of(first), first_held = cache.first_held_of(first);
    int64_t slot = first;
    for (; from[slot] != first; slot = from[slot]) copy_keys(from[slot], slot);
    cache.at<int64_t>(cache.lengths)[slot] = length;
    cache.at<int64_t>(cache.first_held)[slot] = first_held;
    return ATTNC_OK;
}

attnc_status move_rows(attnc_error* error, const Transfer& t, bool imports) {
    if (t.use.cache->device != nullptr) return t.use.cache->device->transfer(t, imports, error);
    if (imports) {
        for_each_row(t, [](const float* outside, float* inside, int64_t features, int64_t width) {
            memcpy(inside, outside, static_cast<size_t>(features) * sizeof(float));
            memset(inside + features, 0, static_cast<size_t>(width - features) * sizeof(float));
        });
    } else {
        for_each_row(t, [](float* outside, const float* inside, int64_t features, int64_t) {
            memcpy(outside, inside, static_cast<size_t>(features) * sizeof(float));
        });
    }
    return ATTNC_OK;
}

// What a slot has after keys first .. end were put into it.
attnc_status grow_slot(attnc_error* error, attnc_cache& cache, int64_t slot, int64_t first, int64_t end) {
    SlotKeys keys;
    ATTNC_TRY(slot_keys(error, cache, slot, &keys));
    const bool joins = keys.first_held <= first && first <= keys.length;
    if (!joins) keys.first_held = first;
    if (cache.is(ATTNC_CACHE_RING)) keys.first_held = most(keys.first_held, end - cache.capacity);
    keys.length = end;
    return set_slot_keys(error, cache, slot, keys);
}

}  // namespace
}  // namespace attnc

using namespace attnc;

extern "C" attnc_status attnc_cache_export(const attnc_cache* cache, const attnc_cache_range* range,
                                           const attnc_tensor* key, const attnc_tensor* value,
                                           attnc_error* error) {
    Transfer t;
    ATTNC_TRY(check_transfer(error, const_cast<attnc_cache*>(cache), range, key, value, false, &t));
    return move_rows(error, t, false);
}

extern "C" attnc_status attnc_cache_import(attnc_cache* cache, const attnc_cache_range* range,
                                           const attnc_tensor* key, const attnc_tensor* value,
                                           attnc_error* error) {
    Transfer t;
    ATTNC_TRY(check_transfer(error, cache, range, key, value, true, &t));
    ATTNC_TRY(move_rows(error, t, true));
    if (cache->is(ATTNC_CACHE_PAGED)) return ATTNC_OK;
    for (int64_t b = 0; b < t.batch; ++b)
        ATTNC_TRY(grow_slot(error, *cache, t.use.slot(b), t.first, t.first + t.count));
    return ATTNC_OK;
}

extern "C" attnc_status attnc_cache_reorder(attnc_cache* cache, const int64_t* from, int64_t count,
                                            attnc_error* error) {
    ATTNC_TRY(check_cache(error, cache));
    if (cache->is(ATTNC_CACHE_PAGED)) {
        return fail(error, ATTNC_NOT_SUPPORTED, {"a paged cache is reordered in its block tables"});
    }
    if (count < 0 || count > cache->slots) {
        return fail(error, ATTNC_BAD_VALUE, {"count is ", count, ", wanted 0 to ", cache->slots});
    }
    if (count > 0 && from == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"from is null"});
    for (int64_t i = 0; i < count; ++i) {
        if (from[i] < 0 || from[i] >= cache->slots) {
            return fail(error, ATTNC_BAD_VALUE,
                        {"from[", i, "] is ", from[i], ", wanted 0 to ", cache->slots - 1});
        }
    }
    if (cache->device != nullptr) return cache->device->reorder(*cache, from, count, error);
    HostSlots slots = {*cache, from};
    return reorder(slots, *cache, from, count);
}
