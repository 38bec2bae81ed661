// Projections on a GPU: rows and columns that tiles overhang, inner features that steps overhang, lengths, groups of heads.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "project_heads_48.h"
#include "project_heads_64.h"
#include "project_heads_64_shared.h"
#include "project_out.h"
#include "project_out_shared.h"
#include "support/tolerance.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

using Floats = Halide::Runtime::Buffer<float>;
using Kernel = int (*)(halide_buffer_t*, halide_buffer_t*, halide_buffer_t*, halide_buffer_t*, int32_t,
                       halide_buffer_t*);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Layer {
    int depth, columns, panel, step;  // inner features are filled up to whole steps
    int head;                         // 0: columns are stored side by side
    std::vector<int> lengths;
    int seq;

    int rows() const { return seq * static_cast<int>(lengths.size()); }
};

struct Operands {
    Floats x, weights, bias;
    Halide::Runtime::Buffer<int32_t> lengths;
};

Operands operands_of(const Layer& layer) {
    const int panels = (layer.columns + layer.panel - 1) / layer.panel;
    const int padded = (layer.depth + layer.step - 1) / layer.step * layer.step;
    Operands made = {.x = random_floats({layer.depth, layer.rows()}, 1, 1),
                     .weights = random_floats({layer.panel, padded, panels}, 2, 1),
                     .bias = random_floats({layer.panel, panels}, 3, 1),
                     .lengths = Halide::Runtime::Buffer<int32_t>(static_cast<int>(layer.lengths.size()))};
    for (int k = layer.depth; k < padded; ++k) {
        for (int p = 0; p < panels; ++p) {
            for (int n = 0; n < layer.panel; ++n) made.weights(n, k, p) = 0;
        }
    }
    for (size_t item = 0; item < layer.lengths.size(); ++item) {
        made.lengths(static_cast<int>(item)) = layer.lengths[item];
        // What doesn't count holds anything.
        for (int row = layer.lengths[item]; row < layer.seq; ++row) {
            for (int k = 0; k < layer.depth; ++k) made.x(k, static_cast<int>(item) * layer.seq + row) = kNan;
        }
    }
    made.x.set_host_dirty();
    made.weights.set_host_dirty();
    made.bias.set_host_dirty();
    made.lengths.set_host_dirty();
    return made;
}

Floats output_of(const Layer& layer) {
    if (layer.head == 0) return filled<float, Halide::Runtime::AnyDims>({layer.columns, layer.rows()}, kNan);
    return filled<float, Halide::Runtime::AnyDims>({layer.head, layer.rows(), layer.columns / layer.head},
                                                   kNan);
}

Floats run(Kernel kernel, const Layer& layer) {
    Operands operands = operands_of(layer);
    Floats out = output_of(layer);
    EXPECT_EQ(kernel(operands.x, operands.weights, operands.bias, operands.lengths, layer.seq, out), 0);
    EXPECT_EQ(out.copy_to_host(), 0);
    return out;
}

// Largest error in units of the bound.
void expect_exact(Kernel kernel, const Layer& layer) {
    Operands operands = operands_of(layer);
    const Floats out = run(kernel, layer);
    for (int row = 0; row < layer.rows(); ++row) {
        const bool counts = row % layer.seq < layer.lengths[static_cast<size_t>(row / layer.seq)];
        for (int column = 0; column < layer.columns; ++column) {
            const float got =
                layer.head == 0 ? out(column, row) : out(column % layer.head, row, column / layer.head);
            if (!counts) {
                ASSERT_EQ(got, 0.0F) << "row " << row << " column " << column << " does not count";
                continue;
            }
            RunningDot want(operands.bias(column % layer.panel, column / layer.panel));
            for (int k = 0; k < layer.depth; ++k) {
                want.add(operands.x(k, row), operands.weights(column % layer.panel, k, column / layer.panel));
            }
            ASSERT_LE(std::fabs(double{got} - want.value()), want.error_bound())
                << "row " << row << " column " << column;
        }
    }
}

const Layer kHeads64[] = {
    {.depth = 64, .columns = 192, .panel = 128, .step = 32, .head = 64, .lengths = {50}, .seq = 50},
    {.depth = 19, .columns = 64, .panel = 128, .step = 32, .head = 64, .lengths = {1}, .seq = 1},
    {.depth = 100, .columns = 320, .panel = 128, .step = 32, .head = 64, .lengths = {7, 0, 65, 3}, .seq = 65},
    {.depth = 33, .columns = 128, .panel = 128, .step = 32, .head = 64, .lengths = {129, 1}, .seq = 129}};
const Layer kHeads48[] = {
    {.depth = 20, .columns = 144, .panel = 64, .step = 8, .head = 48, .lengths = {5, 33}, .seq = 33}};
const Layer kOut[] = {
    {.depth = 64, .columns = 100, .panel = 128, .step = 32, .head = 0, .lengths = {13, 50}, .seq = 50},
    {.depth = 37, .columns = 131, .panel = 128, .step = 32, .head = 0, .lengths = {70}, .seq = 70}};

TEST(GpuProjection, HeadsAgreeWithFloat64) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const Layer& layer : kHeads64) expect_exact(project_heads_64, layer);
}

TEST(GpuProjection, OtherTilesAndHeadsAgreeToo) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const Layer& layer : kHeads48) expect_exact(project_heads_48, layer);
}

TEST(GpuProjection, OutAgreesWithFloat64) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const Layer& layer : kOut) expect_exact(project_out, layer);
}

TEST(GpuProjection, HeadsHaveTheSameBitsWithoutARace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const Layer& layer : kHeads64) {
        EXPECT_TRUE(same_bits(run(project_heads_64, layer), run(project_heads_64_shared, layer)));
    }
}

TEST(GpuProjection, OutHasTheSameBitsWithoutARace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const Layer& layer : kOut) {
        EXPECT_TRUE(same_bits(run(project_out, layer), run(project_out_shared, layer)));
    }
}

}  // namespace
}  // namespace attnc::test
