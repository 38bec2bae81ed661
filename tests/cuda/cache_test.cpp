// What keeps a cache on a device, against plain C++: lengths, runs of rows and new rows, with tables given and not, values out
// of range, slots in any order, pages shuffled, rings that have wrapped, more items than a block of threads has.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "append_rows.h"
#include "fill_cache.h"
#include "fill_runs.h"
#include "keep_lengths.h"
#include "runtime/kernel_abi.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/device_table.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

constexpr int kRun = ATTNC_RUN_KEYS;

size_t at(int n) { return static_cast<size_t>(n); }

Ints ints(const Table& table) {
    Ints made(std::vector<int>{static_cast<int>(table.size())});
    std::copy(table.begin(), table.end(), made.begin());
    made.set_host_dirty();
    return made;
}

// ---- fill_cache

struct Lengths {
    std::string name;
    int items = 1, slots = 1, seq = 0, max_keys = 0;
    bool paged = false;
    Table cache_lengths;                       // of slots, or of items where paged
    Table cache_slots = {}, key_lengths = {};  // empty: not given
};

void PrintTo(const Lengths& call, std::ostream* to) { *to << call.name; }

std::vector<Lengths> lengths() {
    const Lengths plain = {.name = "a slot for each item",
                           .items = 3,
                           .slots = 5,
                           .seq = 7,
                           .max_keys = 100,
                           .cache_lengths = {0, 40, 93, 5, 6}};
    std::vector<Lengths> all = {plain};
    const auto add = [&](const std::string& name, const auto& change) {
        Lengths call = plain;
        call.name = name;
        change(call);
        all.push_back(call);
    };
    add("slots in any order", [](Lengths& c) { c.cache_slots = {4, 0, 2}; });
    add("slots read twice", [](Lengths& c) {
        c.items = 6;
        c.seq = 0;
        c.cache_slots = {1, 1, 4, 0, 1, 4};
    });
    add("slots out of range", [](Lengths& c) { c.cache_slots = {5, -1, INT_MIN}; });
    add("more items than slots", [](Lengths& c) { c.items = 7; });
    add("lengths of the call", [](Lengths& c) { c.key_lengths = {0, 7, 3}; });
    add("lengths of the call out of range", [](Lengths& c) { c.key_lengths = {-1, 8, INT_MAX}; });
    add("lengths held out of range", [](Lengths& c) { c.cache_lengths = {-1, 101, INT_MAX, INT_MIN, 100}; });
    add("no room", [](Lengths& c) {
        c.cache_lengths = {94, 100, 99, 0, 0};
        c.key_lengths = {7, 1, 5};
    });
    add("no keys at all", [](Lengths& c) { c.max_keys = 0; });
    add("the most keys of int32", [](Lengths& c) {
        c.max_keys = c.seq = INT_MAX;
        c.cache_lengths = {INT_MAX, INT_MAX - 1, 0, 0, 0};
    });
    add("pages", [](Lengths& c) {
        c.paged = true;
        c.slots = 1;
        c.cache_lengths = {0, 99, 17};
        c.key_lengths = {7, 7, 7};
    });
    add("pages with lengths out of range", [](Lengths& c) {
        c.paged = true;
        c.cache_lengths = {-3, INT_MAX, 101};
    });
    add("more than one block", [](Lengths& c) {
        c.items = 300;
        c.slots = 290;
        c.cache_lengths = random_table(290, 1, -3, 110);
        c.cache_slots = random_table(300, 2, -3, 300);
        c.key_lengths = random_table(300, 3, -3, 12);
    });
    return all;
}

class GpuFillCache : public testing::TestWithParam<Lengths> {};

TEST_P(GpuFillCache, HasTheLengthsBeforeAndAfterTheCall) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    const Lengths& call = GetParam();
    const int given = (call.cache_slots.empty() ? 0 : ATTNC_GIVEN_CACHE_SLOTS) |
                      (call.key_lengths.empty() ? 0 : ATTNC_GIVEN_KEY_LENGTHS) |
                      (call.paged ? ATTNC_GIVEN_PAGED : 0);
    for (const bool wide : {false, true}) {
        DeviceTable cache_lengths(call.cache_lengths, call.paged ? call.items : call.slots, wide),
            cache_slots(call.cache_slots, call.items, wide), key_lengths(call.key_lengths, call.items, wide);
        Ints held(std::vector<int>{call.items}), counts(std::vector<int>{call.items}),
            slots_out(std::vector<int>{call.items});
        ASSERT_EQ(fill_cache(cache_lengths.get(), cache_slots.get(), key_lengths.get(), given, call.seq,
                             call.max_keys, call.slots, held, counts, slots_out),
                  0);
        for (Ints* table : {&held, &counts, &slots_out}) ASSERT_EQ(table->copy_to_host(), 0);
        for (int b = 0; b < call.items; ++b) {
            const int slot =
                nearest(call.cache_slots.empty() ? b : call.cache_slots[at(b)], 0, call.slots - 1);
            const int before = nearest(call.cache_lengths[at(call.paged ? b : slot)], 0, call.max_keys);
            const int brought = call.key_lengths.empty() ? call.seq : call.key_lengths[at(b)];
            const int added = nearest(nearest(brought, 0, call.seq), 0, call.max_keys - before);
            ASSERT_EQ(slots_out(b), slot) << "item " << b;
            ASSERT_EQ(held(b), before) << "item " << b;
            ASSERT_EQ(counts(b), before + added) << "item " << b;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Calls, GpuFillCache, testing::ValuesIn(lengths()));

// ---- fill_runs

struct Runs {
    std::string name;
    int given = 0, slot_rows = 0, capacity = 0, page_size = 0, pages = 0;
    Table counts, slots;
    int table_pages = 1;
    Table table = {};  // [item][page]
    int runs = 30;     // of an item in key_runs
};

void PrintTo(const Runs& call, std::ostream* to) { *to << call.name; }

std::vector<Runs> runs() {
    const Table counts = {480, 0, 1, 16, 17, 333}, slots = {3, 0, 5, 9, 3, 1};
    std::vector<Runs> all = {{.name = "in no cache", .counts = counts, .slots = slots},
                             {.name = "slots",
                              .given = ATTNC_GIVEN_CACHE_SLOTS,
                              .slot_rows = 480,
                              .capacity = 480,
                              .counts = counts,
                              .slots = slots},
                             {.name = "rings that have wrapped",
                              .given = ATTNC_GIVEN_CACHE_SLOTS,
                              .slot_rows = 112,
                              .capacity = 112,
                              .counts = counts,
                              .slots = slots}};
    for (const int page_size : {16, 48, 512}) {
        Runs paged = {.name = "pages of " + std::to_string(page_size),
                      .given = ATTNC_GIVEN_PAGED,
                      .page_size = page_size,
                      .pages = 200,
                      .counts = counts,
                      .slots = slots,
                      .table_pages = (480 + page_size - 1) / page_size};
        paged.table = shuffled(200, 1);
        paged.table.resize(counts.size() * at(paged.table_pages));
        all.push_back(paged);
        paged.name += ", some out of range";
        paged.table = random_table(paged.table.size(), 2, -100, 300);
        paged.table[0] = INT_MIN;
        all.push_back(paged);
    }
    Runs many = all[2];
    many.name = "more than one block";
    many.runs = 300;
    many.counts = random_table(200, 3, 0, 300 * kRun);
    many.slots = random_table(200, 4, 0, 200);
    all.push_back(many);
    return all;
}

int wanted_row(const Runs& call, int b, int key, int key_row) {
    if (call.given == ATTNC_GIVEN_PAGED) {
        const int page = call.table[at(b * call.table_pages + key / call.page_size)];
        return nearest(page, 0, call.pages - 1) * call.page_size + key % call.page_size;
    }
    if (call.given == ATTNC_GIVEN_CACHE_SLOTS)
        return call.slots[at(b)] * call.slot_rows + key % call.capacity;
    return key_row + key;
}

class GpuFillRuns : public testing::TestWithParam<Runs> {};

TEST_P(GpuFillRuns, HasTheRowOfEachRunOfKeys) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    const Runs& call = GetParam();
    const int count = static_cast<int>(call.counts.size());
    Ints items(std::vector<int>{ATTNC_ITEM_COLUMNS, count}), key_runs(std::vector<int>{call.runs, count});
    items.fill(-5);
    for (int b = 0; b < count; ++b) items(ATTNC_ITEM_KEY_ROW, b) = 1000 * b + 7;
    items.set_host_dirty();
    Ints counts = ints(call.counts), slots = ints(call.slots);
    // Rows of a table with something between them, and between their pages.
    const halide_dimension_t shape[] = {{0, call.table_pages, 2}, {0, count, 2 * call.table_pages + 3}};
    Table numbers(at(count * shape[1].stride), -77);
    for (size_t n = 0; n < call.table.size(); ++n) {
        const int b = static_cast<int>(n) / call.table_pages, page = static_cast<int>(n) % call.table_pages;
        numbers[at(b * shape[1].stride + 2 * page)] = call.table[n];
    }
    Ints block_table(numbers.data(), 2, shape);
    block_table.set_host_dirty();
    ASSERT_EQ(fill_runs(items, counts, slots, block_table, call.given, call.slot_rows, call.capacity,
                        call.page_size, call.pages, key_runs),
              0);
    ASSERT_EQ(key_runs.copy_to_host(), 0);
    key_runs.for_each_element([&](int r, int b) {
        const int key = r * kRun;
        const int want =
            key < call.counts[at(b)] ? wanted_row(call, b, key, items(ATTNC_ITEM_KEY_ROW, b)) : 0;
        ASSERT_EQ(key_runs(r, b), want) << "run " << r << " of item " << b;
    });
}

INSTANTIATE_TEST_SUITE_P(Calls, GpuFillRuns, testing::ValuesIn(runs()));

// ---- append_rows

TEST(GpuAppendRows, PutsNewKeysWhereTheyBelongAndNothingElse) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    constexpr int kFeatures = 48, kHeads = 3, kSeq = 300, kRuns = 9, kCacheRuns = 70;
    const Table held = {0, 100, 15, 2, 7}, counts = {37, 137, 15, 140, 30};
    const int items = static_cast<int>(held.size()), cache_rows = kCacheRuns * kRun;
    const Table places = shuffled(kCacheRuns, 5);
    Ints key_runs(std::vector<int>{kRuns, items}), held_table = ints(held), count_table = ints(counts);
    key_runs.for_each_element([&](int r, int b) { key_runs(r, b) = places[at(b * kRuns + r)] * kRun; });
    key_runs.set_host_dirty();
    // Rows of items in any order, as packed ones may be, with more that no item has; the table is a column of another.
    const Table first = {160, 0, 40, 200, 90};
    const halide_dimension_t column[] = {{0, items, ATTNC_ITEM_COLUMNS}};
    Table all_columns(at(items * ATTNC_ITEM_COLUMNS), -77);
    for (int b = 0; b < items; ++b) all_columns[at(b * ATTNC_ITEM_COLUMNS)] = first[at(b)];
    Ints first_rows(all_columns.data(), 1, column);
    first_rows.set_host_dirty();
    Floats x = random_floats({kFeatures, 340, kHeads}, 1, 1);
    Floats cache = random_floats({kFeatures, cache_rows, kHeads}, 2, 1), want = cache.copy();
    int appended = 0;
    for (int b = 0; b < items; ++b) {
        for (int key = held[at(b)]; key < counts[at(b)]; ++key, ++appended) {
            const int row = key_runs(key / kRun, b) + key % kRun;
            for (int h = 0; h < kHeads; ++h) {
                for (int d = 0; d < kFeatures; ++d)
                    want(d, row, h) = x(d, first[at(b)] + key - held[at(b)], h);
            }
        }
    }
    ASSERT_EQ(appended, 37 + 37 + 0 + 138 + 23);
    x.set_host_dirty();
    cache.set_host_dirty();
    ASSERT_EQ(append_rows(x, first_rows, held_table, count_table, key_runs, kSeq, cache), 0);
    ASSERT_EQ(cache.copy_to_host(), 0);
    EXPECT_TRUE(same_bits(cache, want));
}

// ---- keep_lengths

void expect_kept(const Table& counts, const Table& slots, int slot_count, int capacity) {
    const Table before = random_table(at(slot_count), 1, 0, 500);
    Table want = before;
    for (size_t b = 0; b < counts.size(); ++b) {
        int32_t& number = want[at(slots[b])];
        number = capacity > 0 ? std::max(number, counts[b] - capacity) : counts[b];
    }
    Ints kept = ints(before), count_table = ints(counts), slot_table = ints(slots);
    ASSERT_EQ(keep_lengths(count_table, slot_table, capacity, kept), 0);
    ASSERT_EQ(kept.copy_to_host(), 0);
    EXPECT_EQ(Table(kept.begin(), kept.end()), want);
}

TEST(GpuKeepLengths, AreNumbersOfTheItemsSlots) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (const int capacity : {0, 96}) {
        expect_kept({0, 500, 96, 97}, {3, 0, 5, 1}, 6, capacity);
        Table slots = shuffled(310, 4);
        slots.resize(300);
        expect_kept(random_table(300, 3, 0, 900), slots, 310, capacity);
    }
}

}  // namespace
}  // namespace attnc::test
