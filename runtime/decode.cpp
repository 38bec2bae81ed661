#include "runtime/decode.h"

#include <initializer_list>

#include "runtime/ahead.h"
#include "runtime/arithmetic.h"
#include "runtime/cache_rows.h"
#include "runtime/masks.h"

namespace attnc {
namespace {

// The table of runs of keys that lie one after another.
constexpr int64_t kMostRuns = ATTNC_MAX_SPLIT_KV / ATTNC_RUN_KEYS;
struct ConsecutiveRuns {
    int32_t first_rows[kMostRuns];
    constexpr ConsecutiveRuns() : first_rows{} {
        for (int32_t n = 0; n < kMostRuns; ++n) first_rows[n] = n * ATTNC_RUN_KEYS;
    }
};
constexpr ConsecutiveRuns kConsecutive;

// Keys first .. end of an item for heads head .. head + heads, which share kv_head, and queries row .. row + rows.
struct SplitPart {
    const Item* item;
    int64_t split;  // counted from the item's first one
    int64_t first, end;
    int64_t kv_head, head, heads;
    int64_t row, rows;
};

// Results of a split lie [head][query], split after split.
int64_t result_row(const attnc_layer& layer, const Item& item, int64_t split, int64_t head, int64_t row) {
    return item.split_row + (split * layer.config.num_heads + head) * item.q_length + row;
}

RowStats split_stats(const Wave& wave, int64_t row) {
    return {wave.at<float>(wave.plan.split_stats) + row, wave.plan.split_rows};
}

// What the call's block mask drops, together with its drop mask: (key, query, head). Items with few queries lie in the first
// row of blocks.
const uint8_t* dropped_by_blocks(const Wave& wave, Worker& worker, const SplitPart& part) {
    const MaskUse& use = wave.masks;
    if (!use.blocks) return nullptr;
    const BlockMask& mask = wave.request.block_keep_mask;
    uint8_t* const result = worker.memory + wave.plan.worker_split_drop;
    uint8_t* to = result;
    for (int64_t head = part.head; head < part.head + part.heads; ++head) {
        const uint8_t* blocks = static_cast<const uint8_t*>(mask.view.data) +
                                part.item->number * mask.view.batch_stride + head * mask.view.head_stride;
        for (int64_t row = part.row; row < part.row + part.rows; ++row) {
            MaskSource drop = {};
            if (use.drop) drop = mask_source(wave.request.drop_mask, *part.item, head, row, part.first, 1);
            for (int64_t key = part.first; key < part.end; ++key) {
                const bool kept = blocks[key / mask.block_kv * mask.view.key_stride] != 0;
                const bool dropped = use.drop && static_cast<const uint8_t*>(
                                                     drop.data)[(key - part.first) * drop.key_stride] != 0;
                *to++ = kept && !dropped ? 0 : 1;
            }
        }
    }
    return result;
}

bool call_decode(const Wave& wave, Worker& worker, const SplitPart& part) {
    const attnc_layer& layer = wave.layer;
    const Item& item = *part.item;
    const KvPool pool = kv_pool(wave, item, part.kv_head);
    const int64_t behind = part.first - item.kv_first, keys = part.end - part.first;
    const int64_t runs = divide_up(keys, kRunKeys);
    const bool scattered = pool.runs != nullptr;
    const int64_t rows = scattered ? pool.rows : keys, from = scattered ? 0 : behind;
    const int32_t* table = scattered ? pool.runs + behind / kRunKeys : kConsecutive.first_rows;
    const HeadRows q_rows = query_rows(wave, {&item, part.head, part.row, part.rows});
    const int64_t q_heads =
        part.heads > 1 ? query_rows(wave, {&item, part.head + 1, part.row, part.rows}).data - q_rows.data : 0;
    const int64_t result = result_row(layer, item, part.split, part.head, part.row);
    const RowStats stats = split_stats(wave, result);

    Buffer<3> q(q_rows.data, kFloat32,
                {{layer.qk_width, 1}, {part.rows, q_rows.row_stride}, {part.heads, q_heads}});
    Buffer<2> k(pool.k.data + from * pool.k.row_stride, kFloat32,
                {{layer.qk_width, 1}, {rows, pool.k.row_stride}});
    Buffer<2> v(pool.v.data + from * pool.v.row_stride, kFloat32,
                {{layer.v_width, 1}, {rows, pool.v.row_stride}});
    Buffer<1> key_rows(table, kInt32, {{runs, 1}});
    Buffer<3> context(
        wave.at<float>(wave.plan.split_context) + result * layer.v_width, kFloat32,
        {{layer.v_width, 1}, {part.rows, layer.v_width}, {part.heads, item.q_length * layer.v_width}});
    Buffer<3> row_stats(stats.data, kFloat32,
                        {{part.rows, 1}, {part.heads, item.q_length}, {2, stats.stride}});
    const KernelInterval interval = kernel_interval(item, part.row, part.first);
    const auto key_count = static_cast<int32_t>(keys);
    GroupMaskArguments masks(wave, item, part.head, part.heads,
                             {part.row, part.rows, part.first, keys, false},
                             dropped_by_blocks(wave, worker, part));
    KernelCall call;
    call.set(ATTNC_ARGUMENT_Q, q);
    call.set(ATTNC_ARGUMENT_K, k);
    call.set(ATTNC_ARGUMENT_V, v);
    call.set(ATTNC_ARGUMENT_KEY_ROWS, key_rows);
    call.set(ATTNC_ARGUMENT_KEYS, key_count);
    call.set(ATTNC_ARGUMENT_QK_SCALE, layer.qk_scale);
    call.set(ATTNC_ARGUMENT_FIRST_KEY, interval.first_key);
    call.set(ATTNC_ARGUMENT_LAST_KEY, interval.last_key);
    const int32_t ask_ahead = keys_come_from_afar(wave) ? 1 : 0;
    call.set(ATTNC_ARGUMENT_ASK_AHEAD, ask_ahead);
    call.set(ATTNC_ARGUMENT_CONTEXT, context);
    call.set(ATTNC_ARGUMENT_ROW_STATS, row_stats);
    masks.set(call);
    return call.run(layer.kernel(ATTNC_KERNEL_ATTEND_DECODE), worker.task);
}

// Queries of a call, and of heads of a group, that no buffer's span keeps apart. A row's bits don't depend on either.
int64_t queries_of_call(const Wave& wave, const Item& item) {
    const Request& r = wave.request;
    return least(
        item.q_length,
        least(least(wave.plan.attend_rows, safe_rows(r.bias.query_stride, 4 * sizeof(float))),
              least(safe_rows(r.keep_mask.query_stride, 4), safe_rows(r.drop_mask.query_stride, 4))));
}
int64_t heads_of_call(const Wave& wave, int64_t rows) {
    const Request& r = wave.request;
    const attnc_config& c = wave.layer.config;
    constexpr int64_t kSize = 4 * sizeof(float);
    const int64_t q_stride =
        wave.plan.copies_q ? wave.plan.rows_q * wave.layer.qk_width : r.query.head_stride;
    int64_t heads = least(c.num_heads / c.num_kv_heads, ATTNC_DECODE_ROWS / rows);
    for (const int64_t limit :
         {safe_rows(q_stride, kSize), safe_rows(r.bias.head_stride, kSize),
          safe_rows(r.keep_mask.head_stride, 4), safe_rows(r.drop_mask.head_stride, 4)}) {
        heads = least(heads, limit);
    }
    return heads;
}

// Pieces of an item one after another: its splits, and in each the heads of K and V.
bool run_decode(const Wave& wave, const void*, Worker& worker, int64_t index, const char** refused) {
    const attnc_layer& layer = wave.layer;
    const int64_t kv_heads = layer.config.num_kv_heads, split_kv = layer.layout.split_kv;
    const Item& item = wave.items[index / (kv_heads * wave.most_splits)];
    if (!has_few_queries(layer, item)) return true;
    const KeySplits splits = splits_of(layer, item);
    const int64_t split = index / kv_heads % wave.most_splits;
    if (split >= splits.count) return true;
    *refused = "attend_decode";
    const KeyInterval seen = visible_keys(item, 0, item.q_length);
    const int64_t begin = (splits.first + split) * split_kv;
    SplitPart part = {.item = &item,
                      .split = split,
                      .first = most(begin, item.kv_first),
                      .end = least(begin + split_kv, seen.end),
                      .kv_head = index % kv_heads};
    const int64_t group = layer.config.num_heads / kv_heads;
    const int64_t rows = queries_of_call(wave, item), heads = heads_of_call(wave, rows);
    for (int64_t g = 0; g < group; g += heads) {
        for (part.row = 0; part.row < item.q_length; part.row += rows) {
            part.head = part.kv_head * group + g;
            part.heads = least(heads, group - g);
            part.rows = least(rows, item.q_length - part.row);
            if (!call_decode(wave, worker, part)) return false;
        }
    }
    return true;
}

bool run_join(const Wave& wave, const void*, Worker& worker, int64_t index, const char** refused) {
    const attnc_layer& layer = wave.layer;
    const int64_t heads = layer.config.num_heads, head = index % heads;
    const Item& item = wave.items[index / heads];
    if (!has_few_queries(layer, item)) return true;
    const int64_t width = layer.v_width, between = heads * item.q_length;
    for (int64_t row = 0; row < item.q_length; row += wave.plan.attend_rows) {
        const int64_t result = result_row(layer, item, 0, head, row);
        const PartialResults parts = {
            .count = splits_of(layer, item).count,
            .context = wave.at<float>(wave.plan.split_context) + result * width,
            .row_stride = width,
            .context_stride = between * width,
            .stats = split_stats(wave, result),
            .stats_stride = between,
        };
        const QueryRange range = {&item, head, row, least(wave.plan.attend_rows, item.q_length - row)};
        if (!finish_partial(wave, worker, range, parts, refused)) return false;
    }
    return true;
}

bool any_few(const Wave& wave) {
    for (int64_t i = 0; i < wave.item_count; ++i) {
        if (has_few_queries(wave.layer, wave.items[i])) return true;
    }
    return false;
}

}  // namespace

KeySplits splits_of(const attnc_layer& layer, const Item& item) {
    const KeyInterval seen = visible_keys(item, 0, item.q_length);
    const int64_t split_kv = layer.layout.split_kv, first = seen.first / split_kv;
    return {first, seen.first < seen.end ? (seen.end - 1) / split_kv + 1 - first : 0};
}

WorkList decode_work(const Wave& wave) {
    return {wave.item_count * wave.layer.config.num_kv_heads * wave.most_splits, run_decode, nullptr};
}

WorkList join_splits_work(const Wave& wave) {
    return {any_few(wave) ? wave.item_count * wave.layer.config.num_heads : 0, run_join, nullptr};
}

}  // namespace attnc
