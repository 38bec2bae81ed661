// split_heads, merge_heads: heads of all tokens of a batch.
#include "schedules/cuda/heads.h"

#include "generators/cuda/gpu_generator.h"
#include "stages/heads_gpu.h"

namespace attnc {
namespace {

using namespace Halide;

class SplitHeads : public GpuGenerator<SplitHeads> {
public:
    Input<Buffer<float, 4>> x{"x"};                // (d, i, h, b)
    Input<Buffer<int32_t, 1>> lengths{"lengths"};  // (b)
    Output<Buffer<float, 3>> y{"y"};               // (d, m, h)

    void generate() {
        from_zero(x);
        from_zero(lengths);
        lengths.dim(0).set_bounds(0, x.dim(3).extent());
        from_zero(y);
        y.dim(1).set_bounds(0, x.dim(1).extent() * x.dim(3).extent());
        y.dim(2).set_bounds(0, x.dim(2).extent());
        const Var d("d"), m("m"), h("h");
        y(d, m, h) = split_heads_gpu(x, x.dim(0).extent(), x.dim(1).extent(), lengths, d, m, h);
        schedule_split_heads_gpu(y);
    }
};

class MergeHeads : public GpuGenerator<MergeHeads> {
public:
    Input<Buffer<float, 3>> context{"context"};    // (d, h, m)
    Input<Buffer<int32_t, 1>> lengths{"lengths"};  // (b)
    Output<Buffer<float, 4>> out{"out"};           // (d, i, h, b)

    void generate() {
        from_zero(context);
        from_zero(lengths);
        from_zero(out);
        out.dim(2).set_bounds(0, context.dim(1).extent());
        out.dim(3).set_bounds(0, lengths.dim(0).extent());
        const Var d("d"), i("i"), h("h"), b("b");
        out(d, i, h, b) = merge_heads_gpu(context, out.dim(1).extent(), lengths, d, i, h, b);
        schedule_merge_heads_gpu(out);
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_GPU_KERNEL(attnc::SplitHeads, split_heads)
ATTNC_REGISTER_GPU_KERNEL(attnc::MergeHeads, merge_heads)
