// The cache's part of a call: which rows its items have, whether there is room, and that nobody writes what another reads.
#include <cstring>

#include "runtime/check.h"
#include "runtime/item.h"
#include "runtime/request.h"

namespace attnc {
namespace {

// Slots and pages are numbered from 0; so many at a time are looked at for repetitions, with a bit each.
constexpr int64_t kMarks = 1 << 15;

class Marks {
public:
    explicit Marks(int64_t first) : first_(first) {}
    bool has(int64_t number) const { return covers(number) && (word(number) >> (bit(number)) & 1) != 0; }
    void add(int64_t number) {
        if (covers(number)) words_[(number - first_) / 64] |= uint64_t{1} << bit(number);
    }
    bool covers(int64_t number) const { return number >= first_ && number - first_ < kMarks; }

private:
    uint64_t word(int64_t number) const { return words_[(number - first_) / 64]; }
    int64_t bit(int64_t number) const { return (number - first_) % 64; }
    int64_t first_;
    uint64_t words_[kMarks / 64] = {};
};

struct CacheChecker {
    attnc_error* error;
    const attnc_layer& layer;
    const attnc_inputs& in;
    bool needs_data;
    Request& r;

    attnc_status no_cache();
    attnc_status use();
    attnc_status most_keys();
    attnc_status slots();
    attnc_status slots_differ();
    attnc_status pages();
    attnc_status pages_differ();
    attnc_status item_numbers(const char* name, const attnc_tensor& t, ItemNumbers* numbers);
    attnc_status unexpected(const char* name, const attnc_tensor& t, const char* why);
    attnc_status totals();
    attnc_status device_totals();
    attnc_status ring_without_lengths();
    attnc_status slot_room(int64_t item, int64_t held, int64_t added);
    attnc_status page_room(int64_t item, int64_t held, int64_t added);
    int64_t pages_used(int64_t item) const {
        return (all_keys_of(r, item) + r.cache.cache->page_size - 1) / r.cache.cache->page_size;
    }
    int32_t page(int64_t item, int64_t n) const {
        return r.cache.table[item * r.cache.table_stride + n * r.cache.page_stride];
    }
    // Pages from this one on of an item get new keys.
    int64_t first_written(int64_t item) const {
        return new_keys_of(r, item) > 0 ? r.cache.held(item) / r.cache.cache->page_size : pages_used(item);
    }
};

attnc_status CacheChecker::item_numbers(const char* name, const attnc_tensor& t, ItemNumbers* numbers) {
    ATTNC_TRY(
        check_tensor(error, {name, ATTNC_I32, ATTNC_I64, false, false, needs_data}, t, {{"batch", r.batch}}));
    *numbers = {t.data, true, t.dtype == ATTNC_I64};
    return ATTNC_OK;
}

attnc_status CacheChecker::unexpected(const char* name, const attnc_tensor& t, const char* why) {
    if (!given(t)) return ATTNC_OK;
    return fail(error, ATTNC_UNEXPECTED_TENSOR, {name, " is given, but ", why});
}

attnc_status CacheChecker::no_cache() {
    ATTNC_TRY(unexpected("cache_slots", in.cache_slots, "cache is missing"));
    ATTNC_TRY(unexpected("block_table", in.block_table, "cache is missing"));
    ATTNC_TRY(unexpected("cache_lengths", in.cache_lengths, "cache is missing"));
    if (in.max_keys != 0) {
        return fail(error, ATTNC_BAD_VALUE, {"max_keys is ", in.max_keys, ", but cache is missing"});
    }
    if (number_of(in.cache_use) == ATTNC_CACHE_USE_NOT_GIVEN) return ATTNC_OK;
    return fail(error, ATTNC_BAD_VALUE, {"cache_use is ", number_of(in.cache_use), ", but cache is missing"});
}

attnc_status CacheChecker::use() {
    const int use = number_of(in.cache_use);
    if (use < ATTNC_CACHE_USE_NOT_GIVEN || use > ATTNC_CACHE_READ) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"cache_use is ", use, ", wanted 0 to ", static_cast<int>(ATTNC_CACHE_READ)});
    }
    r.cache.appends = use != ATTNC_CACHE_READ;
    if (r.cache.appends) return ATTNC_OK;
    ATTNC_TRY(unexpected("key", in.key, "cache_use is read"));
    ATTNC_TRY(unexpected("value", in.value, "cache_use is read"));
    return unexpected("key_lengths", in.key_lengths, "cache_use is read");
}

attnc_status CacheChecker::most_keys() {
    if (in.max_keys < 0) {
        return fail(error, ATTNC_BAD_VALUE, {"max_keys is ", in.max_keys, ", wanted 0 or more"});
    }
    if (in.max_keys < kNoLastKey) return ATTNC_OK;
    return fail(error, ATTNC_TOO_LARGE, {"max_keys is ", in.max_keys, ", at most ", kNoLastKey - 1});
}

attnc_status CacheChecker::slots() {
    const attnc_cache& cache = *r.cache.cache;
    ATTNC_TRY(unexpected("block_table", in.block_table, "the cache is not paged"));
    ATTNC_TRY(unexpected("cache_lengths", in.cache_lengths, "the cache is not paged"));
    if (!given(in.cache_slots)) {
        if (r.batch <= cache.slots) return ATTNC_OK;
        return fail(
            error, ATTNC_BAD_EXTENT,
            {"batch is ", r.batch, ", but cache_slots is missing and the cache has ", cache.slots, " slots"});
    }
    ATTNC_TRY(item_numbers("cache_slots", in.cache_slots, &r.cache.slots));
    if (in.cache_slots.data == nullptr || !layer.reads_numbers()) return ATTNC_OK;
    for (int64_t b = 0; b < r.batch; ++b) {
        const int64_t slot = r.cache.slot(b);
        if (slot < 0 || slot >= cache.slots) {
            return fail(error, ATTNC_BAD_VALUE,
                        {"cache_slots[", b, "] is ", slot, ", wanted 0 to ", cache.slots - 1});
        }
    }
    return r.cache.appends ? slots_differ() : ATTNC_OK;
}

attnc_status CacheChecker::slots_differ() {
    for (int64_t first = 0; first < r.cache.cache->slots; first += kMarks) {
        Marks taken(first);
        for (int64_t b = 0; b < r.batch; ++b) {
            const int64_t slot = r.cache.slot(b);
            if (!taken.has(slot)) {
                taken.add(slot);
                continue;
            }
            int64_t other = 0;
            while (r.cache.slot(other) != slot) ++other;
            return fail(error, ATTNC_BAD_VALUE,
                        {"cache_slots gives slot ", slot, " to items ", other, " and ", b,
                         ", which both append to it"});
        }
    }
    return ATTNC_OK;
}

attnc_status CacheChecker::pages() {
    ATTNC_TRY(unexpected("cache_slots", in.cache_slots, "a paged cache has no slots"));
    if (!given(in.block_table)) return fail(error, ATTNC_MISSING_TENSOR, {"block_table is missing"});
    if (!given(in.cache_lengths)) return fail(error, ATTNC_MISSING_TENSOR, {"cache_lengths is missing"});
    ATTNC_TRY(check_tensor(error, {"block_table", ATTNC_I32, ATTNC_I32, true, false, needs_data},
                           in.block_table, {{"batch", r.batch}, {"pages", kAny}}));
    CallCache& c = r.cache;
    c.table = static_cast<const int32_t*>(in.block_table.data);
    c.table_stride = in.block_table.stride[0], c.page_stride = in.block_table.stride[1];
    c.table_pages = in.block_table.extent[1];
    const int64_t rows = layer.reads_numbers() ? layer.max_rows : kNoLastKey - 1;
    const int64_t most = rows / c.cache->page_size;
    if (c.table_pages > most) {
        return fail(error, ATTNC_TOO_LARGE,
                    {"block_table has ", c.table_pages, " pages for an item, at most ", most});
    }
    return item_numbers("cache_lengths", in.cache_lengths, &c.paged_lengths);
}

attnc_status CacheChecker::slot_room(int64_t item, int64_t held, int64_t added) {
    const attnc_cache& cache = *r.cache.cache;
    if (cache.is(ATTNC_CACHE_RING)) {
        if (added > cache.capacity) {
            return fail(
                error, ATTNC_BAD_VALUE,
                {"item ", item, " brings ", added, " keys, but the ring's capacity is ", cache.capacity});
        }
        if (held + added < kNoLastKey) return ATTNC_OK;
        return fail(error, ATTNC_TOO_LARGE,
                    {"item ", item, " has ", held + added, " keys, at most ", kNoLastKey - 1});
    }
    if (held + added <= cache.capacity) return ATTNC_OK;
    return fail(error, ATTNC_BAD_VALUE,
                {"slot ", r.cache.slot(item), " holds ", held, " keys and item ", item, " brings ", added,
                 ", but the capacity is ", cache.capacity});
}

attnc_status CacheChecker::page_room(int64_t item, int64_t held, int64_t added) {
    const int64_t room = r.cache.room();
    if (held < 0 || held > room) {
        return fail(error, ATTNC_BAD_VALUE, {"cache_lengths[", item, "] is ", held, ", wanted 0 to ", room});
    }
    if (held + added > room) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"item ", item, " has ", held, " keys and brings ", added,
                     ", but its pages in block_table have room for ", room});
    }
    if (r.cache.table == nullptr) return ATTNC_OK;
    for (int64_t n = 0; n < pages_used(item); ++n) {
        if (page(item, n) >= 0 && page(item, n) < r.cache.cache->pages) continue;
        return fail(error, ATTNC_BAD_VALUE,
                    {"block_table[", item, "][", n, "] is ", page(item, n), ", wanted 0 to ",
                     r.cache.cache->pages - 1});
    }
    return ATTNC_OK;
}

// A page that an item appends to is in no other place of the table.
attnc_status CacheChecker::pages_differ() {
    const auto shared = [&](int64_t number, int64_t item) {
        int64_t other = 0;
        const auto writes = [&] {
            for (int64_t n = first_written(other); n < pages_used(other); ++n) {
                if (page(other, n) == number) return true;
            }
            return false;
        };
        while (!writes()) ++other;
        return fail(error, ATTNC_BAD_VALUE,
                    {"block_table gives page ", number, " to item ", other,
                     ", which appends to it, and once more to item ", item});
    };
    for (int64_t first = 0; first < r.cache.cache->pages; first += kMarks) {
        Marks written(first);
        for (int64_t b = 0; b < r.batch; ++b) {
            for (int64_t n = first_written(b); n < pages_used(b); ++n) {
                if (written.has(page(b, n))) return shared(page(b, n), b);
                written.add(page(b, n));
            }
        }
        for (int64_t b = 0; b < r.batch; ++b) {
            for (int64_t n = 0; n < first_written(b); ++n) {
                if (written.has(page(b, n))) return shared(page(b, n), b);
            }
        }
    }
    return ATTNC_OK;
}

attnc_status CacheChecker::totals() {
    const bool paged = r.cache.cache->is(ATTNC_CACHE_PAGED);
    r.seq_kv = 0;
    for (int64_t b = 0; b < r.batch; ++b) {
        const int64_t held = r.cache.held(b), added = r.cache.appends ? new_keys_of(r, b) : 0;
        ATTNC_TRY(paged ? page_room(b, held, added) : slot_room(b, held, added));
        if (in.max_keys != 0 && held + added > in.max_keys) {
            return fail(error, ATTNC_BAD_VALUE,
                        {"item ", b, " has ", held + added, " keys, but max_keys is ", in.max_keys});
        }
        if (held + added > r.seq_kv) r.seq_kv = held + added;
    }
    if (in.max_keys != 0) r.seq_kv = in.max_keys;
    return paged && r.cache.appends && r.cache.table != nullptr ? pages_differ() : ATTNC_OK;
}

// What a ring would be refused for by its lengths, where nobody knows those; of packed batches nor how many rows an item has.
attnc_status CacheChecker::ring_without_lengths() {
    const int64_t capacity = r.cache.cache->capacity;
    if (in.max_keys == 0) {
        return fail(error, ATTNC_BAD_VALUE, {"max_keys is 0, but a ring on a device needs it"});
    }
    if (r.query_starts.present || r.key_starts.present) return ATTNC_OK;
    if (r.cache.appends && r.seq_new > capacity) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"items bring ", r.seq_new, " keys, but the ring's capacity is ", capacity});
    }
    if (in.max_keys <= capacity || r.seq_q == 0 || r.seq_q <= capacity - layer.window_left) return ATTNC_OK;
    return fail(error, ATTNC_BAD_VALUE,
                {"items need the last ", r.seq_q, " + ", layer.window_left,
                 " of their keys, but the ring's capacity is ", capacity});
}

// The keys of a call on a device, where slots, lengths and pages are.
attnc_status CacheChecker::device_totals() {
    if (r.cache.cache->is(ATTNC_CACHE_RING)) ATTNC_TRY(ring_without_lengths());
    r.seq_kv = in.max_keys != 0 ? in.max_keys : r.cache.room();
    return ATTNC_OK;
}

bool has_data(const attnc_tensor& t) { return !given(t) || t.data != nullptr; }

}  // namespace

attnc_status check_cache_use(attnc_error* error, const attnc_layer& layer, const attnc_inputs& in,
                             DataNeed need, Request* request, bool* known) {
    CacheChecker checker = {error, layer, in, need == DataNeed::kAll, *request};
    *known = true;
    if (in.cache == nullptr) return checker.no_cache();
    ATTNC_TRY(check_cache_of_layer(error, layer, in.cache));
    request->cache.cache = in.cache;
    ATTNC_TRY(checker.use());
    ATTNC_TRY(checker.most_keys());
    const bool paged = in.cache->is(ATTNC_CACHE_PAGED);
    ATTNC_TRY(paged ? checker.pages() : checker.slots());
    if (!layer.reads_numbers()) return checker.device_totals();
    *known = has_data(in.key_lengths) && has_data(in.cache_slots) && has_data(in.cache_lengths);
    if (*known) return checker.totals();
    // A ring has at most this many keys that matter to a call, and the first block's others.
    request->seq_kv = request->cache.room();
    if (in.cache->is(ATTNC_CACHE_RING)) request->seq_kv += layer.layout.tile_kv;
    if (in.max_keys != 0) request->seq_kv = in.max_keys;
    return ATTNC_OK;
}

attnc_status check_ring_rows(attnc_error* error, const attnc_layer& layer, const Request& r) {
    if (!layer.reads_numbers() || !r.cache || !r.cache.cache->is(ATTNC_CACHE_RING)) return ATTNC_OK;
    const attnc_cache& cache = *r.cache.cache;
    for (int64_t b = 0; b < r.batch; ++b) {
        const Item item = make_item(layer, r, b);
        const KeyInterval seen = visible_keys(item, 0, item.q_length);
        if (item.q_length == 0 || seen.first == seen.end) continue;
        const int64_t needed = item.kv_length - seen.first;
        if (needed > cache.capacity) {
            return fail(error, ATTNC_BAD_VALUE,
                        {"item ", b, " needs the last ", needed, " of its ", item.kv_length,
                         " keys, but the ring's capacity is ", cache.capacity});
        }
        const int64_t slot = r.cache.slot(b), first = cache.first_held_of(slot);
        if (seen.first < first) {
            return fail(error, ATTNC_BAD_VALUE,
                        {"item ", b, " needs keys from ", seen.first, " on, but slot ", slot,
                         " holds those from ", first, " on"});
        }
    }
    return ATTNC_OK;
}

}  // namespace attnc
