// A call's part in a cache: its items' keys before and after, where those of a wave lie, and the new ones.
#include "runtime/arithmetic.h"
#include "runtime/cuda/device_cache.h"
#include "runtime/cuda/device_wave.h"

namespace attnc::cuda {
namespace {

bool is_paged(const DeviceWave& w) { return w.request.cache.cache->is(ATTNC_CACHE_PAGED); }

Buffer<1> table_buffer(const DeviceWave& w, const int32_t* table) {
    return Buffer<1>(on_device(table), kInt32, {{w.items, 1}});
}
// A number of each slot in the cache's memory.
Buffer<1> slots_buffer(const DeviceWave& w, int64_t offset) {
    const attnc_cache& cache = *w.request.cache.cache;
    return Buffer<1>(on_device(in_cache<int32_t>(cache, offset)), kInt32, {{cache.slots, 1}});
}
Buffer<1> numbers_buffer(const DeviceWave& w, const ItemNumbers& table) {
    const DeviceWave::Numbers numbers = w.numbers(table);
    return Buffer<1>(on_device(numbers.data), kInt32, {{w.items, numbers.stride}});
}

// What of a cache says where its keys lie; all of no meaning without one.
struct Places {
    int32_t given = 0, slot_rows = kRunKeys, capacity = kRunKeys, page_size = kRunKeys, pages = 1;
};
Places places_of(const DeviceWave& w) {
    Places p;
    if (!w.plan.cached) return p;
    const attnc_cache& cache = *w.request.cache.cache;
    if (is_paged(w)) {
        p.given = ATTNC_GIVEN_PAGED;
        p.page_size = static_cast<int32_t>(cache.page_size);
        p.pages = static_cast<int32_t>(cache.pages);
        return p;
    }
    p.given = ATTNC_GIVEN_CACHE_SLOTS;
    p.slot_rows = static_cast<int32_t>(cache.slot_rows);
    p.capacity = cache.is(ATTNC_CACHE_RING) ? static_cast<int32_t>(cache.capacity) : p.slot_rows;
    return p;
}

struct Runs {
    const ItemTable& table;
    const int32_t* counts;
    int64_t runs;  // of an item
    int64_t to;    // offset
};

attnc_status fill_runs(const DeviceWave& w, const Places& places, const Runs& runs) {
    const CallCache& cache = w.request.cache;
    const bool paged = (places.given & ATTNC_GIVEN_PAGED) != 0;
    Buffer<2> items(on_device(w.at<int32_t>(runs.table.items)), kInt32,
                    {{ATTNC_ITEM_COLUMNS, 1}, {w.items, ATTNC_ITEM_COLUMNS}});
    Buffer<1> counts = table_buffer(w, runs.counts);
    Buffer<1> slots = table_buffer(w, w.plan.cached ? w.cached(w.plan.slots) : runs.counts);
    const int32_t* table =
        paged ? cache.table + w.first * cache.table_stride : static_cast<const int32_t*>(w.layer.anything());
    Buffer<2> block_table(on_device(table), kInt32,
                          {{paged ? cache.table_pages : 1, paged ? cache.page_stride : 0},
                           {w.items, paged ? cache.table_stride : 0}});
    Buffer<2> key_runs(on_device(w.at<int32_t>(runs.to)), kInt32, {{runs.runs, 1}, {w.items, runs.runs}});
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_ITEMS, items);
    call.set(ATTNC_DEVICE_ARGUMENT_COUNTS, counts);
    call.set(ATTNC_DEVICE_ARGUMENT_CACHE_SLOTS, slots);
    call.set(ATTNC_DEVICE_ARGUMENT_BLOCK_TABLE, block_table);
    call.set(ATTNC_DEVICE_ARGUMENT_GIVEN, places.given);
    call.set(ATTNC_DEVICE_ARGUMENT_SLOT_ROWS, places.slot_rows);
    call.set(ATTNC_DEVICE_ARGUMENT_CAPACITY, places.capacity);
    call.set(ATTNC_DEVICE_ARGUMENT_PAGE_SIZE, places.page_size);
    call.set(ATTNC_DEVICE_ARGUMENT_PAGES, places.pages);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_RUNS, key_runs);
    return w.run(ATTNC_DEVICE_KERNEL_FILL_RUNS, call);
}

// Some KV heads' planes of K or V.
struct Planes {
    const float *from, *to;
    int64_t width;
};

attnc_status append(const DeviceWave& w, const Planes& planes, const CacheRows& cache, int64_t head,
                    int64_t heads) {
    const int64_t width = planes.width, rows = w.keys.rows(), plane = cache.rows * width;
    const ItemTable& table = w.plan.counts_apart ? w.plan.fresh : w.plan.call;
    const int32_t* first =
        w.at<int32_t>(table.items) + (w.plan.counts_apart ? ATTNC_ITEM_KEY_ROW : ATTNC_ITEM_QUERY_ROW);
    Buffer<3> x(on_device(planes.from + head * rows * width), kFloat32,
                {{width, 1}, {rows, width}, {heads, rows * width}});
    Buffer<3> y(on_device(planes.to + head * plane), kFloat32,
                {{width, 1}, {cache.rows, width}, {heads, plane}});
    Buffer<1> first_rows(on_device(first), kInt32, {{w.items, ATTNC_ITEM_COLUMNS}});
    Buffer<1> held = table_buffer(w, w.cached(w.plan.held)),
              counts = table_buffer(w, w.cached(w.plan.counts));
    Buffer<2> key_runs(on_device(w.at<int32_t>(w.plan.key_runs)), kInt32,
                       {{w.plan.runs, 1}, {w.items, w.plan.runs}});
    const auto seq = static_cast<int32_t>(w.request.seq_new);
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_INPUT, x);
    call.set(ATTNC_DEVICE_ARGUMENT_FIRST_ROWS, first_rows);
    call.set(ATTNC_DEVICE_ARGUMENT_HELD, held);
    call.set(ATTNC_DEVICE_ARGUMENT_COUNTS, counts);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_RUNS, key_runs);
    call.set(ATTNC_DEVICE_ARGUMENT_SEQ, seq);
    call.set(ATTNC_DEVICE_ARGUMENT_Y, y);
    return w.run(ATTNC_DEVICE_KERNEL_APPEND_ROWS, call);
}

// A number of the items' slots, as the call leaves it: the lengths, or what a ring of so many rows then still holds.
attnc_status keep(const DeviceWave& w, int64_t offset, int64_t ring) {
    Buffer<1> counts = table_buffer(w, w.cached(w.plan.counts)),
              slots = table_buffer(w, w.cached(w.plan.slots));
    Buffer<1> kept = slots_buffer(w, offset);
    const auto capacity = static_cast<int32_t>(ring);
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_COUNTS, counts);
    call.set(ATTNC_DEVICE_ARGUMENT_CACHE_SLOTS, slots);
    call.set(ATTNC_DEVICE_ARGUMENT_CAPACITY, capacity);
    call.set(ATTNC_DEVICE_ARGUMENT_KEPT, kept);
    return w.run(ATTNC_DEVICE_KERNEL_KEEP_LENGTHS, call);
}

attnc_status fill_counts(const DeviceWave& w) {
    const Request& r = w.request;
    const CallCache& cache = r.cache;
    const bool paged = is_paged(w), ring = cache.cache->is(ATTNC_CACHE_RING);
    // Of packed items the device has found out how many keys each brings.
    const bool found = w.plan.packed && w.plan.appends;
    int32_t given = 0;
    if (cache.slots.present) given |= ATTNC_GIVEN_CACHE_SLOTS;
    if (found || r.key_lengths.present) given |= ATTNC_GIVEN_KEY_LENGTHS;
    if (paged) given |= ATTNC_GIVEN_PAGED;
    Buffer<1> lengths =
        paged ? numbers_buffer(w, cache.paged_lengths) : slots_buffer(w, cache.cache->lengths);
    Buffer<1> slots_in = numbers_buffer(w, cache.slots);
    Buffer<1> key_lengths =
        found ? table_buffer(w, w.at<int32_t>(w.plan.fresh.key_counts)) : numbers_buffer(w, r.key_lengths);
    Buffer<1> held = table_buffer(w, w.cached(w.plan.held)),
              counts = table_buffer(w, w.cached(w.plan.counts));
    Buffer<1> slots_out = table_buffer(w, w.cached(w.plan.slots));
    // Of a ring there is always room, but not for more at once than it has rows.
    const int64_t room = ring ? r.seq_kv : cache.room();
    const int64_t brought = ring ? least(r.seq_new, cache.cache->capacity) : r.seq_new;
    const auto seq = static_cast<int32_t>(w.plan.appends ? brought : 0);
    const auto max_keys = static_cast<int32_t>(least(r.seq_kv, room));
    const auto slots = static_cast<int32_t>(paged ? w.items : cache.cache->slots);
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_CACHE_LENGTHS, lengths);
    call.set(ATTNC_DEVICE_ARGUMENT_CACHE_SLOTS, slots_in);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_LENGTHS, key_lengths);
    call.set(ATTNC_DEVICE_ARGUMENT_GIVEN, given);
    call.set(ATTNC_DEVICE_ARGUMENT_SEQ, seq);
    call.set(ATTNC_DEVICE_ARGUMENT_MAX_KEYS, max_keys);
    call.set(ATTNC_DEVICE_ARGUMENT_SLOTS, slots);
    call.set(ATTNC_DEVICE_ARGUMENT_HELD, held);
    call.set(ATTNC_DEVICE_ARGUMENT_COUNTS, counts);
    call.set(ATTNC_DEVICE_ARGUMENT_SLOTS_OUT, slots_out);
    return w.run(ATTNC_DEVICE_KERNEL_FILL_CACHE, call);
}

}  // namespace

CacheRows cache_rows(const DeviceWave& w) {
    const attnc_cache& cache = *w.request.cache.cache;
    return {in_cache<float>(cache, cache.k), in_cache<float>(cache, cache.v), cache.rows};
}

attnc_status begin_cached(const DeviceWave& w) {
    if (!w.plan.cached) return ATTNC_OK;
    if (w.plan.packed && w.plan.appends) ATTNC_TRY(fill_new_keys(w));
    ATTNC_TRY(fill_counts(w));
    const attnc_cache& cache = *w.request.cache.cache;
    if (!w.plan.appends || !cache.is(ATTNC_CACHE_RING)) return ATTNC_OK;
    return keep(w, cache.first_held, cache.capacity);
}

attnc_status end_cached(const DeviceWave& w) {
    if (!w.plan.appends || is_paged(w)) return ATTNC_OK;
    return keep(w, w.request.cache.cache->lengths, 0);
}

attnc_status fill_key_runs(const DeviceWave& w) {
    const DevicePlan& plan = w.plan;
    if (plan.runs == 0) return ATTNC_OK;
    const int32_t* counts = plan.cached ? w.cached(plan.counts) : w.at<int32_t>(plan.call.key_counts);
    ATTNC_TRY(fill_runs(w, places_of(w), {plan.call, counts, plan.runs, plan.key_runs}));
    if (w.layer.appended == 0 || !plan.attends) return ATTNC_OK;
    return fill_runs(w, {}, {plan.appended, w.at<int32_t>(plan.appended.key_counts), 1, plan.appended_runs});
}

attnc_status append_keys(const DeviceWave& w) {
    if (!w.plan.appends) return ATTNC_OK;
    const CacheRows cache = cache_rows(w);
    const int64_t all = w.layer.config.num_kv_heads, step = w.plan.launch_heads / w.layer.group();
    const int64_t width = w.layer.qk_width, plane = cache.rows * width;
    // K's and V's planes that follow each other are those of twice as many heads.
    const bool joined = width == w.layer.v_width && w.v == w.k + all * w.keys.rows() * width &&
                        cache.v == cache.k + all * plane && fits(2 * all, plane, kFloat);
    if (joined) return append(w, {w.k, cache.k, width}, cache, 0, 2 * all);
    for (int64_t head = 0; head < all; head += step) {
        const int64_t heads = least(step, all - head);
        ATTNC_TRY(append(w, {w.k, cache.k, w.layer.qk_width}, cache, head, heads));
        ATTNC_TRY(append(w, {w.v, cache.v, w.layer.v_width}, cache, head, heads));
    }
    return ATTNC_OK;
}

}  // namespace attnc::cuda
