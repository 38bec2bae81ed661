// attend_decode: few queries of all heads of a group over one split of keys.
#include "schedules/cpu/decode.h"

#include "generators/library_generator.h"
#include "generators/register_kernel.h"
#include "stages/attention_decode.h"

namespace attnc {
namespace {

using namespace Halide;

class AttendDecode : public LibraryGenerator<AttendDecode> {
public:
    Input<Buffer<float, 3>> q{"q"};                  // (d, i, g)
    Input<Buffer<float, 2>> k{"k"};                  // (d, row)
    Input<Buffer<float, 2>> v{"v"};                  // (d, row)
    Input<Buffer<int32_t, 1>> key_rows{"key_rows"};  // (run)
    Input<int32_t> keys{"keys"};
    Input<float> qk_scale{"qk_scale"};
    Input<int32_t> first_key{"first_key"};
    Input<int32_t> last_key{"last_key"};
    Input<int32_t> ask_ahead{"ask_ahead"};
    Input<Buffer<float, 1>> key_bias{"key_bias"};      // (j)
    Input<Buffer<float, 3>> bias{"bias"};              // (j, i, g)
    Input<Buffer<uint8_t, 3>> keep_mask{"keep_mask"};  // (j, i, g)
    Input<Buffer<uint8_t, 3>> drop_mask{"drop_mask"};  // (j, i, g)
    Input<int32_t> mask_flags{"mask_flags"};
    Output<Buffer<float, 3>> context{"context"};      // (d, i, g)
    Output<Buffer<float, 3>> row_stats{"row_stats"};  // (i, g, c)

    void configure() {
        const KernelConfig kernel = kernel_config();
        if (kernel.softcap) softcap = add_input<float>("softcap");
        if (kernel.alibi) {
            alibi_slopes = add_input<Buffer<float, 1>>("alibi_slopes");  // (g)
            own_key = add_input<int32_t>("own_key");
        }
    }

    void generate() {
        const KernelConfig kernel = kernel_config();
        const CpuSchedule chosen = cpu_schedule();
        from_zero(q, kernel.head_dim);
        from_zero(k, kernel.head_dim);
        from_zero(v, kernel.v_head_dim);
        v.dim(1).set_bounds(0, k.dim(1).extent());
        from_zero(key_rows);
        any_strides(key_bias);
        any_strides(bias);
        any_strides(keep_mask);
        any_strides(drop_mask);
        from_zero(context, kernel.v_head_dim);
        from_zero(row_stats);
        row_stats.dim(2).set_bounds(0, kRowStats);
        for (int dim : {1, 2}) {
            context.dim(dim).set_bounds(0, q.dim(dim).extent());
            row_stats.dim(dim - 1).set_bounds(0, q.dim(dim).extent());
        }
        DecodeInputs in;
        in.q = q;
        in.k = k;
        in.v = v;
        in.key_rows = key_rows;
        in.pool_rows = k.dim(1).extent();
        in.runs = key_rows.dim(0).extent();
        in.keys = keys;
        in.qk_scale = qk_scale;
        in.first_key = first_key;
        in.last_key = last_key;
        in.queries = q.dim(1).extent();
        in.heads = q.dim(2).extent();
        in.head_dim = static_cast<int>(kernel.head_dim);
        in.ask_ahead = ask_ahead;
        in.k_memory = rows_of(k);
        in.split_kv = static_cast<int>(chosen.layout.split_kv);
        in.masks.key_bias = key_bias;
        in.masks.bias = bias;
        in.masks.keep_mask = keep_mask;
        in.masks.drop_mask = drop_mask;
        in.masks.flags = mask_flags;
        if (kernel.softcap) in.masks.softcap = *softcap;
        if (kernel.alibi) {
            from_zero(*alibi_slopes);
            in.masks.alibi_slopes = *alibi_slopes;
            in.masks.own_key = *own_key;
        }

        const DecodeParams& params = chosen.params.attend_decode;
        AttentionDecode stage(in, decode_tile(params, in.head_dim, get_target()));
        context(stage.d, stage.i, stage.g) = stage.context(stage.d, stage.i, stage.g);
        row_stats(stage.i, stage.g, stage.c) = stage.row_stats(stage.i, stage.g, stage.c);
        schedule_decode(stage, context, row_stats, params, in.head_dim, static_cast<int>(kernel.v_head_dim),
                        in.split_kv);
    }

private:
    Input<float>* softcap = nullptr;
    Input<Buffer<float, 1>>* alibi_slopes = nullptr;
    Input<int32_t>* own_key = nullptr;
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_KERNEL(attnc::AttendDecode, attend_decode)
