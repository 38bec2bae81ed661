// What keeps a cache. fill_cache and keep_lengths: keys of items before and after a call. fill_runs: where they lie.
// append_rows: new ones on their way there.
#include "schedules/cuda/cache.h"

#include "generators/cuda/gpu_generator.h"
#include "schedules/cuda/key_masks.h"

namespace attnc {
namespace {

using namespace Halide;

class FillCache : public GpuGenerator<FillCache> {
public:
    Input<Buffer<int32_t, 1>> cache_lengths{"cache_lengths"};  // (n)
    Input<Buffer<int32_t, 1>> cache_slots{"cache_slots"};      // (b)
    Input<Buffer<int32_t, 1>> key_lengths{"key_lengths"};      // (b)
    Input<int32_t> given{"given"};                             // ATTNC_GIVEN_*
    Input<int32_t> seq{"seq"};
    Input<int32_t> max_keys{"max_keys"};
    Input<int32_t> slots{"slots"};
    Output<Buffer<int32_t, 1>> held{"held"};            // (b)
    Output<Buffer<int32_t, 1>> counts{"counts"};        // (b)
    Output<Buffer<int32_t, 1>> slots_out{"slots_out"};  // (b)

    void generate() {
        any_strides(cache_lengths);
        any_strides(cache_slots);
        any_strides(key_lengths);
        from_zero(held);
        from_zero(counts);
        from_zero(slots_out);
        const Expr item_count = held.dim(0).extent();
        counts.dim(0).set_bounds(0, item_count);
        slots_out.dim(0).set_bounds(0, item_count);
        const FillCacheGpu stage({.cache_lengths = cache_lengths,
                                  .cache_slots = cache_slots,
                                  .key_lengths = key_lengths,
                                  .given = given,
                                  .seq = seq,
                                  .max_keys = max_keys,
                                  .slots = slots});
        held(stage.b) = stage.held;
        counts(stage.b) = stage.count;
        slots_out(stage.b) = stage.slot;
        schedule_fill_cache_gpu({held, counts, slots_out});
    }
};

class FillRuns : public GpuGenerator<FillRuns> {
public:
    Input<Buffer<int32_t, 2>> items{"items"};              // (c, b): ATTNC_ITEM_*
    Input<Buffer<int32_t, 1>> counts{"counts"};            // (b)
    Input<Buffer<int32_t, 1>> cache_slots{"cache_slots"};  // (b)
    Input<Buffer<int32_t, 2>> block_table{"block_table"};  // (p, b)
    Input<int32_t> given{"given"};                         // ATTNC_GIVEN_*
    Input<int32_t> slot_rows{"slot_rows"};
    Input<int32_t> capacity{"capacity"};
    Input<int32_t> page_size{"page_size"};
    Input<int32_t> pages{"pages"};
    Output<Buffer<int32_t, 2>> key_runs{"key_runs"};  // (r, b)

    void generate() {
        item_columns(items);
        from_zero(counts);
        from_zero(cache_slots);
        any_strides(block_table);
        from_zero(key_runs);
        const FillRunsGpu stage({.items = items,
                                 .counts = counts,
                                 .cache_slots = cache_slots,
                                 .block_table = block_table,
                                 .given = given,
                                 .slot_rows = slot_rows,
                                 .capacity = capacity,
                                 .page_size = page_size,
                                 .pages = pages});
        key_runs(stage.r, stage.b) = stage.row();
        schedule_key_table_gpu(key_runs);
    }
};

class AppendRows : public GpuGenerator<AppendRows> {
public:
    Input<Buffer<float, 3>> x{"x"};                      // (d, m, h)
    Input<Buffer<int32_t, 1>> first_rows{"first_rows"};  // (b)
    Input<Buffer<int32_t, 1>> held{"held"};              // (b)
    Input<Buffer<int32_t, 1>> counts{"counts"};          // (b)
    Input<Buffer<int32_t, 2>> key_runs{"key_runs"};      // (r, b)
    Input<int32_t> seq{"seq"};
    Output<Buffer<float, 3>> y{"y"};  // (d, n, h)

    void generate() {
        from_zero(x);
        any_strides(first_rows);
        from_zero(held);
        from_zero(counts);
        from_zero(key_runs);
        from_zero(y);
        first_rows.dim(0).set_bounds(0, counts.dim(0).extent());
        held.dim(0).set_bounds(0, counts.dim(0).extent());
        key_runs.dim(1).set_bounds(0, counts.dim(0).extent());
        y.dim(0).set_bounds(0, x.dim(0).extent());
        y.dim(2).set_bounds(0, x.dim(2).extent());
        const AppendRowsGpu stage(y, {.x = x,
                                      .features = x.dim(0).extent(),
                                      .x_rows = x.dim(1).extent(),
                                      .first_rows = first_rows,
                                      .held = held,
                                      .counts = counts,
                                      .key_runs = key_runs,
                                      .seq = seq,
                                      .y_rows = y.dim(1).extent()});
        schedule_append_rows_gpu(stage, y);
    }
};

class KeepLengths : public GpuGenerator<KeepLengths> {
public:
    Input<Buffer<int32_t, 1>> counts{"counts"};            // (b)
    Input<Buffer<int32_t, 1>> cache_slots{"cache_slots"};  // (b)
    Input<int32_t> capacity{"capacity"};                   // of a ring, else 0
    Output<Buffer<int32_t, 1>> kept{"kept"};               // (n)

    void generate() {
        from_zero(counts);
        from_zero(cache_slots);
        cache_slots.dim(0).set_bounds(0, counts.dim(0).extent());
        from_zero(kept);
        const KeepLengthsGpu stage(kept, counts, cache_slots, kept.dim(0).extent(), capacity);
        schedule_keep_lengths_gpu(stage, kept);
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_GPU_KERNEL(attnc::FillCache, fill_cache)
ATTNC_REGISTER_GPU_KERNEL(attnc::FillRuns, fill_runs)
ATTNC_REGISTER_GPU_KERNEL(attnc::AppendRows, append_rows)
ATTNC_REGISTER_GPU_KERNEL(attnc::KeepLengths, keep_lengths)
