// Masks of a call in the forms that attention takes. fill_key_bias: all that is per key as one number to add. fill_key_blocks:
// blocks of any size as granules of 16 x 16.
#include "schedules/cuda/key_masks.h"

#include "generators/cuda/gpu_generator.h"
#include "stages/key_masks_gpu.h"

namespace attnc {
namespace {

using namespace Halide;

class FillKeyBias : public GpuGenerator<FillKeyBias> {
public:
    Input<Buffer<float, 2>> bias{"bias"};                      // (j, b)
    Input<Buffer<float, 2>> key_bias_in{"key_bias_in"};        // (j, b)
    Input<Buffer<uint8_t, 2>> keep_mask{"keep_mask"};          // (j, b)
    Input<Buffer<uint8_t, 2>> key_keep_mask{"key_keep_mask"};  // (j, b)
    Input<Buffer<uint8_t, 2>> drop_mask{"drop_mask"};          // (j, b)
    Input<Buffer<uint8_t, 2>> key_drop_mask{"key_drop_mask"};  // (j, b)
    Input<int32_t> given{"given"};                             // ATTNC_GIVEN_*
    Output<Buffer<float, 2>> key_bias{"key_bias"};             // (j, b)

    void generate() {
        from_zero(key_bias);
        any_strides(bias);
        any_strides(key_bias_in);
        any_strides(keep_mask);
        any_strides(key_keep_mask);
        any_strides(drop_mask);
        any_strides(key_drop_mask);
        const FillKeyBiasGpu stage({.bias = bias,
                                    .key_bias = key_bias_in,
                                    .keep_mask = keep_mask,
                                    .key_keep_mask = key_keep_mask,
                                    .drop_mask = drop_mask,
                                    .key_drop_mask = key_drop_mask,
                                    .given = given});
        key_bias(stage.j, stage.b) = stage.addend();
        schedule_key_table_gpu(key_bias);
    }
};

class FillKeyBlocks : public GpuGenerator<FillKeyBlocks> {
public:
    Input<Buffer<uint8_t, 4>> block_keep_mask{"block_keep_mask"};  // (kb, qb, h, b)
    Input<int32_t> block_q{"block_q"};
    Input<int32_t> block_kv{"block_kv"};
    Output<Buffer<uint8_t, 4>> key_blocks{"key_blocks"};  // (jb, ib, h, b)

    void generate() {
        any_strides(block_keep_mask);
        from_zero(key_blocks);
        const FillKeyBlocksGpu stage({.block_keep_mask = block_keep_mask,
                                      .key_blocks = block_keep_mask.dim(0).extent(),
                                      .query_blocks = block_keep_mask.dim(1).extent(),
                                      .block_q = block_q,
                                      .block_kv = block_kv});
        key_blocks(stage.jb, stage.ib, stage.h, stage.b) = stage.granule();
        schedule_fill_key_blocks_gpu(key_blocks);
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_GPU_KERNEL(attnc::FillKeyBias, fill_key_bias)
ATTNC_REGISTER_GPU_KERNEL(attnc::FillKeyBlocks, fill_key_blocks)
