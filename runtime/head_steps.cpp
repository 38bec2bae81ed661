#include "runtime/head_steps.h"

#include "runtime/call.h"

namespace attnc {

bool run_head_steps(const attnc_layer& layer, const HeadSteps& steps, const HeadBlock& block,
                    int64_t first_row, attnc_task& task, const char** refused) {
    const int64_t width = layer.qk_width;
    const auto is_done = [&](KernelCall& call, int kernel, const char* name) {
        *refused = name;
        return call.run(layer.kernel(kernel), task);
    };
    Buffer<3> y(block.data, kFloat32, {{width, 1}, {block.rows, width}, {block.heads, block.head_stride}});
    if (steps.norm_weight != nullptr) {
        Buffer<3> x(block.data, kFloat32,
                    {{width, 1}, {block.rows, width}, {block.heads, block.head_stride}});
        Buffer<1> weight(steps.norm_weight, kFloat32, {{width, 1}});
        KernelCall call;
        call.set(ATTNC_ARGUMENT_INPUT, x);
        call.set(ATTNC_ARGUMENT_NORM_WEIGHT, weight);
        call.set(ATTNC_ARGUMENT_EPSILON, layer.norm_epsilon);
        call.set(ATTNC_ARGUMENT_Y, y);
        if (!is_done(call, ATTNC_KERNEL_NORM_HEADS, "norm_heads")) return false;
    }
    if (steps.angles.data != nullptr) {
        const AngleRows& a = steps.angles;
        const int64_t pairs = layer.rotary.pairs;
        Buffer<2> cos(a.cos(first_row), kFloat32, {{pairs, 1}, {block.rows, a.row_stride()}});
        Buffer<2> sin(a.sin(first_row), kFloat32, {{pairs, 1}, {block.rows, a.row_stride()}});
        KernelCall call;
        call.set(ATTNC_ARGUMENT_COS_TABLE, cos);
        call.set(ATTNC_ARGUMENT_SIN_TABLE, sin);
        call.set(ATTNC_ARGUMENT_Y, y);
        if (!is_done(call, ATTNC_KERNEL_ROTATE_HEADS, "rotate_heads")) return false;
    }
    return true;
}

}  // namespace attnc
