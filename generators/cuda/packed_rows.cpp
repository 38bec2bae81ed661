// What rows of a packed batch need of their own. fill_positions: positions for rotations. clear_rows: zeros in the output.
#include "schedules/cuda/packed_rows.h"

#include "generators/cuda/gpu_generator.h"

namespace attnc {
namespace {

using namespace Halide;

class FillPositions : public GpuGenerator<FillPositions> {
public:
    Input<Buffer<int32_t, 1>> starts{"starts"};                      // (b + 1)
    Input<Buffer<int32_t, 1>> position_offsets{"position_offsets"};  // (b)
    Input<int32_t> given{"given"};                                   // ATTNC_GIVEN_*
    Input<int32_t> seq{"seq"};
    Output<Buffer<int32_t, 1>> row_positions{"row_positions"};  // (m)

    void generate() {
        any_strides(starts);
        any_strides(position_offsets);
        from_zero(row_positions);
        const FillPositionsGpu stage(row_positions, {.starts = starts,
                                                     .position_offsets = position_offsets,
                                                     .given = given,
                                                     .seq = seq,
                                                     .item_count = position_offsets.dim(0).extent(),
                                                     .row_count = row_positions.dim(0).extent()});
        schedule_fill_positions_gpu(stage, row_positions);
    }
};

class ClearRows : public GpuGenerator<ClearRows> {
public:
    Input<Buffer<int32_t, 2>> items{"items"};  // (c, b): ATTNC_ITEM_*
    Input<int32_t> seq_q{"seq_q"};
    Output<Buffer<float, 2>> out{"out"};  // (n, m)

    void generate() {
        item_columns(items);
        from_zero(out);
        const ClearRowsGpu stage(out, items, out.dim(0).extent(), out.dim(1).extent(), seq_q);
        schedule_clear_rows_gpu(stage, out);
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_GPU_KERNEL(attnc::FillPositions, fill_positions)
ATTNC_REGISTER_GPU_KERNEL(attnc::ClearRows, clear_rows)
