// Kernels between projections and attention, on whole batches: copies between tokens and heads.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "merge_heads.h"
#include "split_heads.h"
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

}  // namespace
}  // namespace attnc::test
