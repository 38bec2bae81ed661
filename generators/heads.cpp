// split_heads, merge_heads: copies between tokens and padded heads.
#include "schedules/cpu/heads.h"

#include "generators/library_generator.h"
#include "generators/register_kernel.h"
#include "stages/heads.h"

namespace attnc {
namespace {

using namespace Halide;

class SplitHeads : public LibraryGenerator<SplitHeads> {
public:
    Input<Buffer<float, 3>> x{"x"};   // (d, m, h)
    Output<Buffer<float, 3>> y{"y"};  // (d, m, h)

    void generate() {
        from_zero(x);
        from_zero(y);
        const Var d("d"), m("m"), h("h");
        y(d, m, h) = split_heads(x, x.dim(0).extent(), d, m, h);
        schedule_copy(y, d, get_target());
    }
};

class MergeHeads : public LibraryGenerator<MergeHeads> {
public:
    Input<Buffer<float, 3>> x{"x"};   // (d, m, h)
    Output<Buffer<float, 3>> y{"y"};  // (d, m, h)

    void generate() {
        from_zero(x);
        from_zero(y);
        const Var d("d"), m("m"), h("h");
        y(d, m, h) = merge_heads(x, d, m, h);
        schedule_copy(y, d, get_target());
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_KERNEL(attnc::SplitHeads, split_heads)
ATTNC_REGISTER_KERNEL(attnc::MergeHeads, merge_heads)
