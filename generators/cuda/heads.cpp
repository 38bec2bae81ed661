// split_heads, merge_heads, norm_heads, rotate_heads, and the tables of angles: heads of all tokens of a batch.
#include "schedules/cuda/heads.h"

#include "generators/cuda/gpu_generator.h"
#include "stages/heads_gpu.h"
#include "stages/norm.h"
#include "stages/rotary_gpu.h"

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

class NormHeads : public GpuGenerator<NormHeads> {
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
        // The last block of threads has more rows than there are.
        const Var d("d"), m("m"), h("h");
        Func rows("rows");
        rows(d, m, h) = x(d, min(m, x.dim(1).extent() - 1), h);
        HeadNorm stage(rows, epsilon, head_dim);
        y(stage.d, stage.m, stage.h) = stage.y(x, norm_weight);
        schedule_norm_heads_gpu(stage, y, head_dim);
    }
};

class RotateHeads : public GpuGenerator<RotateHeads> {
public:
    Input<Buffer<float, 2>> cos_table{"cos_table"};  // (r, m)
    Input<Buffer<float, 2>> sin_table{"sin_table"};  // (r, m)
    Input<Buffer<float, 3>> x{"x"};                  // (d, m, h)
    Output<Buffer<float, 3>> y{"y"};                 // (d, m, h)

    void generate() {
        from_zero(cos_table);
        from_zero(sin_table);
        from_zero(x);
        from_zero(y);
        y.dim(0).set_bounds(0, x.dim(0).extent());
        const Rotary layout = kernel_config().rotary_pairs ? Rotary::kPairs : Rotary::kHalf;
        const RotationGpu stage(y, x, cos_table, sin_table, cos_table.dim(0).extent(), x.dim(0).extent(),
                                layout);
        schedule_rotate_heads_gpu(stage, y);
    }
};

// Tables of cosines and sines, a row for each row of a batch.
template <typename T>
class GpuTables : public GpuGenerator<T> {
public:
    template <typename U>
    using In = typename GpuGenerator<T>::template Input<U>;

    In<Buffer<int32_t, 2>> positions{"positions"};                // (i, b)
    In<Buffer<int32_t, 1>> position_offsets{"position_offsets"};  // (b)
    In<int32_t> given{"given"};                                   // ATTNC_GIVEN_*
    In<int32_t> first_row{"first_row"};

protected:
    Expr position(const Var& m) {
        this->any_strides(positions);
        this->any_strides(position_offsets);
        const Expr items = positions.dim(1).extent();
        position_offsets.dim(0).set_bounds(0, items);
        return row_position(positions, position_offsets, given, first_row, positions.dim(0).extent(), items,
                            m);
    }

    // table (r, m), one of two that are equal in size.
    template <typename Table>
    void table_of_rows(Table& table, const Expr& pairs) {
        this->from_zero(table);
        table.dim(0).set_bounds(0, pairs);
        table.dim(1).set_bounds(0, positions.dim(0).extent() * positions.dim(1).extent());
    }
};

class RotaryAnglesOfRows : public GpuTables<RotaryAnglesOfRows> {
public:
    Input<Buffer<uint64_t, 1>> frequencies{"frequencies"};  // (r)
    Input<double> magnitude{"magnitude"};
    Output<Buffer<float, 2>> cos_table{"cos_table"};  // (r, m)
    Output<Buffer<float, 2>> sin_table{"sin_table"};  // (r, m)

    void generate() {
        from_zero(frequencies);
        table_of_rows(cos_table, frequencies.dim(0).extent());
        table_of_rows(sin_table, frequencies.dim(0).extent());
        const Var r("r"), m("m");
        const RotaryAngles angles(position(m), frequencies(r), magnitude, double_constant_gpu(get_target()));
        cos_table(r, m) = angles.cosine;
        sin_table(r, m) = angles.sine;
        schedule_tables_gpu(cos_table, sin_table);
    }
};

class RotaryRows : public GpuTables<RotaryRows> {
public:
    Input<Buffer<float, 2>> table_cos{"table_cos"};   // (r, t)
    Input<Buffer<float, 2>> table_sin{"table_sin"};   // (r, t)
    Output<Buffer<float, 2>> cos_table{"cos_table"};  // (r, m)
    Output<Buffer<float, 2>> sin_table{"sin_table"};  // (r, m)

    void generate() {
        from_zero(table_cos);
        from_zero(table_sin);
        table_of_rows(cos_table, table_cos.dim(0).extent());
        table_of_rows(sin_table, table_cos.dim(0).extent());
        for (const int dim : {0, 1}) table_sin.dim(dim).set_bounds(0, table_cos.dim(dim).extent());
        const Var r("r"), m("m");
        const Expr row = cast<int>(clamp(position(m), 0, table_cos.dim(1).extent() - 1));
        cos_table(r, m) = table_cos(r, row);
        sin_table(r, m) = table_sin(r, row);
        schedule_tables_gpu(cos_table, sin_table);
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_GPU_KERNEL(attnc::SplitHeads, split_heads)
ATTNC_REGISTER_GPU_KERNEL(attnc::MergeHeads, merge_heads)
ATTNC_REGISTER_GPU_KERNEL(attnc::NormHeads, norm_heads)
ATTNC_REGISTER_GPU_KERNEL(attnc::RotateHeads, rotate_heads)
ATTNC_REGISTER_GPU_KERNEL(attnc::RotaryAnglesOfRows, rotary_angles)
ATTNC_REGISTER_GPU_KERNEL(attnc::RotaryRows, rotary_rows)
