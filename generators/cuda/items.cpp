// fill_items: what the other kernels know of each item of a batch.
#include "schedules/cuda/items.h"

#include "generators/cuda/gpu_generator.h"
#include "stages/fill_items_gpu.h"

namespace attnc {
namespace {

using namespace Halide;

class FillItems : public GpuGenerator<FillItems> {
public:
    Input<Buffer<int32_t, 1>> query_lengths{"query_lengths"};    // (b)
    Input<Buffer<int32_t, 1>> key_lengths{"key_lengths"};        // (b)
    Input<Buffer<int32_t, 1>> causal_offsets{"causal_offsets"};  // (b)
    Input<Buffer<int32_t, 1>> query_starts{"query_starts"};      // (b + 1)
    Input<Buffer<int32_t, 1>> key_starts{"key_starts"};          // (b + 1)
    Input<int32_t> given{"given"};                               // ATTNC_GIVEN_*
    Input<int32_t> seq_q{"seq_q"};
    Input<int32_t> seq_kv{"seq_kv"};
    Input<int32_t> diagonal{"diagonal"};  // ATTNC_DIAGONAL_*
    Input<int32_t> window_left{"window_left"};
    Input<int32_t> window_right{"window_right"};
    Output<Buffer<int32_t, 2>> items{"items"};                // (c, b): ATTNC_ITEM_*
    Output<Buffer<int32_t, 1>> query_counts{"query_counts"};  // (b)
    Output<Buffer<int32_t, 1>> key_counts{"key_counts"};      // (b)

    void generate() {
        any_strides(query_lengths);
        any_strides(key_lengths);
        any_strides(causal_offsets);
        any_strides(query_starts);
        any_strides(key_starts);
        item_columns(items);
        const Expr item_count = items.dim(1).extent();
        from_zero(query_counts);
        from_zero(key_counts);
        query_counts.dim(0).set_bounds(0, item_count);
        key_counts.dim(0).set_bounds(0, item_count);
        const FillItemsGpu stage({.query_lengths = query_lengths,
                                  .key_lengths = key_lengths,
                                  .causal_offsets = causal_offsets,
                                  .query_starts = query_starts,
                                  .key_starts = key_starts,
                                  .given = given,
                                  .item_count = item_count,
                                  .seq_q = seq_q,
                                  .seq_kv = seq_kv,
                                  .diagonal = diagonal,
                                  .window_left = window_left,
                                  .window_right = window_right});
        const Var c("c");
        std::vector<Expr> columns;
        columns.reserve(ATTNC_ITEM_COLUMNS);
        for (int column = 0; column < ATTNC_ITEM_COLUMNS; ++column) columns.push_back(stage.number(column));
        items(c, stage.b) = mux(c, columns);
        query_counts(stage.b) = stage.number(ATTNC_ITEM_QUERIES);
        key_counts(stage.b) = stage.number(ATTNC_ITEM_KEYS);
        schedule_fill_items_gpu(items, {query_counts, key_counts});
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_GPU_KERNEL(attnc::FillItems, fill_items)
