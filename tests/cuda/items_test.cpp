// The numbers of each item that a device makes of a call, against their definition: tables given and not, lengths and starts
// out of range, diagonals and windows at the ends of int32, more items than a block of threads has.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "fill_items.h"
#include "runtime/device_abi.h"
#include "tests/cuda/device_table.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

using Ints = Halide::Runtime::Buffer<int32_t>;

struct Call {
    std::string name;
    int items = 1, seq_q = 0, seq_kv = 0;
    // Empty: not given.
    Table query_lengths = {}, key_lengths = {}, causal_offsets = {}, query_starts = {}, key_starts = {};
    int diagonal = ATTNC_DIAGONAL_NONE;
    int window_left = -1, window_right = -1;
};

void PrintTo(const Call& call, std::ostream* to) { *to << call.name; }

Table sorted(Table table) {
    std::sort(table.begin(), table.end());
    return table;
}

std::vector<Call> calls() {
    const Call plain = {.name = "plain", .items = 3, .seq_q = 50, .seq_kv = 77};
    std::vector<Call> all = {plain};
    const auto add = [&](const std::string& name, const auto& change) {
        Call call = plain;
        call.name = name;
        change(call);
        all.push_back(call);
    };
    add("causal", [](Call& c) { c.diagonal = ATTNC_DIAGONAL_BOTTOM_RIGHT; });
    add("lengths out of range", [](Call& c) {
        c.query_lengths = {-1, 51, INT_MIN};
        c.key_lengths = {78, 0, INT_MAX};
        c.diagonal = ATTNC_DIAGONAL_TOP_LEFT;
    });
    add("window on the diagonal of lengths", [](Call& c) {
        c.query_lengths = {0, 50, 7};
        c.key_lengths = {77, 1, 30};
        c.window_left = 0;
        c.window_right = 4;
    });
    add("window and diagonal", [](Call& c) {
        c.diagonal = ATTNC_DIAGONAL_TOP_LEFT;
        c.window_left = INT_MAX;
        c.window_right = INT_MAX;
    });
    add("right window alone", [](Call& c) { c.window_right = INT_MAX; });
    add("offsets at the ends of int32", [](Call& c) {
        c.diagonal = ATTNC_DIAGONAL_OFFSETS;
        c.causal_offsets = {INT_MIN, INT_MAX, -3};
        c.window_left = INT_MAX;
    });
    add("starts out of range", [](Call& c) {
        c.query_starts = {-5, 20, 200, 90};
        c.key_starts = {0, INT_MAX, INT_MIN, 300};
        c.key_lengths = {80, 3, -2};
    });
    add("no queries and no keys", [](Call& c) { c.seq_q = c.seq_kv = 0; });
    add("rows beyond int32", [](Call& c) {
        c.seq_q = c.seq_kv = INT_MAX / 3 + 1;
        c.query_starts = c.key_starts = {0, INT_MAX - 1, INT_MAX, INT_MAX};
    });
    add("more than one block", [](Call& c) {
        c.items = 300;
        c.query_lengths = random_table(300, 1, -3, 60);
        c.key_starts = sorted(random_table(301, 2, -3, 9000));
        c.causal_offsets = random_table(300, 3, -100, 100);
        c.diagonal = ATTNC_DIAGONAL_OFFSETS;
        c.window_left = 9;
    });
    return all;
}

// first row, rows and length of an item's queries or keys.
std::array<int32_t, 3> side(const Call& call, int item, int seq, const Table& starts, const Table& lengths) {
    const auto b = static_cast<size_t>(item);
    const int64_t most = std::min<int64_t>(int64_t{seq} * call.items, INT_MAX);
    int32_t first = static_cast<int32_t>(int64_t{seq} * item), rows = seq;
    if (!starts.empty()) {
        first = nearest(starts[b], 0, most);
        rows = nearest(int64_t{nearest(starts[b + 1], 0, most)} - first, 0, seq);
    }
    return {first, rows, lengths.empty() ? rows : nearest(lengths[b], 0, rows)};
}

std::vector<int32_t> wanted(const Call& call, int item) {
    constexpr int64_t kNoLimit = int64_t{1} << 30;
    const auto [query_row, rows, queries] =
        side(call, item, call.seq_q, call.query_starts, call.query_lengths);
    const auto [key_row, key_rows, keys] = side(call, item, call.seq_kv, call.key_starts, call.key_lengths);
    int64_t own = int64_t{keys} - queries;
    if (call.diagonal == ATTNC_DIAGONAL_TOP_LEFT) own = 0;
    if (call.diagonal == ATTNC_DIAGONAL_OFFSETS) own = call.causal_offsets[static_cast<size_t>(item)];
    int64_t first = -kNoLimit, last = kNoLimit;
    if (call.window_left >= 0) first = own - call.window_left;
    if (call.window_right >= 0) last = own + call.window_right + 1;
    if (call.diagonal != ATTNC_DIAGONAL_NONE) last = own + 1;
    return {query_row,
            queries,
            rows,
            key_row,
            keys,
            nearest(first, -kNoLimit, kNoLimit),
            nearest(last, -kNoLimit, kNoLimit),
            nearest(own, -kNoLimit, kNoLimit)};
}

class GpuItems : public testing::TestWithParam<Call> {};

TEST_P(GpuItems, AreThoseOfTheCall) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    const Call& call = GetParam();
    for (const bool wide : {false, true}) {
        DeviceTable query_lengths(call.query_lengths, call.items, wide),
            key_lengths(call.key_lengths, call.items, wide),
            causal_offsets(call.causal_offsets, call.items, wide),
            query_starts(call.query_starts, call.items + 1, wide),
            key_starts(call.key_starts, call.items + 1, wide);
        const int given = (call.query_lengths.empty() ? 0 : ATTNC_GIVEN_QUERY_LENGTHS) |
                          (call.key_lengths.empty() ? 0 : ATTNC_GIVEN_KEY_LENGTHS) |
                          (call.causal_offsets.empty() ? 0 : ATTNC_GIVEN_CAUSAL_OFFSETS) |
                          (call.query_starts.empty() ? 0 : ATTNC_GIVEN_QUERY_STARTS) |
                          (call.key_starts.empty() ? 0 : ATTNC_GIVEN_KEY_STARTS);
        Ints items(std::vector<int>{ATTNC_ITEM_COLUMNS, call.items}),
            query_counts(std::vector<int>{call.items}), key_counts(std::vector<int>{call.items});
        ASSERT_EQ(fill_items(query_lengths.get(), key_lengths.get(), causal_offsets.get(), query_starts.get(),
                             key_starts.get(), given, call.seq_q, call.seq_kv, call.diagonal,
                             call.window_left, call.window_right, items, query_counts, key_counts),
                  0);
        ASSERT_EQ(items.copy_to_host(), 0);
        ASSERT_EQ(query_counts.copy_to_host(), 0);
        ASSERT_EQ(key_counts.copy_to_host(), 0);
        for (int b = 0; b < call.items; ++b) {
            const std::vector<int32_t> want = wanted(call, b),
                                       got(&items(0, b), &items(0, b) + ATTNC_ITEM_COLUMNS);
            ASSERT_EQ(got, want) << "item " << b;
            ASSERT_EQ(query_counts(b), want[ATTNC_ITEM_QUERIES]) << "item " << b;
            ASSERT_EQ(key_counts(b), want[ATTNC_ITEM_KEYS]) << "item " << b;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Calls, GpuItems, testing::ValuesIn(calls()));

}  // namespace
}  // namespace attnc::test
