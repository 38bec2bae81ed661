#include "runtime/probs.h"

#include <cstring>

#include "runtime/arithmetic.h"
#include "runtime/cache_rows.h"
#include "runtime/empty_rows.h"
#include "runtime/masks.h"
#include "runtime/score_arguments.h"

namespace attnc {
namespace {

void zero_columns(float* to, int64_t row_stride, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows && columns > 0; ++i)
        memset(to + i * row_stride, 0, static_cast<size_t>(columns) * sizeof(float));
}

struct KeySlice {
    HeadRows k;
    int64_t first, count;
    bool appended;
    KeyBlockMap blocks;
};

bool call_attend_probs(const Wave& wave, Worker& worker, const QueryRange& range, const RowStats& stats,
                       const KeySlice& keys, float* to, int64_t row_stride) {
    Buffer<2> row_stats_in = stats.buffer(range.rows);
    Buffer<2> probs(to, kFloat32, {{keys.count, 1}, {range.rows, row_stride}});
    const MaskArguments::Range slice = {range.row,  range.rows,    keys.first,
                                        keys.count, keys.appended, keys.blocks};
    ScoreArguments arguments(wave, range, keys.k, keys.count,
                             keys.appended ? kAllKeys : kernel_interval(*range.item, range.row, keys.first));
    KernelCall call;
    arguments.set(call);
    call.set(ATTNC_ARGUMENT_ROW_STATS_IN, row_stats_in);
    call.set(ATTNC_ARGUMENT_PROBS, probs);
    MaskArguments masks(wave, *range.item, range.head, slice);
    masks.set(call);
    return call.run(wave.layer.kernel(ATTNC_KERNEL_ATTEND_PROBS), worker.task);
}

void add_rows(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t rows,
              int64_t columns) {
    for (int64_t i = 0; i < rows; ++i) {
        float* __restrict a = to + i * to_stride;
        const float* __restrict b = from + i * from_stride;
        for (int64_t j = 0; j < columns; ++j) a[j] += b[j];
    }
}

void scale_rows(float* to, int64_t stride, int64_t rows, int64_t columns, float factor) {
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) to[i * stride + j] *= factor;
    }
}

float* averaged_rows(const Wave& wave, const QueryRange& range) {
    const OutView& out = wave.request.probs_averaged;
    return out.data + range.item->number * out.batch_stride + range.row * out.row_stride;
}

void average_from_probs(const Wave& wave, const QueryRange& range) {
    const OutView& probs = wave.request.probs;
    const int64_t stride = wave.request.probs_averaged.row_stride;
    const int64_t columns = wave.request.seq_kv + wave.layer.appended;
    float* to = averaged_rows(wave, range);
    for (int64_t head = 0; head < wave.layer.config.num_heads; ++head) {
        const float* from = probs.data + range.item->number * probs.batch_stride + head * probs.head_stride +
                            range.row * probs.row_stride;
        if (head > 0) {
            add_rows(to, stride, from, probs.row_stride, range.rows, columns);
            continue;
        }
        for (int64_t i = 0; i < range.rows; ++i) {
            memcpy(to + i * stride, from + i * probs.row_stride,
                   static_cast<size_t>(columns) * sizeof(float));
        }
    }
    scale_rows(to, stride, range.rows, columns, 1.0F / static_cast<float>(wave.layer.config.num_heads));
}

// Columns first .. last, or the appended ones: the first head's probabilities go straight to the output, the
// others' through the worker's memory.
bool average_columns(const Wave& wave, Worker& worker, const QueryRange& range, int64_t first, int64_t last,
                     bool appended) {
    const int64_t stride = wave.request.probs_averaged.row_stride;
    const int64_t columns = appended ? wave.layer.appended : last - first;
    const int64_t heads = wave.layer.config.num_heads;
    float* to = averaged_rows(wave, range) + (appended ? wave.request.seq_kv : first);
    float* scratch = worker.floats(wave.plan.worker_probs);
    for (int64_t head = 0; head < heads; ++head) {
        const QueryRange rows = {range.item, head, range.row, range.rows};
        const RowStats stats = kept_row_stats(wave, rows);
        float* part = head == 0 ? to : scratch;
        const int64_t part_stride = head == 0 ? stride : columns;
        const bool done = appended ? write_appended_probs(wave, worker, rows, stats, part, part_stride)
                                   : write_probs(wave, worker, rows, stats, first, last, part, part_stride);
        if (!done) return false;
        if (head > 0) add_rows(to, stride, scratch, columns, range.rows, columns);
    }
    scale_rows(to, stride, range.rows, columns, 1.0F / static_cast<float>(heads));
    return true;
}

int64_t average_ranges(const Wave& wave) {
    return (wave.request.seq_q + wave.plan.average_rows - 1) / wave.plan.average_rows;
}

bool run_average(const Wave& wave, const void*, Worker& worker, int64_t index, const char** refused) {
    const int64_t ranges = average_ranges(wave), rows = wave.plan.average_rows;
    const Item& item = wave.items[index / ranges];
    const int64_t row = index % ranges * rows;
    if (row >= item.q_length) return true;
    const QueryRange range = {&item, 0, row, least(rows, item.q_length - row)};
    if (wave.request.wants_probs) {
        average_from_probs(wave, range);
        return true;
    }
    *refused = "attend_probs";
    const int64_t keys = wave.request.seq_kv, block = wave.layer.layout.tile_kv;
    for (int64_t first = 0; first < keys; first += block) {
        if (!average_columns(wave, worker, range, first, least(first + block, keys), false)) return false;
    }
    return wave.layer.appended == 0 || average_columns(wave, worker, range, 0, 0, true);
}

}  // namespace

bool write_probs(const Wave& wave, Worker& worker, const QueryRange& range, const RowStats& stats,
                 int64_t first, int64_t last, float* to, int64_t row_stride) {
    const KeyInterval seen = visible_keys(range);
    const int64_t tile = wave.layer.layout.tile_kv, head = kv_head_of(wave.layer, range.head);
    const int64_t end = most(least(seen.end, last), first);
    const int64_t begin = least(most(seen.first / tile * tile, first), end);
    for (int64_t column = begin; column < end; column += tile) {
        const int64_t count = least(tile, end - column);
        const KeyBlockMap blocks = map_key_blocks(wave, worker, range, column, count);
        if (blocks.empty) {
            zero_columns(to + column - first, row_stride, range.rows, count);
            continue;
        }
        const KvRows rows =
            kv_rows(wave, worker, {range.item, head, column, count, most(column, seen.first), false, false});
        const KeySlice keys = {rows.k, column, count, false, blocks};
        if (!call_attend_probs(wave, worker, range, stats, keys, to + column - first, row_stride))
            return false;
    }
    zero_columns(to, row_stride, range.rows, begin - first);
    zero_columns(to + end - first, row_stride, range.rows, last - end);
    fill_empty_probs(wave, range, stats, first, last, to, row_stride);
    return true;
}

bool write_appended_probs(const Wave& wave, Worker& worker, const QueryRange& range, const RowStats& stats,
                          float* to, int64_t row_stride) {
    const attnc_layer& layer = wave.layer;
    const int64_t n = layer.appended;
    if (n == 0) return true;
    const int64_t head = kv_head_of(layer, range.head);
    const KeySlice keys = {{layer.appended_k + head * n * layer.qk_width, layer.qk_width}, 0, n, true, {}};
    return call_attend_probs(wave, worker, range, stats, keys, to, row_stride);
}

WorkList average_probs_work(const Wave& wave) {
    return {wave.request.wants_averaged ? wave.item_count * average_ranges(wave) : 0, run_average, nullptr};
}

}  // namespace attnc
