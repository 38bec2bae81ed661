#include "runtime/plan.h"

#include "runtime/arithmetic.h"
#include "runtime/carve.h"
#include "runtime/item.h"
#include "runtime/key_blocks.h"
#include "runtime/text.h"

namespace attnc {
namespace {

constexpr int64_t kMaxSpan = INT32_MAX;  // bytes of a buffer that a kernel may be given
constexpr int64_t kFloat = sizeof(float);

// Rows of a wave for each thread: as many as tokens have features, since a wave reads d_model rows of each matrix of weights, and
// writes and reads a row of each plane of heads for each of its own. Beyond some number of rows the weights count for nothing,
// and planes of few elements are in cache anyway. An item longer than that is a wave by itself.
constexpr int64_t kEnoughWaveRows = 1024;
constexpr int64_t kFewElements = 384 * 384;  // of a plane
constexpr int64_t kMostWaveRows = 4096;      // of all threads

// Rows whose contexts are in the workspace at a time, at most, where an item is a wave by itself.
constexpr int64_t kPartRows = 4096;

// One task of attention takes up to this many tiles of queries. Where keys come in blocks, a task reads each
// block for all its queries, and more queries make that cheaper.
constexpr int64_t kTilesOfShortKeys = 4;
constexpr int64_t kTilesOfLongKeys = 8;

// Items of a wave with a cache: there is room for numbers per key of whole sequences.
constexpr int64_t kCachedItems = 256;

// Tasks for each thread that give even shares when tasks differ.
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kMaxThreads = 1 << 20;  // that shares are made for; far from overflow

int64_t wave_rows(const attnc_layer& layer, int64_t concurrency) {
    const int64_t features = layer.config.d_model;
    const int64_t rows = most(least(features, kEnoughWaveRows), divide_up(kFewElements, features));
    const int64_t all = least(concurrency, kMostWaveRows) * rows;
    return least(least(all, kMostWaveRows), layer.max_rows);
}

// Gives every part that the plan needs its place.
attnc_status lay_out(attnc_error* error, const attnc_layer& layer, Plan& plan) {
    const int64_t heads = layer.config.num_heads;
    Carver worker;
    plan.worker_row_stats = worker.take(kFloat, {3, 2, plan.attend_rows});
    plan.worker_context = worker.take(kFloat, {plan.attend_rows, layer.v_width});
    if (plan.keeps_row_stats)
        plan.worker_probs = worker.take(kFloat, {plan.average_rows, plan.average_columns});
    if (plan.block_keys > 0) {
        plan.worker_k = worker.take(kFloat, {plan.block_keys, layer.qk_width});
        plan.worker_v = worker.take(kFloat, {plan.block_keys, layer.v_width});
    }
    if (plan.maps_key_blocks) {
        plan.worker_key_blocks = worker.take(1, {divide_up(plan.attend_rows, kGranule), plan.mapped_columns});
    }
    if (plan.maps_key_blocks && plan.split_rows > 0)
        plan.worker_split_drop = worker.take(1, {ATTNC_DECODE_ROWS, layer.layout.split_kv});
    plan.worker_scratch = worker.take(1, {layer.scratch_bytes});
    worker.take(1, {kAlignment});  // two threads' parts never share a pair of cache lines
    plan.worker_bytes = worker.bytes();

    Carver all;
    plan.items = all.take(sizeof(Item), {plan.wave_items});
    if (plan.copies_q) plan.q = all.take(kFloat, {layer.q_heads.planes(), plan.rows_q, layer.qk_width});
    if (plan.copies_k) plan.k = all.take(kFloat, {layer.k_heads.planes(), plan.rows_kv, layer.qk_width});
    if (plan.copies_v) plan.v = all.take(kFloat, {layer.v_heads.planes(), plan.rows_kv, layer.v_width});
    if (layer.rotates()) {
        plan.q_angles = all.take(kFloat, {plan.rows_q, 2, layer.rotary.stride});
        plan.k_angles = all.take(kFloat, {plan.rows_kv, 2, layer.rotary.stride});
    }
    if (plan.owns_context) plan.context = all.take(kFloat, {plan.rows_context, heads, layer.v_width});
    if (plan.makes_key_addend) plan.key_addend = all.take(kFloat, {plan.attended});
    if (plan.makes_key_runs) plan.key_runs = all.take(sizeof(int32_t), {plan.run_count});
    if (plan.keeps_row_stats) plan.row_stats = all.take(kFloat, {heads, 2, plan.rows_q});
    if (plan.split_rows > 0) {
        plan.split_context = all.take(kFloat, {plan.split_rows, layer.v_width});
        plan.split_stats = all.take(kFloat, {2, plan.split_rows});
    }
    plan.workers = all.take(1, {plan.concurrency, plan.worker_bytes});
    if (worker.overflow() || all.overflow()) {
        return fail(error, ATTNC_TOO_LARGE, {"the size of the workspace overflows"});
    }
    plan.bytes = all.bytes();
    return ATTNC_OK;
}

int64_t average_columns(const attnc_layer& layer, int64_t seq_kv) {
    return most(least(layer.layout.tile_kv, seq_kv), layer.appended);
}

// Whether heads of these features with this row stride can be used where they lie.
bool in_place(int64_t features, int64_t width, int64_t row_stride, int64_t rows) {
    return features == width && (rows <= 1 || rows <= safe_rows(row_stride, kFloat));
}

int64_t choose_attend_rows(const attnc_layer& layer, const Request& r, const Plan& plan) {
    const int64_t tile = layer.layout.tile_q;
    const bool is_long = r.seq_kv > layer.layout.tile_kv || layer.appended > 0;
    int64_t tiles = is_long ? kTilesOfLongKeys : kTilesOfShortKeys;
    const int64_t threads = least(plan.concurrency, kMaxThreads);
    const auto enough = [&] {
        const int64_t ranges = (r.seq_q + tiles * tile - 1) / (tiles * tile);
        return plan.wave_items * layer.config.num_heads * ranges >= kTasksPerThread * threads;
    };
    while (plan.concurrency > 1 && tiles > 1 && !enough()) tiles /= 2;
    int64_t rows = least(tiles * tile, r.seq_q);
    const auto limit = [&](int64_t row_stride, int64_t size) {
        rows = least(rows, safe_rows(row_stride, size));
    };
    if (!plan.copies_q) limit(r.query.row_stride, kFloat);
    if (!plan.owns_context) limit(r.out.row_stride, kFloat);
    limit(layer.config.num_heads * layer.v_width, kFloat);
    limit(r.keep_mask.query_stride, 1);
    limit(r.drop_mask.query_stride, 1);
    limit(r.bias.query_stride, kFloat);
    if (r.wants_probs) limit(r.probs.row_stride, kFloat);
    if (r.scores_stage != ATTNC_SCORES_NOT_GIVEN) limit(r.scores.row_stride, kFloat);
    return plan.maps_key_blocks && rows < r.seq_q ? whole_granules(rows) : rows;
}

// Contexts of a wave that are there at a time. Of a long item, parts of equal size.
int64_t context_rows(const Plan& plan) {
    const int64_t parts = divide_up(plan.rows_q, kPartRows);
    if (parts <= 1) return plan.rows_q;
    return divide_up(divide_up(plan.rows_q, parts), plan.attend_rows) * plan.attend_rows;
}

// Results of the splits of a wave's items with few queries, of at most `queries` each. An item's keys touch two splits more
// than they fill.
int64_t split_rows(const attnc_layer& layer, const Plan& plan, int64_t queries) {
    const int64_t few = least(queries, ATTNC_DECODE_QUERIES);
    const int64_t ends = 2 * least(plan.rows_q, few * plan.wave_items);
    return layer.config.num_heads * (few * (plan.attended / layer.layout.split_kv) + ends);
}

// What a call with a cache needs beside the rest.
void plan_cache(const attnc_layer& layer, const Request& r, Plan& plan) {
    // A ring has no more than this of an item, and the rest of the first block of keys.
    const int64_t keys = least(r.seq_kv, r.cache.room() + layer.layout.tile_kv);
    plan.attended = plan.wave_items * keys;
    plan.makes_key_runs = !r.cache.cache->is(ATTNC_CACHE_SLOTS);
    if (!plan.makes_key_runs) return;
    plan.run_count = plan.wave_items * divide_up(keys, kRunKeys);
    plan.block_keys = least(layer.layout.tile_kv, keys);
}

}  // namespace

int64_t safe_rows(int64_t row_stride, int64_t size) {
    return row_stride == 0 ? kMaxSpan : most(kMaxSpan / size / row_stride, 1);
}

MaskUse use_masks(const Request& r) {
    MaskUse use;
    int64_t joined = 0;
    const MaskView* last = nullptr;
    for (const MaskView* view :
         {&r.keep_mask, &r.drop_mask, &r.bias, &r.key_keep_mask, &r.key_drop_mask, &r.key_bias}) {
        if (!view->present) continue;
        use.any = true;
        if (view->per_key) {
            ++joined;
            last = view;
            use.addend_by_item = use.addend_by_item || view->batch_stride != 0;
        }
    }
    use.key_addend = joined > 0;
    if (joined == 1 && (last == &r.bias || last == &r.key_bias)) use.in_place = last;
    use.keep = r.keep_mask.present && !r.keep_mask.per_key;
    use.drop = r.drop_mask.present && !r.drop_mask.per_key;
    use.bias = r.bias.present && !r.bias.per_key;
    use.blocks = r.block_keep_mask.view.present;
    use.any = use.any || use.blocks;
    return use;
}

attnc_status plan_call(attnc_error* error, const attnc_layer& layer, const Request& r, Plan* plan) {
    *plan = {};
    if (r.batch == 0 || (r.seq_q == 0 && !(r.cache.appends && r.seq_new > 0))) return ATTNC_OK;
    const attnc_config& c = layer.config;
    const int64_t longest = most(most(r.seq_q, r.seq_new), 1);
    const int64_t items = r.cache ? least(r.batch, kCachedItems) : r.batch;
    const int64_t wave = wave_rows(layer, r.concurrency);
    plan->wave_items = least(items, most(wave / longest, 1));
    plan->rows_q = plan->wave_items * r.seq_q;
    plan->rows_kv = plan->wave_items * r.seq_new;
    if (r.query_starts.present) {  // as many items as there is room for, since their lengths differ
        plan->wave_items = least(items, wave);
        plan->rows_q = least(r.total_q, most(wave, r.seq_q));
        plan->rows_kv = least(r.total_kv, most(wave, r.seq_new));
    }
    plan->attended = plan->rows_kv;
    if (r.cache) plan_cache(layer, r, *plan);
    const bool any_length = r.query_lengths.present || r.query_starts.present;
    if (layer.has(ATTNC_CONFIG_CACHE) && (any_length || r.seq_q <= ATTNC_DECODE_QUERIES))
        plan->split_rows = split_rows(layer, *plan, r.seq_q);
    plan->concurrency = r.concurrency;
    const bool in_proj = layer.has(ATTNC_CONFIG_IN_PROJ);
    const int64_t keys = least(layer.layout.tile_kv, r.seq_kv), tile = layer.layout.tile_q;
    const bool makes_qk = in_proj || layer.changes_heads();
    plan->copies_q = makes_qk || !in_place(c.head_dim, layer.qk_width, r.query.row_stride, tile);
    plan->copies_k =
        r.cache ? r.cache.appends : makes_qk || !in_place(c.head_dim, layer.qk_width, r.key.row_stride, keys);
    plan->copies_v = r.cache ? r.cache.appends
                             : in_proj || !in_place(c.v_head_dim, layer.v_width, r.value.row_stride, keys);
    const bool k_apart = !plan->copies_k && r.key.row_stride != layer.qk_width;
    const bool v_apart = !plan->copies_v && r.value.row_stride != layer.v_width;
    if (!r.cache && (k_apart || v_apart)) plan->block_keys = keys;
    plan->owns_context =
        layer.has(ATTNC_CONFIG_OUT_PROJ) || !in_place(c.v_head_dim, layer.v_width, r.out.row_stride, tile);
    const MaskUse masks = use_masks(r);
    plan->makes_key_addend = masks.key_addend && masks.in_place == nullptr;
    plan->keeps_row_stats = r.wants_averaged && !r.wants_probs;
    plan->maps_key_blocks = masks.any;
    plan->mapped_columns = divide_up(keys, kGranule);
    plan->attend_rows = choose_attend_rows(layer, r, *plan);
    plan->rows_context = context_rows(*plan);
    plan->average_rows = least(plan->attend_rows, tile);
    if (masks.any && plan->average_rows < r.seq_q) plan->average_rows = whole_granules(plan->average_rows);
    plan->average_columns = average_columns(layer, r.seq_kv);
    return lay_out(error, layer, *plan);
}

attnc_status plan_bound(attnc_error* error, const attnc_layer& layer, const attnc_limits& limits,
                        Plan* plan) {
    *plan = {};
    // Waves never hold more rows than one item or wave_rows, whichever is more.
    const int64_t wave = wave_rows(layer, limits.max_concurrency);
    const auto rows = [&](int64_t seq) {
        int64_t all = 0;
        const int64_t longest = most(wave, seq);
        return __builtin_mul_overflow(limits.max_batch, seq, &all) ? longest : least(all, longest);
    };
    plan->wave_items = least(limits.max_batch, wave);
    plan->rows_q = rows(limits.max_seq_q);
    plan->rows_kv = plan->attended = rows(limits.max_seq_kv);
    plan->concurrency = limits.max_concurrency;
    plan->copies_q = plan->copies_k = plan->copies_v = plan->owns_context = true;
    plan->makes_key_addend = layer.has(ATTNC_CONFIG_MASKS);
    plan->keeps_row_stats = layer.has(ATTNC_CONFIG_PROBS);
    plan->maps_key_blocks = layer.has(ATTNC_CONFIG_MASKS);
    plan->mapped_columns = divide_up(least(layer.layout.tile_kv, limits.max_seq_kv), kGranule);
    plan->attend_rows = least(kTilesOfLongKeys * layer.layout.tile_q, limits.max_seq_q);
    plan->rows_context = least(plan->rows_q, kPartRows + plan->attend_rows);
    plan->average_rows = least(layer.layout.tile_q, limits.max_seq_q);
    plan->average_columns = average_columns(layer, limits.max_seq_kv);
    const bool takes_heads = !layer.has(ATTNC_CONFIG_IN_PROJ);
    if (takes_heads || layer.has(ATTNC_CONFIG_CACHE))
        plan->block_keys = least(layer.layout.tile_kv, limits.max_seq_kv);
    if (layer.has(ATTNC_CONFIG_CACHE)) {
        const int64_t items = least(plan->wave_items, kCachedItems);
        plan->attended = most(plan->attended, items * limits.max_seq_kv);
        plan->makes_key_runs = true;
        plan->run_count = items * divide_up(limits.max_seq_kv, kRunKeys);
        plan->split_rows = split_rows(layer, *plan, limits.max_seq_q);
    }
    return lay_out(error, layer, *plan);
}

attnc_status check_workspace(attnc_error* error, int64_t bytes, int64_t alignment, const attnc_run& run) {
    if (bytes == 0) return ATTNC_OK;
    if (run.workspace == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"run.workspace is null"});
    if (reinterpret_cast<uintptr_t>(run.workspace) % static_cast<uintptr_t>(alignment) != 0) {
        return fail(error, ATTNC_WORKSPACE_MISALIGNED,
                    {"run.workspace is not aligned to ", alignment, " bytes"});
    }
    if (run.workspace_bytes < static_cast<size_t>(bytes)) {
        return fail(error, ATTNC_WORKSPACE_TOO_SMALL,
                    {"run.workspace has ", run.workspace_bytes, " bytes, wanted ", bytes});
    }
    return ATTNC_OK;
}

}  // namespace attnc
