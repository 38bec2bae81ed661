// Kernels between projections and attention, on whole batches: copies between tokens and heads, normalisation, rotation and
// its angles.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "merge_heads.h"
#include "norm_heads_64.h"
#include "rotary_angles.h"
#include "rotary_rows.h"
#include "rotate_heads.h"
#include "rotate_heads_pairs.h"
#include "runtime/device_abi.h"
#include "split_heads.h"
#include "support/random.h"
#include "support/tolerance.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

using Floats = Halide::Runtime::Buffer<float>;
using Ints = Halide::Runtime::Buffer<int32_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kHeadAlign = 16;

struct Tokens {
    int features, seq, heads;
    std::vector<int> lengths;

    int items() const { return static_cast<int>(lengths.size()); }
    int rows() const { return seq * items(); }
    int padded() const { return (features + kHeadAlign - 1) / kHeadAlign * kHeadAlign; }
    bool counts(int query, int item) const { return query < lengths[static_cast<size_t>(item)]; }
};

const Tokens kTokens[] = {{.features = 64, .seq = 33, .heads = 2, .lengths = {33}},
                          {.features = 50, .seq = 9, .heads = 3, .lengths = {9, 0, 4}},
                          {.features = 7, .seq = 1, .heads = 1, .lengths = {1, 0}},
                          {.features = 20, .seq = 17, .heads = 5, .lengths = {0, 16}}};

Ints table_of(const std::vector<int>& values) {
    Ints made(std::vector<int>{static_cast<int>(values.size())});
    for (size_t n = 0; n < values.size(); ++n) made(static_cast<int>(n)) = values[n];
    made.set_host_dirty();
    return made;
}

// (d, i, h, b), in memory of rows of merged heads with `gap` floats between them.
class MergedHeads {
public:
    MergedHeads(const Tokens& tokens, int gap, float value) {
        const int row = tokens.features * tokens.heads + gap;
        memory_.assign(static_cast<size_t>(row * tokens.rows()), value);
        const halide_dimension_t shape[] = {{0, tokens.features, 1},
                                            {0, tokens.seq, row},
                                            {0, tokens.heads, tokens.features},
                                            {0, tokens.items(), row * tokens.seq}};
        heads = Floats(memory_.data(), 4, shape);
        heads.set_host_dirty();
    }
    Floats heads;

private:
    std::vector<float> memory_;
};

TEST(GpuSplitHeads, CopiesRowsThatCountAndFillsTheRest) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const Tokens& tokens : kTokens) {
        MergedHeads x(tokens, 3, kNan);
        x.heads.for_each_element([&](int d, int i, int h, int b) {
            if (tokens.counts(i, b))
                x.heads(d, i, h, b) = static_cast<float>(d + 100 * (i + 50 * (h + 5 * b)));
        });
        Ints lengths = table_of(tokens.lengths);
        Floats y =
            filled<float, Halide::Runtime::AnyDims>({tokens.padded(), tokens.rows(), tokens.heads}, kNan);
        ASSERT_EQ(split_heads(x.heads, lengths, y), 0);
        ASSERT_EQ(y.copy_to_host(), 0);
        y.for_each_element([&](int d, int m, int h) {
            const int i = m % tokens.seq, b = m / tokens.seq;
            const bool there = d < tokens.features && tokens.counts(i, b);
            EXPECT_EQ(y(d, m, h), there ? x.heads(d, i, h, b) : 0.0F)
                << d << " of row " << m << ", head " << h;
        });
    }
}

TEST(GpuMergeHeads, UndoesSplitHeads) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    constexpr float kBetweenRows = -7;
    for (const Tokens& tokens : kTokens) {
        Floats context =
            filled<float, Halide::Runtime::AnyDims>({tokens.padded(), tokens.heads, tokens.rows()}, kNan);
        context.for_each_element([&](int d, int h, int m) {
            const bool there = d < tokens.features && tokens.counts(m % tokens.seq, m / tokens.seq);
            if (there) context(d, h, m) = static_cast<float>(d + 100 * (h + 5 * m));
        });
        context.set_host_dirty();
        Ints lengths = table_of(tokens.lengths);
        MergedHeads out(tokens, 3, kBetweenRows);
        ASSERT_EQ(merge_heads(context, lengths, out.heads), 0);
        ASSERT_EQ(out.heads.copy_to_host(), 0);
        out.heads.for_each_element([&](int d, int i, int h, int b) {
            EXPECT_EQ(out.heads(d, i, h, b), tokens.counts(i, b) ? context(d, h, b * tokens.seq + i) : 0.0F)
                << d << " of query " << i << ", head " << h << ", item " << b;
        });
        // What lies between rows is somebody else's.
        const float* row = &out.heads(0, 0, 0, 0);
        for (int d = 0; d < 3; ++d) EXPECT_EQ(row[tokens.features * tokens.heads + d], kBetweenRows);
    }
}

// ---- Norm

// Of every feature of heads (d, m, h) the root of the mean of squares, for the first `head_dim` features of each.
double root_of(const Floats& x, int m, int h, int head_dim, double epsilon) {
    double squares = 0;
    for (int d = 0; d < head_dim; ++d) squares += double{x(d, m, h)} * double{x(d, m, h)};
    return std::sqrt(squares / head_dim + epsilon);
}

// Weights as a layer packs them for heads of 50 features, with a mean in them and in epsilon.
TEST(GpuNormHeads, AgreesWithFloat64AlsoInPlace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    constexpr int kHeadDim = 50, kPadded = 64;
    constexpr float kEpsilon = 1e-6F;
    for (const int rows : {1, 8, 35}) {
        Floats x = random_floats({kPadded, rows, 3}, 1, 2), weight = random_floats({kPadded}, 2, 1);
        for (int d = kHeadDim; d < kPadded; ++d) weight(d) = 0;
        x.for_each_element([&](int d, int m, int h) {
            if (d >= kHeadDim || m == 3) x(d, m, h) = 0;
        });
        Floats scaled = weight.copy(), y = filled<float, Halide::Runtime::AnyDims>({kPadded, rows, 3}, kNan);
        for (int d = 0; d < kPadded; ++d) scaled(d) *= std::sqrt(static_cast<float>(kHeadDim));
        x.set_host_dirty();
        scaled.set_host_dirty();
        ASSERT_EQ(norm_heads_64(x, scaled, kEpsilon * kHeadDim, y), 0);
        ASSERT_EQ(y.copy_to_host(), 0);
        y.for_each_element([&](int d, int m, int h) {
            const double root = root_of(x, m, h, kHeadDim, double{kEpsilon});
            const NormError error(kHeadDim, root, 0, double{kEpsilon});
            ASSERT_LE(std::fabs(y(d, m, h) - x(d, m, h) / root * weight(d)),
                      error.of_feature(x(d, m, h), 0, weight(d)))
                << "feature " << d << " of row " << m << ", head " << h;
        });
        ASSERT_EQ(norm_heads_64(x, scaled, kEpsilon * kHeadDim, x), 0);
        ASSERT_EQ(x.copy_to_host(), 0);
        EXPECT_TRUE(same_bits(x, y)) << rows << " rows in place";
    }
}

// ---- Rotation

struct Turned {
    int features, pairs, rows;
};

template <typename Kernel>
void expect_rotated(Kernel kernel, bool adjacent) {
    for (const Turned& sizes : {Turned{64, 32, 19}, Turned{48, 20, 3}, Turned{16, 1, 1}, Turned{16, 7, 8}}) {
        const auto [features, pairs, rows] = sizes;
        Floats x = random_floats({features, rows, 2}, 1, 2), c = random_floats({pairs, rows}, 2, 1),
               s = random_floats({pairs, rows}, 3, 1),
               y = filled<float, Halide::Runtime::AnyDims>({features, rows, 2}, kNan);
        for (Floats* operand : {&x, &c, &s}) operand->set_host_dirty();
        ASSERT_EQ(kernel(c, s, x, y), 0);
        ASSERT_EQ(y.copy_to_host(), 0);
        for (int h = 0; h < 2; ++h) {
            for (int m = 0; m < rows; ++m) {
                const std::string place = " of row " + std::to_string(m) + ", head " + std::to_string(h);
                for (int r = 0; r < pairs; ++r) {
                    const int first = adjacent ? 2 * r : r, second = adjacent ? 2 * r + 1 : r + pairs;
                    const double a = x(first, m, h), b = x(second, m, h), cosine = c(r, m), sine = s(r, m);
                    ASSERT_LE(std::fabs(y(first, m, h) - (a * cosine - b * sine)),
                              rotation_error(a, 0, b, 0, cosine, sine, 0))
                        << "pair " << r << place;
                    ASSERT_LE(std::fabs(y(second, m, h) - (b * cosine + a * sine)),
                              rotation_error(b, 0, a, 0, cosine, sine, 0))
                        << "pair " << r << place;
                }
                for (int d = 2 * pairs; d < features; ++d) {
                    ASSERT_EQ(y(d, m, h), x(d, m, h)) << "feature " << d << place;
                }
            }
        }
        ASSERT_EQ(kernel(c, s, x, x), 0);
        ASSERT_EQ(x.copy_to_host(), 0);
        EXPECT_TRUE(same_bits(x, y)) << features << " features in place";
    }
}

TEST(GpuRotateHeads, TurnsHalvesAlsoInPlace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_rotated(rotate_heads, false);
}
TEST(GpuRotateHeads, TurnsNeighboursAlsoInPlace) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_rotated(rotate_heads_pairs, true);
}

// Positions as a call gives them: each, or of the first row of an item, or none.
struct Positions {
    int seq;
    std::vector<int> each, offsets;
    int items;
    int first_row = 0;

    int given() const {
        return (each.empty() ? 0 : ATTNC_GIVEN_POSITIONS) |
               (offsets.empty() ? 0 : ATTNC_GIVEN_POSITION_OFFSETS);
    }
    int64_t of(int row) const {
        const int item = row / seq;
        if (!each.empty()) return each[static_cast<size_t>(row)];
        return int64_t{offsets.empty() ? 0 : offsets[static_cast<size_t>(item)]} + first_row + row % seq;
    }
};

const Positions kPositions[] = {
    {.seq = 19, .each = {}, .offsets = {}, .items = 2},
    {.seq = 3, .each = {0, -1, INT_MAX, INT_MIN, 7, 100000}, .offsets = {5, 6}, .items = 2},
    {.seq = 5, .each = {}, .offsets = {-2, INT_MAX - 1, 1000}, .items = 3},
    {.seq = 9, .each = {}, .offsets = {}, .items = 2, .first_row = 16384},
    {.seq = 4, .each = {}, .offsets = {-7, INT_MAX - 3}, .items = 2, .first_row = 6},
    {.seq = 2, .each = {3, 1, 0, 9}, .offsets = {5, 6}, .items = 2, .first_row = 8}};

// Tables of a call's positions as a device has them: low halves of int64, or any number where they aren't given.
class DevicePositions {
public:
    explicit DevicePositions(const Positions& of) : each_(numbers(of.each)), offsets_(numbers(of.offsets)) {
        const int of_row = of.each.empty() ? 0 : 2, of_item = of.offsets.empty() ? 0 : 2;
        const halide_dimension_t rows[] = {{0, of.seq, of_row}, {0, of.items, of_row * of.seq}},
                                 items[] = {{0, of.items, of_item}};
        positions = Ints(each_.data(), 2, rows);
        position_offsets = Ints(offsets_.data(), 1, items);
        positions.set_host_dirty();
        position_offsets.set_host_dirty();
    }
    Ints positions, position_offsets;

private:
    static std::vector<int> numbers(const std::vector<int>& of) {
        std::vector<int> made(std::max<size_t>(1, 2 * of.size()), 77);
        for (size_t n = 0; n < of.size(); ++n) made[2 * n] = of[n];
        return made;
    }
    std::vector<int> each_, offsets_;
};

TEST(GpuRotaryAngles, AreExactForEveryPosition) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    constexpr int kPairs = 21;
    constexpr double kMagnitude = 1.25;
    Halide::Runtime::Buffer<uint64_t> turns(std::vector<int>{kPairs});
    for (int r = 0; r < kPairs; ++r) turns(r) = mixed_bits(1, static_cast<uint64_t>(r)) >> (3 * r);
    turns.set_host_dirty();
    for (const Positions& given : kPositions) {
        DevicePositions on_device(given);
        const std::vector<int> extents = {kPairs, given.seq * given.items};
        Floats c(extents), s(extents);
        ASSERT_EQ(rotary_angles(on_device.positions, on_device.position_offsets, given.given(),
                                given.first_row, turns, kMagnitude, c, s),
                  0);
        ASSERT_EQ(c.copy_to_host(), 0);
        ASSERT_EQ(s.copy_to_host(), 0);
        c.for_each_element([&](int r, int m) {
            const uint64_t phase = static_cast<uint64_t>(given.of(m)) * turns(r);
            const long double angle = static_cast<long double>(static_cast<int64_t>(phase)) *
                                      std::numbers::pi_v<long double> / 0x1p63L;
            const double bound = rotary_table_error(0, kMagnitude);
            ASSERT_LE(std::fabs(c(r, m) - static_cast<double>(kMagnitude * std::cos(angle))), bound)
                << "pair " << r << " at " << given.of(m);
            ASSERT_LE(std::fabs(s(r, m) - static_cast<double>(kMagnitude * std::sin(angle))), bound)
                << "pair " << r << " at " << given.of(m);
        });
    }
}

TEST(GpuRotaryRows, AreThoseOfTheNearestPositionInTheTable) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    constexpr int kPairs = 18, kTableRows = 12;
    Floats table_cos = random_floats({kPairs, kTableRows}, 1, 1),
           table_sin = random_floats({kPairs, kTableRows}, 2, 1);
    table_cos.set_host_dirty();
    table_sin.set_host_dirty();
    for (const Positions& given : kPositions) {
        DevicePositions on_device(given);
        const std::vector<int> extents = {kPairs, given.seq * given.items};
        Floats c(extents), s(extents);
        ASSERT_EQ(rotary_rows(on_device.positions, on_device.position_offsets, given.given(), given.first_row,
                              table_cos, table_sin, c, s),
                  0);
        ASSERT_EQ(c.copy_to_host(), 0);
        ASSERT_EQ(s.copy_to_host(), 0);
        c.for_each_element([&](int r, int m) {
            const int row = static_cast<int>(std::clamp<int64_t>(given.of(m), 0, kTableRows - 1));
            ASSERT_EQ(c(r, m), table_cos(r, row)) << "pair " << r << " at " << given.of(m);
            ASSERT_EQ(s(r, m), table_sin(r, row)) << "pair " << r << " at " << given.of(m);
        });
    }
}

}  // namespace
}  // namespace attnc::test
