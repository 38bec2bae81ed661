// What rows of a packed batch get of their own on a device, against plain C++: positions by starts and offsets, in range and
// out of it, and zeros where rows of the output don't count.
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include "clear_rows.h"
#include "fill_positions.h"
#include "runtime/device_abi.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/device_table.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

constexpr int32_t kUntouched = -12345;

// Positions of `rows` rows. Of starts that fall, an item has rows up to the first that another has.
Table wanted_positions(const Table& starts, const Table& offsets, int seq, int rows) {
    Table want(static_cast<size_t>(rows), kUntouched);
    for (size_t b = 0; b + 1 < starts.size(); ++b) {
        const int first = nearest(starts[b], 0, rows), end = nearest(starts[b + 1], first, rows);
        const int64_t offset = offsets.empty() ? 0 : offsets[b];
        for (int i = 0; i < seq && first + i < end; ++i)
            want[static_cast<size_t>(first + i)] = nearest(offset + i, INT_MIN, INT_MAX);
    }
    return want;
}

void expect_positions(const Table& starts, const Table& offsets, int seq, int rows) {
    const int items = static_cast<int>(starts.size()) - 1;
    for (const bool wide : {false, true}) {
        DeviceTable start_table(starts, items + 1, wide), offset_table(offsets, items, wide);
        Ints positions = filled<int32_t, Halide::Runtime::AnyDims>({rows}, kUntouched);
        positions.set_host_dirty();
        ASSERT_EQ(fill_positions(start_table.get(), offset_table.get(),
                                 offsets.empty() ? 0 : ATTNC_GIVEN_POSITION_OFFSETS, seq, positions),
                  0);
        ASSERT_EQ(positions.copy_to_host(), 0);
        EXPECT_EQ(Table(positions.begin(), positions.end()), wanted_positions(starts, offsets, seq, rows));
    }
}

TEST(GpuFillPositions, CountFromTheFirstRowOfEachItem) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_positions({0, 5, 5, 305, 310}, {}, 300, 310);
    expect_positions({0, 5, 5, 305, 310}, {7, 0, -20, INT_MAX - 2}, 300, 310);
    // Rows before the first item and behind the last one are of none.
    expect_positions({3, 4, 140}, {1000, 2000}, 136, 150);
    // More rows than an item may have.
    expect_positions({0, 200, 260}, {}, 130, 260);
}

TEST(GpuFillPositions, StayWithinTheRowsThatThereAre) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_positions({-4, 40, 90}, {}, 60, 70);
    expect_positions({INT_MIN, 10, INT_MAX}, {5, 6}, 90, 100);
    expect_positions({0, 50, 20}, {}, 60, 80);
}

TEST(GpuClearRows, OfItemsThatDontCountAreZeroAndNoOthers) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    struct Item {
        int first, queries, rows;
    };
    const Item all[] = {{2, 100, 130}, {132, 9, 9}, {141, 0, 40}, {181, 1, 6}};
    for (const int columns : {1, 75}) {
        Ints items = filled<int32_t, Halide::Runtime::AnyDims>({ATTNC_ITEM_COLUMNS, 4}, -9);
        for (int b = 0; b < 4; ++b) {
            items(ATTNC_ITEM_QUERY_ROW, b) = all[b].first;
            items(ATTNC_ITEM_QUERIES, b) = all[b].queries;
            items(ATTNC_ITEM_ROWS, b) = all[b].rows;
        }
        items.set_host_dirty();
        Floats out = random_floats({columns, 190}, 1, 1), want = out.copy();
        int cleared = 0;
        for (const Item& item : all) {
            for (int i = item.queries; i < item.rows; ++i, ++cleared) {
                for (int n = 0; n < columns; ++n) want(n, item.first + i) = 0;
            }
        }
        ASSERT_EQ(cleared, 30 + 0 + 40 + 5);
        out.set_host_dirty();
        ASSERT_EQ(clear_rows(items, 130, out), 0);
        ASSERT_EQ(out.copy_to_host(), 0);
        EXPECT_TRUE(same_bits(out, want));
    }
}

}  // namespace
}  // namespace attnc::test
