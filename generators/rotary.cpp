// norm_heads, rotate_heads, rotary_angles: heads of q and k between projection and attention.
#include "stages/rotary.h"

#include "generators/library_generator.h"
#include "generators/register_kernel.h"
#include "schedules/cpu/heads.h"
#include "stages/norm.h"

namespace attnc {
namespace {

using namespace Halide;

class NormHeads : public LibraryGenerator<NormHeads> {
public:
    Input<Buffer<float, 3>> x{"x"};                      // (d, m, h)
    Input<Buffer<float, 1>> norm_weight{"norm_weight"};  // (d)
    Input<float> epsilon{"epsilon"};
    Output<Buffer<float, 3>> y{"y"};  // (d, m, h)

    void generate() {
        const auto head_dim = static_cast<int>(kernel_config().head_dim);
        from_zero(x, head_dim);
        from_zero(norm_weight, head_dim);
        from_zero(y, head_dim);
        HeadNorm stage(x, epsilon, head_dim);
        y(stage.d, stage.m, stage.h) = stage.y(x, norm_weight);
        schedule_norm_heads(stage, y, head_dim, get_target());
    }
};

class RotateHeads : public LibraryGenerator<RotateHeads> {
public:
    Input<Buffer<float, 2>> cos_table{"cos_table"};  // (r, m)
    Input<Buffer<float, 2>> sin_table{"sin_table"};  // (r, m)
    Output<Buffer<float, 3>> y{"y"};                 // (d, m, h)

    void generate() {
        const Rotary layout = kernel_config().rotary_pairs ? Rotary::kPairs : Rotary::kHalf;
        from_zero(cos_table);
        from_zero(sin_table);
        from_zero(y);
        const Rotation stage(y, cos_table, sin_table, cos_table.dim(0).extent(), layout);
        schedule_rotate_heads(stage, y, get_target());
    }
};

class RotaryAnglesOfRows : public LibraryGenerator<RotaryAnglesOfRows> {
public:
    Input<Buffer<int32_t, 1>> positions{"positions"};       // (m)
    Input<Buffer<uint64_t, 1>> frequencies{"frequencies"};  // (r)
    Input<double> magnitude{"magnitude"};
    Output<Buffer<float, 2>> cos_table{"cos_table"};  // (r, m)
    Output<Buffer<float, 2>> sin_table{"sin_table"};  // (r, m)

    void generate() {
        from_zero(positions);
        from_zero(frequencies);
        from_zero(cos_table);
        from_zero(sin_table);
        const Var r("r"), m("m");
        const RotaryAngles angles(positions(m), frequencies(r), magnitude);
        cos_table(r, m) = angles.cosine;
        sin_table(r, m) = angles.sine;
        schedule_rotary_angles(cos_table, r, get_target());
        schedule_rotary_angles(sin_table, r, get_target());
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_KERNEL(attnc::NormHeads, norm_heads)
ATTNC_REGISTER_KERNEL(attnc::RotateHeads, rotate_heads)
ATTNC_REGISTER_KERNEL(attnc::RotaryAnglesOfRows, rotary_angles)
