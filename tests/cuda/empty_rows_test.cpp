// Contexts of rows that see no key, on whole batches: every policy, and every other row as it was.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "fill_empty_48.h"
#include "runtime/attnc.h"
#include "runtime/device_abi.h"
#include "support/tolerance.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

using Floats = Halide::Runtime::Buffer<float>;
using Ints = Halide::Runtime::Buffer<int32_t>;

constexpr int kFeatures = 48, kHeads = 4, kKvHeads = 2;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Item {
    int query_row, queries, rows, key_row, keys;
};

// Several tiles of rows; no keys; no queries; one row; and rows of no item between them.
const std::vector<Item> kItems = {
    {0, 100, 110, 0, 77}, {110, 5, 5, 77, 0}, {115, 0, 4, 80, 9}, {121, 1, 1, 90, 1}};
constexpr int kRows = 124, kKeyRows = 91, kMostQueries = 110;

struct Case {
    Ints items;
    Floats row_stats, v;

    Case()
        : items(std::vector<int>{ATTNC_ITEM_COLUMNS, static_cast<int>(kItems.size())}),
          row_stats(filled<float, Halide::Runtime::AnyDims>({kRows, kHeads, 2}, 0)),
          v(random_floats({kFeatures, kKeyRows, kKvHeads}, 1, 1)) {
        items.fill(0);
        for (int b = 0; b < items.dim(1).extent(); ++b) {
            const Item& item = kItems[static_cast<size_t>(b)];
            items(ATTNC_ITEM_QUERY_ROW, b) = item.query_row;
            items(ATTNC_ITEM_QUERIES, b) = item.queries;
            items(ATTNC_ITEM_ROWS, b) = item.rows;
            items(ATTNC_ITEM_KEY_ROW, b) = item.key_row;
            items(ATTNC_ITEM_KEYS, b) = item.keys;
        }
        row_stats.for_each_element([&](int m, int h, int c) {
            if (c == 1 && m < 100 && !empty(m, h)) row_stats(m, h, c) = m % 3 == 0 ? kNan : 1.5F;
        });
        items.set_host_dirty();
        row_stats.set_host_dirty();
        v.set_host_dirty();
    }
    // Of item 0; the others have nothing but empty rows. Head 1 has none in the whole of a tile.
    static bool empty(int m, int h) { return m >= 100 || (m % 5 == 2 && (h != 1 || m >= 64)); }
};

double mean(const Case& c, const Item& item, int kv_head, int d) {
    double sum = 0;
    for (int j = 0; j < item.keys; ++j) sum += double{c.v(d, item.key_row + j, kv_head)};
    return item.keys > 0 ? sum / item.keys : 0;
}

void expect_filled(attnc_empty_rows empty_rows) {
    Case c;
    Floats before = random_floats({kFeatures, kHeads, kRows}, 2, 1), context = before.copy();
    context.set_host_dirty();
    ASSERT_EQ(fill_empty_48(c.row_stats, c.v, c.items, kMostQueries, empty_rows, context), 0);
    ASSERT_EQ(context.copy_to_host(), 0);
    int filled_rows = 0;
    for (int m = 0; m < kRows; ++m) {
        const Item* own = nullptr;
        for (const Item& item : kItems) {
            if (m >= item.query_row && m < item.query_row + item.queries) own = &item;
        }
        for (int h = 0; h < kHeads; ++h) {
            const bool is_filled = own != nullptr && Case::empty(m, h);
            filled_rows += is_filled ? 1 : 0;
            for (int d = 0; d < kFeatures; ++d) {
                const float got = context(d, h, m);
                if (!is_filled) {
                    ASSERT_EQ(got, before(d, h, m)) << "row " << m << " head " << h;
                } else if (empty_rows == ATTNC_EMPTY_ROWS_NAN) {
                    ASSERT_TRUE(std::isnan(got)) << "row " << m << " head " << h << ": " << got;
                } else {
                    const double want = empty_rows == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES
                                            ? mean(c, *own, h / (kHeads / kKvHeads), d)
                                            : 0;
                    // In double but for the last rounding.
                    ASSERT_LE(std::fabs(got - want), kSecondOrder * kUnitRoundoff * std::fabs(want) + 0x1p-44)
                        << "row " << m << " head " << h << " feature " << d;
                }
            }
        }
    }
    EXPECT_EQ(filled_rows, 4 * (20 + 5 + 1) - 13);
}

TEST(GpuFillEmpty, WritesTheMeanOfTheValues) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_filled(ATTNC_EMPTY_ROWS_MEAN_OF_VALUES);
}
TEST(GpuFillEmpty, WritesNan) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_filled(ATTNC_EMPTY_ROWS_NAN);
}
TEST(GpuFillEmpty, WritesZeros) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    expect_filled(ATTNC_EMPTY_ROWS_ZERO);
}

}  // namespace
}  // namespace attnc::test
