#include "runtime/cache_rows.h"

#include <cstring>

#include "runtime/arithmetic.h"
#include "runtime/copy_rows.h"

namespace attnc {
namespace {

HeadRows in_workspace(const Wave& wave, int64_t offset, int64_t plane, int64_t row, int64_t width) {
    return {wave.at<float>(offset) + (plane * wave.plan.rows_kv + row) * width, width};
}

HeadRows at_caller(const TokenView& view, int64_t origin, int64_t head, int64_t row) {
    return {view.data + origin * view.batch_stride + head * view.head_stride + row * view.row_stride,
            view.row_stride};
}

bool make_key_runs(const Wave& wave, const void*, Worker&, int64_t index, const char**) {
    const Item& item = wave.items[index];
    const CachePlace place = wave.request.cache.place(item.number);
    // A ring's rows count from its slot's first one.
    const int64_t base = place.cache->is(ATTNC_CACHE_RING) ? place.slot * place.cache->slot_rows : 0;
    int32_t* runs = wave.at<int32_t>(wave.plan.key_runs) + item.run_row;
    for (int64_t n = 0; n < runs_of(item); ++n)
        runs[n] = static_cast<int32_t>(place.at(item.kv_first + n * kRunKeys, 1).row - base);
    return true;
}

HeadRows from_row(const HeadRows& rows, int64_t row) {
    return {rows.data + row * rows.row_stride, rows.row_stride};
}

// Whether rows lie as kernels want them.
bool side_by_side(const HeadRows& rows, int64_t width, int64_t count) {
    return count <= 1 || rows.row_stride == width;
}

// Whether the worker's copy has all that is wanted of a block.
bool holds(const KvBlock& copied, const KvBlock& wanted) {
    return copied.item == wanted.item && copied.kv_head == wanted.kv_head && copied.first == wanted.first &&
           copied.count >= wanted.count && copied.needed <= wanted.needed &&
           (copied.wants_v || !wanted.wants_v);
}

// Whether runs first .. first + count follow one another.
bool in_order(const int32_t* runs, int64_t first, int64_t count) {
    for (int64_t n = first + 1; n < first + count; ++n) {
        if (runs[n] != runs[n - 1] + kRunKeys) return false;
    }
    return true;
}

}  // namespace

int64_t runs_of(const Item& item) { return divide_up(item.kv_used(), kRunKeys); }

KvPool kv_pool(const Wave& wave, const Item& item, int64_t kv_head) {
    const Request& r = wave.request;
    const Plan& plan = wave.plan;
    const attnc_layer& layer = wave.layer;
    if (!r.cache) {
        return {plan.copies_k ? in_workspace(wave, plan.k, kv_head, item.kv_row, layer.qk_width)
                              : at_caller(r.key, item.kv_origin, kv_head, item.kv_first),
                plan.copies_v ? in_workspace(wave, plan.v, kv_head, item.kv_row, layer.v_width)
                              : at_caller(r.value, item.kv_origin, kv_head, item.kv_first),
                item.kv_used(), nullptr};
    }
    const attnc_cache& cache = *r.cache.cache;
    int64_t first = 0, rows = cache.rows;
    if (cache.is(ATTNC_CACHE_SLOTS)) {
        first = r.cache.slot(item.number) * cache.slot_rows + item.kv_first;
        rows = cache.slot_rows - item.kv_first;
    } else if (cache.is(ATTNC_CACHE_RING)) {
        first = r.cache.slot(item.number) * cache.slot_rows;
        rows = cache.slot_rows;
    }
    return {{cache.k_rows(kv_head, first), layer.qk_width},
            {cache.v_rows(kv_head, first), layer.v_width},
            rows,
            plan.makes_key_runs ? wave.at<int32_t>(plan.key_runs) + item.run_row : nullptr};
}

WorkList key_runs_work(const Wave& wave) {
    return {wave.plan.makes_key_runs ? wave.item_count : 0, make_key_runs, nullptr};
}

KvRows kv_rows(const Wave& wave, Worker& worker, const KvBlock& block) {
    const int64_t k_width = wave.layer.qk_width, v_width = wave.layer.v_width;
    const KvPool pool = kv_pool(wave, *block.item, block.kv_head);
    const int64_t first = block.first - block.item->kv_first;
    KvRows lie = {from_row(pool.k, pool.row_of(first)), from_row(pool.v, pool.row_of(first))};
    // Blocks begin with a run.
    const int64_t first_run = first / kRunKeys, runs = divide_up(block.count, kRunKeys);
    const bool ordered = pool.runs == nullptr || in_order(pool.runs, first_run, runs);
    const auto copies = [&](const HeadRows& rows, int64_t width) {
        return !ordered || !(block.any_strides || side_by_side(rows, width, block.count));
    };
    const bool copies_k = copies(lie.k, k_width), copies_v = block.wants_v && copies(lie.v, v_width);
    if (!copies_k && !copies_v) return lie;
    float* k = worker.floats(wave.plan.worker_k);
    float* v = worker.floats(wave.plan.worker_v);
    if (!holds(worker.copied, block)) {
        const int64_t unread = block.needed - block.first,
                      run = pool.runs != nullptr ? kRunKeys : block.count;
        for (int64_t n = unread / run * run; n < block.count; n += run) {
            const int64_t begin = most(n, unread), row = pool.row_of(first + begin);
            const int64_t count = least(n + run, block.count) - begin;
            const int64_t features = wave.layer.target->cpu_features;
            if (copies_k) copy_rows(from_row(pool.k, row), k + begin * k_width, k_width, count, features);
            if (copies_v) copy_rows(from_row(pool.v, row), v + begin * v_width, v_width, count, features);
        }
        worker.copied = block;
    }
    if (copies_k) lie.k = {k, k_width};
    if (copies_v) lie.v = {v, v_width};
    return lie;
}

void keep_rows(const Wave& wave, const NewRows& rows) {
    attnc_cache& cache = *wave.request.cache.cache;
    const int64_t width = rows.values ? cache.v_width : cache.qk_width;
    const auto bytes = static_cast<size_t>(rows.columns) * sizeof(float);
    const float* from = rows.from + rows.first_column;
    int64_t left = rows.count, row = rows.item_row;
    for (const Item* item = wave.items + rows.item; left > 0; ++item, row = 0) {
        const CachePlace place = wave.request.cache.place(item->number);
        const int64_t end = least(item->new_keys, row + left);
        left -= end - row;
        while (row < end) {
            const RowRun run = place.at(item->held() + row, end - row);
            float* to =
                (rows.values ? cache.v_rows(rows.kv_head, run.row) : cache.k_rows(rows.kv_head, run.row)) +
                rows.first_column;
            if (rows.columns == width) {
                memcpy(to, from, static_cast<size_t>(run.count) * bytes);
                from += run.count * width;
            } else {
                for (int64_t i = 0; i < run.count; ++i, from += width) memcpy(to + i * width, from, bytes);
            }
            row += run.count;
        }
    }
}

void keep_lengths(const Request& r) {
    if (!r.cache.appends || r.cache.cache->is(ATTNC_CACHE_PAGED)) return;
    auto* lengths = r.cache.cache->at<int64_t>(r.cache.cache->lengths);
    for (int64_t b = 0; b < r.batch; ++b) lengths[r.cache.slot(b)] += new_keys_of(r, b);
}

void forget_overwritten(const Request& r) {
    if (!r.cache.appends || !r.cache.cache->is(ATTNC_CACHE_RING)) return;
    auto* first_held = r.cache.cache->at<int64_t>(r.cache.cache->first_held);
    for (int64_t b = 0; b < r.batch; ++b) {
        int64_t& first = first_held[r.cache.slot(b)];
        const int64_t kept = all_keys_of(r, b) - r.cache.cache->capacity;
        if (kept > first) first = kept;
    }
}

}  // namespace attnc
