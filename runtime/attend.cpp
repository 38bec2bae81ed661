#include "runtime/attend.h"

#include <cstring>

#include "runtime/ahead.h"
#include "runtime/arithmetic.h"
#include "runtime/cache_rows.h"
#include "runtime/empty_rows.h"
#include "runtime/library.h"
#include "runtime/masks.h"
#include "runtime/nonfinite.h"
#include "runtime/probs.h"
#include "runtime/query_tiles.h"
#include "runtime/score_arguments.h"
#include "runtime/scores.h"

namespace attnc {
namespace {

HeadRows in_workspace(const Wave& wave, int64_t offset, int64_t plane, int64_t plane_rows, int64_t row,
                      int64_t width) {
    return {wave.at<float>(offset) + (plane * plane_rows + row) * width, width};
}

HeadRows at_caller(const TokenView& view, int64_t origin, int64_t head, int64_t row) {
    return {view.data + origin * view.batch_stride + head * view.head_stride + row * view.row_stride,
            view.row_stride};
}

// Where a result of attention goes, or is.
struct ContextRows {
    float* data;
    int64_t row_stride;
    ContextRows from(int64_t row) const { return {data + row * row_stride, row_stride}; }
};

ContextRows context_rows(const Wave& wave, const QueryRange& range) {
    const int64_t width = wave.layer.v_width;
    if (wave.plan.owns_context) {
        const int64_t stride = wave.layer.config.num_heads * width;
        return {wave.at<float>(wave.plan.context) +
                    (range.item->q_row + range.row - wave.first_query) * stride + range.head * width,
                stride};
    }
    const OutView& out = wave.request.out;
    return {out.data + range.item->q_origin * out.batch_stride + range.head * out.head_stride +
                range.row * out.row_stride,
            out.row_stride};
}

// A block of keys: those of the call from `first`, or the appended ones.
struct KeyBlock {
    HeadRows k, v;
    int64_t first, count;
    bool appended;
    KeyBlockMap blocks;  // from the range's first row on
    Ahead ahead;
};

// Whether a block of keys needs no attend_masked.
bool is_plain(const Wave& wave, bool appended, const KeyBlockMap& blocks) {
    return MaskArguments::flags_of(wave, appended) == 0 && blocks.data == nullptr;
}

// One call of attend, attend_masked or attend_guarded.
bool call_attend(const Wave& wave, Worker& worker, const QueryRange& range, const KeyBlock& block, int kernel,
                 const ContextRows& context, const RowStats& stats) {
    const attnc_layer& layer = wave.layer;
    ScoreArguments arguments(
        wave, range, block.k, block.count,
        block.appended ? kAllKeys : kernel_interval(*range.item, range.row, block.first));
    Buffer<2> v(block.v.data, kFloat32, {{layer.v_width, 1}, {block.count, block.v.row_stride}});
    Buffer<2> to(context.data, kFloat32, {{layer.v_width, 1}, {range.rows, context.row_stride}});
    Buffer<2> row_stats = stats.buffer(range.rows);
    KernelCall call;
    arguments.set(call);
    call.set(ATTNC_ARGUMENT_V, v);
    call.set(ATTNC_ARGUMENT_CONTEXT, to);
    call.set(ATTNC_ARGUMENT_ROW_STATS, row_stats);
    call.set(ATTNC_ARGUMENT_AHEAD_Q, block.ahead.q);
    call.set(ATTNC_ARGUMENT_AHEAD_K, block.ahead.k);
    call.set(ATTNC_ARGUMENT_AHEAD_K_BYTES, block.ahead.k_bytes);
    call.set(ATTNC_ARGUMENT_AHEAD_V, block.ahead.v);
    call.set(ATTNC_ARGUMENT_AHEAD_V_BYTES, block.ahead.v_bytes);
    call.set(ATTNC_ARGUMENT_AHEAD_CONTEXT, block.ahead.context);
    const bool plain = kernel != ATTNC_KERNEL_ATTEND_MASKED && kernel != ATTNC_KERNEL_ATTEND_GUARDED;
    if (plain) return call.run(layer.kernel(kernel), worker.task);
    MaskArguments masks(wave, *range.item, range.head,
                        {range.row, range.rows, block.first, block.count, block.appended, block.blocks});
    masks.set(call);
    return call.run(layer.kernel(kernel), worker.task);
}

// Without masks: by tiles as wide as the queries need.
bool attend_plain(const Wave& wave, Worker& worker, const QueryRange& range, const KeyBlock& block,
                  const ContextRows& context, const RowStats& stats, const char** refused) {
    for (int64_t done = 0; done < range.rows;) {
        const QueryRange rest = {range.item, range.head, range.row + done, range.rows - done};
        const QueryTiles tiles = next_query_tiles(wave.layer, rest, block.first, block.first + block.count);
        const QueryRange part = {range.item, range.head, rest.row, tiles.rows};
        *refused = name_of_kernel(tiles.kernel);
        if (!call_attend(wave, worker, part, block, tiles.kernel, context.from(done), stats.from(done)))
            return false;
        done += tiles.rows;
    }
    return true;
}

// A dropped key's weight is 0, but 0 times a value that is infinite or NaN is NaN. Rows that came out so are
// done again with such values left out; rows that are right to be NaN come out the same.
bool redo_nonfinite(const Wave& wave, Worker& worker, const QueryRange& range, const KeyBlock& block,
                    const ContextRows& context, const RowStats& stats) {
    const auto are_bad = [&](int64_t i, int64_t rows) {
        return any_nonfinite(
            {context.data + i * context.row_stride, wave.layer.v_width, rows, context.row_stride},
            wave.layer.target->cpu_features);
    };
    if (!are_bad(0, range.rows)) return true;
    for (int64_t i = 0; i < range.rows; ++i) {
        if (!are_bad(i, 1)) continue;
        int64_t end = i + 1;
        while (end < range.rows && are_bad(end, 1)) ++end;
        if (block.blocks.data != nullptr) i -= i % kGranule;  // a row that is done again gets the same bits
        const QueryRange bad = {range.item, range.head, range.row + i, end - i};
        const ContextRows to = context.from(i);
        KeyBlock rest = block;
        rest.blocks = block.blocks.from(i);
        if (!call_attend(wave, worker, bad, rest, ATTNC_KERNEL_ATTEND_GUARDED, to, stats.from(i)))
            return false;
        i = end;
    }
    return true;
}

// Whether every query of the range sees all keys up to a diagonal, and the values behind it, which some do not see, are
// finite. Their products are 0 then, and no row can have come out wrong. (To the left of a window there may be many.)
bool edge_is_finite(const attnc_layer& layer, const QueryRange& range, const KeyBlock& block) {
    if (range.last() - 1 + range.item->first_key > block.first) return false;
    const int64_t first = least(most(range.row + range.item->last_key - block.first, 0), block.count);
    return !any_nonfinite(
        {block.v.data + first * block.v.row_stride, layer.v_width, block.count - first, block.v.row_stride},
        layer.target->cpu_features);
}

bool attend_block(const Wave& wave, Worker& worker, const QueryRange& range, const KeyBlock& block,
                  const ContextRows& context, const RowStats& stats, const char** refused) {
    const bool masked = wave.masks.any && !block.appended;
    const bool plain = is_plain(wave, block.appended, block.blocks);
    *refused = "attend_masked";
    if (plain ? !attend_plain(wave, worker, range, block, context, stats, refused)
              : !call_attend(wave, worker, range, block, ATTNC_KERNEL_ATTEND_MASKED, context, stats)) {
        return false;
    }
    if (!masked && (block.appended || edge_is_finite(wave.layer, range, block))) return true;
    *refused = "attend_guarded";
    return redo_nonfinite(wave, worker, range, block, context, stats);
}

bool merge(const Wave& wave, Worker& worker, int64_t rows, const ContextRows& a, const RowStats& stats_a,
           const ContextRows& b, const RowStats& stats_b, const RowStats& stats) {
    const int64_t width = wave.layer.v_width;
    Buffer<2> context_a(a.data, kFloat32, {{width, 1}, {rows, a.row_stride}});
    Buffer<2> row_stats_a = stats_a.buffer(rows);
    Buffer<2> context_b(b.data, kFloat32, {{width, 1}, {rows, b.row_stride}});
    Buffer<2> row_stats_b = stats_b.buffer(rows);
    Buffer<2> context(a.data, kFloat32, {{width, 1}, {rows, a.row_stride}});
    Buffer<2> row_stats = stats.buffer(rows);
    KernelCall call;
    call.set(ATTNC_ARGUMENT_CONTEXT_A, context_a);
    call.set(ATTNC_ARGUMENT_ROW_STATS_A, row_stats_a);
    call.set(ATTNC_ARGUMENT_CONTEXT_B, context_b);
    call.set(ATTNC_ARGUMENT_ROW_STATS_B, row_stats_b);
    call.set(ATTNC_ARGUMENT_CONTEXT, context);
    call.set(ATTNC_ARGUMENT_ROW_STATS, row_stats);
    return call.run(wave.layer.kernel(ATTNC_KERNEL_ATTEND_MERGE), worker.task);
}

void copy(const RowStats& from, const RowStats& to, size_t rows) {
    memcpy(to.data, from.data, rows * sizeof(float));
    memcpy(to.data + to.stride, from.data + from.stride, rows * sizeof(float));
}

// Attention over all keys, block by block. `stats` gives those of the result, in the worker's memory.
class RangeAttention {
public:
    RangeAttention(const Wave& wave, Worker& worker, const QueryRange& range)
        : wave_(wave), worker_(worker), range_(range), context_(context_rows(wave, range)) {
        const int64_t rows = wave.plan.attend_rows;
        for (int i = 0; i < 3; ++i) {
            stats_[i] = {worker.floats(wave.plan.worker_row_stats) + i * 2 * rows, rows};
        }
    }

    bool add(const KeyBlock& block, const char** refused) {
        if (first_) {
            first_ = false;
            return attend_block(wave_, worker_, range_, block, context_, stats_[0], refused);
        }
        const ContextRows other = {worker_.floats(wave_.plan.worker_context), wave_.layer.v_width};
        return attend_block(wave_, worker_, range_, block, other, stats_[1], refused) &&
               join(other, stats_[1], refused);
    }

    // Results that are there already.
    bool take(const ContextRows& context, const RowStats& stats, const char** refused) {
        if (!first_) return join(context, stats, refused);
        first_ = false;
        const size_t bytes = static_cast<size_t>(wave_.layer.v_width) * sizeof(float);
        for (int64_t i = 0; i < range_.rows; ++i)
            memcpy(context_.data + i * context_.row_stride, context.data + i * context.row_stride, bytes);
        copy(stats, stats_[0], static_cast<size_t>(range_.rows));
        return true;
    }

    // After all blocks, or none: then no query sees a key.
    bool finish(const char** refused) {
        const size_t bytes = static_cast<size_t>(wave_.layer.v_width) * sizeof(float);
        if (first_) {
            for (int64_t i = 0; i < range_.rows; ++i)
                memset(context_.data + i * context_.row_stride, 0, bytes);
            fill(stats_[0], minus_infinity(), 0);
        }
        if (wave_.layer.sinks == nullptr) return true;
        // A sink is a block of one key that every query sees and whose value is 0; one row stands for all.
        const ContextRows zeros = {worker_.floats(wave_.plan.worker_context), 0};
        memset(zeros.data, 0, bytes);
        fill(stats_[1], wave_.layer.sinks[range_.head], 1);
        return join(zeros, stats_[1], refused);
    }

    const RowStats& stats() const { return stats_[0]; }
    const ContextRows& context() const { return context_; }

private:
    void fill(const RowStats& stats, float largest, float sum) const {
        for (int64_t i = 0; i < range_.rows; ++i) {
            stats.data[i] = largest;
            stats.data[stats.stride + i] = sum;
        }
    }

    // `other` to what is there already.
    bool join(const ContextRows& other, const RowStats& stats, const char** refused) {
        *refused = "attend_merge";
        if (!merge(wave_, worker_, range_.rows, context_, stats_[0], other, stats, stats_[2])) return false;
        const RowStats merged = stats_[2];
        stats_[2] = stats_[0];
        stats_[0] = merged;
        return true;
    }

    const Wave& wave_;
    Worker& worker_;
    const QueryRange& range_;
    ContextRows context_;
    RowStats stats_[3];
    bool first_ = true;
};

// `ahead`: what the worker's next range will read.
bool attend_all_keys(const Wave& wave, Worker& worker, const QueryRange& range, const Ahead& ahead,
                     RangeAttention& attention, const char** refused) {
    const attnc_layer& layer = wave.layer;
    const int64_t head = kv_head_of(layer, range.head);
    const KeyInterval seen = visible_keys(range);
    const int64_t tile = layer.layout.tile_kv;
    for (int64_t first = seen.first / tile * tile; first < seen.end; first += tile) {
        const int64_t count = least(tile, seen.end - first);
        const KeyBlockMap blocks = map_key_blocks(wave, worker, range, first, count);
        if (blocks.empty) continue;
        const QueryTiles tiles = next_query_tiles(layer, range, first, first + count);
        const bool any_strides = is_plain(wave, false, blocks) &&
                                 tiles.kernel == ATTNC_KERNEL_ATTEND_SINGLE && tiles.rows == range.rows;
        const KvRows rows = kv_rows(
            wave, worker, {range.item, head, first, count, most(first, seen.first), true, any_strides});
        const KeyBlock block = {rows.k, rows.v, first, count, false, blocks, ahead};
        if (!attention.add(block, refused)) return false;
    }
    return true;
}

bool attend_appended(const attnc_layer& layer, const QueryRange& range, RangeAttention& attention,
                     const char** refused) {
    if (layer.appended > 0) {
        const int64_t head = kv_head_of(layer, range.head), n = layer.appended;
        const KeyBlock block = {{layer.appended_k + head * n * layer.qk_width, layer.qk_width},
                                {layer.appended_v + head * n * layer.v_width, layer.v_width},
                                0,
                                n,
                                true,
                                {},
                                {}};
        if (!attention.add(block, refused)) return false;
    }
    return attention.finish(refused);
}

bool write_lse(const Wave& wave, Worker& worker, const QueryRange& range, const RowStats& stats) {
    const OutView& out = wave.request.lse;
    Buffer<2> row_stats_in = stats.buffer(range.rows);
    Buffer<1> lse(out.data + range.item->number * out.batch_stride + range.head * out.head_stride + range.row,
                  kFloat32, {{range.rows, 1}});
    KernelCall call;
    call.set(ATTNC_ARGUMENT_ROW_STATS_IN, row_stats_in);
    call.set(ATTNC_ARGUMENT_LSE, lse);
    return call.run(wave.layer.kernel(ATTNC_KERNEL_ATTEND_LSE), worker.task);
}

bool write_all_probs(const Wave& wave, Worker& worker, const QueryRange& range, const RowStats& stats) {
    const OutView& out = wave.request.probs;
    const int64_t keys = wave.request.seq_kv;
    float* to = out.data + range.item->number * out.batch_stride + range.head * out.head_stride +
                range.row * out.row_stride;
    return write_probs(wave, worker, range, stats, 0, keys, to, out.row_stride) &&
           write_appended_probs(wave, worker, range, stats, to + keys, out.row_stride);
}

// After the call's keys.
bool write_results(const Wave& wave, Worker& worker, const QueryRange& range, RangeAttention& attention,
                   const char** refused) {
    if (!attend_appended(wave.layer, range, attention, refused)) return false;
    const RowStats& stats = attention.stats();
    fill_empty_context(wave, range, stats, attention.context().data, attention.context().row_stride);
    if (wave.plan.keeps_row_stats) copy(stats, kept_row_stats(wave, range), static_cast<size_t>(range.rows));
    *refused = "attend_lse";
    if (wave.request.wants_lse && !write_lse(wave, worker, range, stats)) return false;
    *refused = "attend_probs";
    if (wave.request.wants_probs && !write_all_probs(wave, worker, range, stats)) return false;
    *refused = "attend_scores";
    return wave.request.scores_stage == ATTNC_SCORES_NOT_GIVEN || write_scores(wave, worker, range);
}

int64_t ranges_of(const Wave& wave) {
    return divide_up(wave.end_query - wave.first_query, wave.plan.attend_rows);
}

int64_t pieces_of(const Wave& wave) {
    return wave.item_count * wave.layer.config.num_heads * ranges_of(wave);
}

// Heads of an item one after another, so that heads that share keys find them in cache; in each the last
// queries first, so that with a diagonal the long pieces of work don't come last. No rows: nothing is to be done.
QueryRange range_of(const Wave& wave, int64_t index) {
    const int64_t ranges = ranges_of(wave), heads = wave.layer.config.num_heads;
    const int64_t rows = wave.plan.attend_rows;
    const Item& item = wave.items[index / (ranges * heads)];
    const int64_t row = wave.first_query + (ranges - 1 - index % ranges) * rows;
    const bool none = row >= item.q_length || has_few_queries(wave.layer, item);
    return {&item, index / ranges % heads, row, none ? 0 : least(rows, item.q_length - row)};
}

// What this worker takes next, if the workers take turns (runtime/stage).
Ahead ahead_of(const Wave& wave, int64_t index) {
    const int64_t next = index + 1;
    if (next >= pieces_of(wave)) return {};
    const QueryRange range = range_of(wave, next);
    if (range.rows == 0) return {};
    Ahead ahead = rows_ahead(wave, range);
    ahead.context = reinterpret_cast<uint64_t>(context_rows(wave, range).data);
    return ahead;
}

bool run_attend(const Wave& wave, const void*, Worker& worker, int64_t index, const char** refused) {
    const QueryRange range = range_of(wave, index);
    if (range.rows == 0) return true;
    RangeAttention attention(wave, worker, range);
    return attend_all_keys(wave, worker, range, ahead_of(wave, index), attention, refused) &&
           write_results(wave, worker, range, attention, refused);
}

void zero_rows(const OutView& out, int64_t origin, int64_t head, int64_t row, int64_t end, int64_t features) {
    float* to = out.data + origin * out.batch_stride + head * out.head_stride;
    for (; row < end; ++row)
        memset(to + row * out.row_stride, 0, static_cast<size_t>(features) * sizeof(float));
}

bool run_empty_tail(const Wave& wave, const void*, Worker&, int64_t index, const char**) {
    const Item& item = wave.items[index];
    const Request& r = wave.request;
    const attnc_config& c = wave.layer.config;
    const int64_t row = item.q_length, end = r.seq_q, columns = r.seq_kv + wave.layer.appended;
    const int64_t out_end = query_rows_of(r, item.number);
    if (wave.layer.has(ATTNC_CONFIG_OUT_PROJ)) zero_rows(r.out, item.q_origin, 0, row, out_end, c.d_model);
    if (r.wants_averaged) zero_rows(r.probs_averaged, item.number, 0, row, end, columns);
    for (int64_t head = 0; head < c.num_heads; ++head) {
        if (!wave.layer.has(ATTNC_CONFIG_OUT_PROJ))
            zero_rows(r.out, item.q_origin, head, row, out_end, c.v_head_dim);
        if (r.wants_probs) zero_rows(r.probs, item.number, head, row, end, columns);
        if (r.scores_stage != ATTNC_SCORES_NOT_GIVEN)
            zero_rows(r.scores, item.number, head, row, end, r.seq_kv);
        if (!r.wants_lse) continue;
        float* lse = r.lse.data + item.number * r.lse.batch_stride + head * r.lse.head_stride;
        for (int64_t i = row; i < end; ++i) lse[i] = minus_infinity();
    }
    return true;
}

// Within the limits of a kernel's key numbers.
int32_t moved(int32_t key, int64_t by) {
    const int64_t sum = key + by;
    if (sum > kNoLastKey) return kNoLastKey;
    return sum < kNoFirstKey ? kNoFirstKey : static_cast<int32_t>(sum);
}

}  // namespace

bool finish_partial(const Wave& wave, Worker& worker, const QueryRange& range, const PartialResults& parts,
                    const char** refused) {
    RangeAttention attention(wave, worker, range);
    for (int64_t n = 0; n < parts.count; ++n) {
        const ContextRows context = {parts.context + n * parts.context_stride, parts.row_stride};
        const RowStats stats = {parts.stats.data + n * parts.stats_stride, parts.stats.stride};
        if (!attention.take(context, stats, refused)) return false;
    }
    return write_results(wave, worker, range, attention, refused);
}

int64_t kv_head_of(const attnc_layer& layer, int64_t head) {
    return head / (layer.config.num_heads / layer.config.num_kv_heads);
}

KeyInterval visible_keys(const QueryRange& range) {
    return visible_keys(*range.item, range.row, range.last());
}

bool sees_all(const QueryRange& range, int64_t first, int64_t end) {
    // The first query the last key, the last one the first key.
    return range.row + range.item->last_key >= end && range.last() - 1 + range.item->first_key <= first;
}

KernelInterval kernel_interval(const Item& item, int64_t row, int64_t key) {
    const auto shifted = [&](int32_t bound) {
        return bound == kNoFirstKey || bound == kNoLastKey ? bound : moved(bound, row - key);
    };
    return {shifted(item.first_key), shifted(item.last_key)};
}

int32_t kernel_own_key(const Item& item, int64_t row, int64_t key) { return moved(item.own_key, row - key); }

HeadRows query_rows(const Wave& wave, const QueryRange& range) {
    if (!wave.plan.copies_q)
        return at_caller(wave.request.query, range.item->q_origin, range.head, range.row);
    return in_workspace(wave, wave.plan.q, range.head, wave.plan.rows_q, range.item->q_row + range.row,
                        wave.layer.qk_width);
}

RowStats kept_row_stats(const Wave& wave, const QueryRange& range) {
    const int64_t rows = wave.plan.rows_q;
    return {wave.at<float>(wave.plan.row_stats) + range.head * 2 * rows + range.item->q_row + range.row,
            rows};
}

WorkList attend_work(const Wave& wave) { return {pieces_of(wave), run_attend, nullptr}; }

WorkList empty_tails_work(const Wave& wave) {
    const Request& r = wave.request;
    const bool any = r.query_lengths.present || r.query_starts.present;
    return {any ? wave.item_count : 0, run_empty_tail, nullptr};
}

}  // namespace attnc
