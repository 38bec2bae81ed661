// Caches used wrongly, by status and exact sentence.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/error/spoilt_calls.h"
#include "tests/harness/guarded_memory.h"

namespace attnc::test {
namespace {

constexpr std::string_view kProblem = "d32_h2_f32_cache_page16:b2_q5_kv7";

// A number that is none of the enumeration's.
template <typename Enum>
void set_number(Enum& to, int number) {
    std::memcpy(&to, &number, sizeof number);
}

attnc_cache_options options_of(attnc_cache_kind kind) {
    attnc_cache_options options = ATTNC_CACHE_OPTIONS_INIT;
    options.kind = kind;
    if (kind == ATTNC_CACHE_PAGED) {
        options.pages = 6;
    } else {
        options.slots = 3, options.capacity = 32;
    }
    return options;
}

attnc_layer* windowed_layer(const FakeLibrary& library, LayerCall call) {
    call.window_left = 20;
    return make_layer(library, call).release();
}

// A cache to make wrongly.
struct Making {
    LayerCall call;
    FakeLibrary library;
    LayerPointer layer;
    attnc_cache_options options;
    std::vector<unsigned char> memory;

    explicit Making(attnc_cache_kind kind, std::string_view problem = kProblem)
        : call(random_call(problem, 1)),
          library(call.config),
          layer(windowed_layer(library, call)),
          options(options_of(kind)) {}
    Failure bytes() {
        attnc_error error = {};
        size_t size = 0;
        const attnc_status status = attnc_cache_bytes(layer.get(), &options, &size, &error);
        return {status, error.text};
    }
    Failure create(void* at, size_t size) {
        attnc_error error = {};
        attnc_cache* cache = nullptr;
        const attnc_status status = attnc_cache_create(layer.get(), &options, at, size, &cache, &error);
        EXPECT_EQ(cache == nullptr, status != ATTNC_OK);
        return {status, error.text};
    }
};

Failure made(attnc_cache_kind kind, const std::function<void(Making&)>& spoil) {
    Making m(kind);
    spoil(m);
    return m.bytes();
}

TEST(CacheErrors, Options) {
    EXPECT_EQ(Making(ATTNC_CACHE_SLOTS).bytes(), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(made(ATTNC_CACHE_SLOTS, [](Making& m) { m.options.struct_size = 8; }),
              (Failure{ATTNC_BAD_STRUCT_SIZE, "struct_size of attnc_cache_options is 8, wanted " +
                                                  std::to_string(sizeof(attnc_cache_options))}));
    EXPECT_EQ(made(ATTNC_CACHE_SLOTS, [](Making& m) { set_number(m.options.kind, 4); }),
              (Failure{ATTNC_BAD_VALUE, "kind is 4, wanted 0 to 3"}));
    EXPECT_EQ(made(ATTNC_CACHE_SLOTS, [](Making& m) { m.options.slots = 0; }),
              (Failure{ATTNC_BAD_VALUE, "slots is 0, wanted 1 or more"}));
    EXPECT_EQ(made(ATTNC_CACHE_SLOTS, [](Making& m) { m.options.capacity = -1; }),
              (Failure{ATTNC_BAD_VALUE, "capacity is -1, wanted 1 or more"}));
    EXPECT_EQ(made(ATTNC_CACHE_SLOTS, [](Making& m) { m.options.pages = 2; }),
              (Failure{ATTNC_BAD_VALUE, "pages is 2, but the cache is not paged"}));
    EXPECT_EQ(made(ATTNC_CACHE_SLOTS, [](Making& m) { m.options.capacity = int64_t{1} << 40; }),
              (Failure{ATTNC_TOO_LARGE, "capacity is 1099511627776, at most 33554416"}));
    EXPECT_EQ(made(ATTNC_CACHE_SLOTS, [](Making& m) { m.options.slots = int64_t{1} << 60; }),
              (Failure{ATTNC_TOO_LARGE, "the size of the cache overflows"}));
    EXPECT_EQ(made(ATTNC_CACHE_RING, [](Making& m) { m.options.capacity = 40; }),
              (Failure{ATTNC_BAD_VALUE, "capacity is 40, wanted a multiple of 16 for a ring"}));
    EXPECT_EQ(made(ATTNC_CACHE_PAGED, [](Making& m) { m.options.pages = 0; }),
              (Failure{ATTNC_BAD_VALUE, "pages is 0, wanted 1 or more"}));
    EXPECT_EQ(made(ATTNC_CACHE_PAGED, [](Making& m) { m.options.slots = 1; }),
              (Failure{ATTNC_BAD_VALUE, "slots is 1, but the cache is paged"}));
    EXPECT_EQ(made(ATTNC_CACHE_PAGED, [](Making& m) { m.options.capacity = 1; }),
              (Failure{ATTNC_BAD_VALUE, "capacity is 1, but the cache is paged"}));
    EXPECT_EQ(made(ATTNC_CACHE_PAGED, [](Making& m) { m.options.pages = int64_t{1} << 40; }),
              (Failure{ATTNC_TOO_LARGE, "pages is 1099511627776, at most 2097151"}));
    attnc_error error = {};
    size_t bytes = 0;
    Making m(ATTNC_CACHE_SLOTS);
    EXPECT_EQ(attnc_cache_bytes(m.layer.get(), nullptr, &bytes, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "options is null");
    EXPECT_EQ(attnc_cache_bytes(nullptr, &m.options, &bytes, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "layer is null");
    EXPECT_EQ(attnc_cache_bytes(m.layer.get(), &m.options, nullptr, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "bytes is null");
}

TEST(CacheErrors, WhatTheLibraryOrLayerLacks) {
    Making none(ATTNC_CACHE_SLOTS, "d32_h2_f32:b2_q5_kv7");
    EXPECT_EQ(none.bytes(), (Failure{ATTNC_NOT_SUPPORTED,
                                     "a cache is asked for, but the library was compiled without cache"}));
    Making unpaged(ATTNC_CACHE_PAGED, "d32_h2_f32_cache:b2_q5_kv7");
    EXPECT_EQ(unpaged.bytes(),
              (Failure{ATTNC_NOT_SUPPORTED,
                       "a paged cache is asked for, but the library was compiled without a page size"}));
    EXPECT_EQ(made(ATTNC_CACHE_RING, [](Making& m) { m.layer = make_layer(m.library, m.call); }),
              (Failure{ATTNC_NOT_SUPPORTED, "a ring needs a layer with window_left"}));
    EXPECT_EQ(made(ATTNC_CACHE_RING,
                   [](Making& m) {
                       m.call.window_left = 3;
                       m.call.empty_rows = ATTNC_EMPTY_ROWS_MEAN_OF_VALUES;
                       m.layer = make_layer(m.library, m.call);
                   }),
              (Failure{ATTNC_NOT_SUPPORTED,
                       "a ring does not keep all keys, which empty_rows mean_of_values averages over"}));
}

TEST(CacheErrors, DeviceMemoryOnACpu) {
    Making m(ATTNC_CACHE_SLOTS);
    std::array<unsigned char, 64> memory{};
    m.options.device_memory = memory.data();
    const Failure refused = {ATTNC_BAD_VALUE,
                             "device_memory is given, but the layer is on target x86-64-linux"};
    EXPECT_EQ(m.bytes(), refused);
    m.options.device_memory = nullptr, m.options.device_bytes = 64;
    EXPECT_EQ(m.bytes(), refused);
    attnc_error error = {};
    size_t bytes = 1;
    m.options.device_bytes = 0;
    EXPECT_EQ(attnc_cache_device_bytes(m.layer.get(), &m.options, &bytes, &error), ATTNC_OK);
    EXPECT_EQ(bytes, 0U);
    EXPECT_EQ(attnc_cache_device_bytes(nullptr, &m.options, &bytes, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "layer is null");
    EXPECT_EQ(attnc_cache_device_bytes(m.layer.get(), &m.options, nullptr, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "bytes is null");
}

TEST(CacheErrors, Memory) {
    Making m(ATTNC_CACHE_SLOTS);
    size_t bytes = 0;
    ASSERT_EQ(attnc_cache_bytes(m.layer.get(), &m.options, &bytes, nullptr), ATTNC_OK);
    const GuardedMemory memory(bytes, Placement::kAtEnd, 64);
    auto* at = static_cast<unsigned char*>(memory.data());
    EXPECT_EQ(m.create(at, bytes), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(m.create(nullptr, bytes), (Failure{ATTNC_NULL_ARGUMENT, "memory is null"}));
    EXPECT_EQ(m.create(at + 4, bytes),
              (Failure{ATTNC_WORKSPACE_MISALIGNED, "memory is not aligned to 64 bytes"}));
    EXPECT_EQ(m.create(at, bytes - 1),
              (Failure{ATTNC_WORKSPACE_TOO_SMALL, "memory has " + std::to_string(bytes - 1) +
                                                      " bytes, wanted " + std::to_string(bytes)}));
}

// A call of 2 items of 5 new tokens to spoil; the items have 10 keys each in slots 0 and 1, or in pages 0 and 1.
struct CachedForward : Forward {
    GuardedMemory memory;
    attnc_cache* cache = nullptr;
    std::array<int32_t, 4> table{0, 2, 1, 3};
    std::array<int64_t, 2> lengths{10, 10}, slots{0, 1};

    explicit CachedForward(attnc_cache_kind kind)
        : Forward(kProblem), memory(bytes_of(kind), Placement::kAtEnd, 64) {
        layer.reset(windowed_layer(library, call));
        const attnc_cache_options options = options_of(kind);
        EXPECT_EQ(attnc_cache_create(layer.get(), &options, memory.data(), bytes_of(kind), &cache, nullptr),
                  ATTNC_OK);
        in.key = in.value = {};
        in.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        in.cache = cache;
        if (kind == ATTNC_CACHE_PAGED) {
            in.block_table = attnc_tensor_2d(ATTNC_I32, table.data(), 2, 2);
            in.cache_lengths = attnc_tensor_1d(ATTNC_I64, lengths.data(), 2);
            lengths = {0, 0};
        }
        for (int i = 0; i < 2; ++i) EXPECT_EQ(forward(), (Failure{ATTNC_OK, ""}));
        lengths = {10, 10};
        for (float& value : out_data) value = 7;
    }
    void give_slots(int64_t a, int64_t b) {
        slots = {a, b};
        in.cache_slots = attnc_tensor_1d(ATTNC_I64, slots.data(), 2);
    }

private:
    size_t bytes_of(attnc_cache_kind kind) const {
        Making making(kind);
        size_t bytes = 0;
        EXPECT_EQ(attnc_cache_bytes(making.layer.get(), &making.options, &bytes, nullptr), ATTNC_OK);
        return bytes;
    }
};

// The call is refused, and once it is right again it goes on as if nothing had been.
Failure spoilt(attnc_cache_kind kind, const std::function<void(CachedForward&)>& spoil) {
    CachedForward f(kind);
    const int64_t length = attnc_cache_length(f.cache, 0);
    spoil(f);
    const Failure failure = f.both();
    EXPECT_EQ(attnc_cache_length(f.cache, 0), length);
    return failure;
}

TEST(CacheErrors, TheUnspoiltCallsSucceed) {
    for (const attnc_cache_kind kind : {ATTNC_CACHE_SLOTS, ATTNC_CACHE_RING, ATTNC_CACHE_PAGED}) {
        CachedForward f(kind);
        EXPECT_EQ(f.forward(), (Failure{ATTNC_OK, ""}));
    }
}

TEST(CacheErrors, FieldsOfACacheWithoutOne) {
    const int32_t table[] = {0, 0};
    const int64_t numbers[] = {0, 0, 0, 0};
    const auto without = [](const std::function<void(attnc_inputs&)>& spoil) {
        Forward f;
        spoil(f.in);
        return f.both();
    };
    EXPECT_EQ(without([&](attnc_inputs& in) { in.cache_slots = attnc_tensor_1d(ATTNC_I64, numbers, 4); }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "cache_slots is given, but cache is missing"}));
    EXPECT_EQ(without([&](attnc_inputs& in) { in.block_table = attnc_tensor_2d(ATTNC_I32, table, 1, 2); }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "block_table is given, but cache is missing"}));
    EXPECT_EQ(without([&](attnc_inputs& in) { in.cache_lengths = attnc_tensor_1d(ATTNC_I64, numbers, 4); }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "cache_lengths is given, but cache is missing"}));
    EXPECT_EQ(without([&](attnc_inputs& in) { in.cache_use = ATTNC_CACHE_READ; }),
              (Failure{ATTNC_BAD_VALUE, "cache_use is 2, but cache is missing"}));
    EXPECT_EQ(without([&](attnc_inputs& in) { in.max_keys = 7; }),
              (Failure{ATTNC_BAD_VALUE, "max_keys is 7, but cache is missing"}));
}

TEST(CacheErrors, MaxKeys) {
    const auto most = [](int64_t keys) {
        return spoilt(ATTNC_CACHE_SLOTS, [&](CachedForward& f) { f.in.max_keys = keys; });
    };
    EXPECT_EQ(most(-1), (Failure{ATTNC_BAD_VALUE, "max_keys is -1, wanted 0 or more"}));
    EXPECT_EQ(most(int64_t{1} << 30),
              (Failure{ATTNC_TOO_LARGE, "max_keys is 1073741824, at most 1073741823"}));
    for (const attnc_cache_kind kind : {ATTNC_CACHE_SLOTS, ATTNC_CACHE_RING, ATTNC_CACHE_PAGED}) {
        EXPECT_EQ(spoilt(kind, [](CachedForward& f) { f.in.max_keys = 14; }),
                  (Failure{ATTNC_BAD_VALUE, "item 0 has 15 keys, but max_keys is 14"}));
    }
    // It is seq_kv of what counts keys.
    std::vector<float> bias(15);
    EXPECT_EQ(spoilt(ATTNC_CACHE_SLOTS,
                     [&](CachedForward& f) {
                         f.in.max_keys = 40;
                         f.in.bias = attnc_tensor_4d(ATTNC_F32, bias.data(), 1, 1, 1, 15);
                     }),
              (Failure{ATTNC_BAD_EXTENT, "bias has extent 15 in dimension 3 (seq_kv), wanted 1 or 40"}));
}

TEST(CacheErrors, CachesOfOtherLayers) {
    CachedForward f(ATTNC_CACHE_SLOTS), unpaged(ATTNC_CACHE_PAGED);
    const auto refused = [&](std::string_view problem, attnc_cache* cache) {
        Forward other(problem);
        other.in.cache = cache;
        return other.both();
    };
    EXPECT_EQ(refused("d32_h2_f32:b2_q5_kv7", f.cache),
              (Failure{ATTNC_NOT_SUPPORTED, "cache is given, but the library was compiled without cache"}));
    EXPECT_EQ(refused("d32_h4_kv2_f32_cache:b2_q5_kv7", f.cache),
              (Failure{ATTNC_BAD_VALUE,
                       "cache was made for 2 KV heads of 16 and 16 features, the layer has 2 of 8 and 8"}));
    EXPECT_EQ(refused("d32_h2_f32_cache_page32:b2_q5_kv7", unpaged.cache),
              (Failure{ATTNC_BAD_VALUE, "cache was made for pages of 16 keys, the layer has pages of 32"}));
    alignas(64) unsigned char nothing[256] = {};
    EXPECT_EQ(refused(kProblem, reinterpret_cast<attnc_cache*>(nothing)),
              (Failure{ATTNC_BAD_VALUE, "cache is not one that attnc_cache_create made"}));
}

TEST(CacheErrors, Use) {
    const auto use = [](const std::function<void(CachedForward&)>& spoil) {
        return spoilt(ATTNC_CACHE_SLOTS, spoil);
    };
    EXPECT_EQ(use([](CachedForward& f) { set_number(f.in.cache_use, 3); }),
              (Failure{ATTNC_BAD_VALUE, "cache_use is 3, wanted 0 to 2"}));
    EXPECT_EQ(use([](CachedForward& f) {
                  f.in.cache_use = ATTNC_CACHE_READ;
                  f.in.key = f.in.query;
              }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "key is given, but cache_use is read"}));
    EXPECT_EQ(use([](CachedForward& f) {
                  f.in.cache_use = ATTNC_CACHE_READ;
                  f.in.value = f.in.query;
              }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "value is given, but cache_use is read"}));
    EXPECT_EQ(use([](CachedForward& f) {
                  f.in.cache_use = ATTNC_CACHE_READ;
                  f.lengths = {5, 5};
                  f.in.key_lengths = attnc_tensor_1d(ATTNC_I64, f.lengths.data(), 2);
              }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "key_lengths is given, but cache_use is read"}));
}

TEST(CacheErrors, Slots) {
    const auto slots = [](int64_t a, int64_t b) {
        return spoilt(ATTNC_CACHE_SLOTS, [&](CachedForward& f) { f.give_slots(a, b); });
    };
    EXPECT_EQ(slots(0, 3), (Failure{ATTNC_BAD_VALUE, "cache_slots[1] is 3, wanted 0 to 2"}));
    EXPECT_EQ(slots(-1, 1), (Failure{ATTNC_BAD_VALUE, "cache_slots[0] is -1, wanted 0 to 2"}));
    EXPECT_EQ(slots(2, 2), (Failure{ATTNC_BAD_VALUE,
                                    "cache_slots gives slot 2 to items 0 and 1, which both append to it"}));
    EXPECT_EQ(spoilt(ATTNC_CACHE_SLOTS,
                     [](CachedForward& f) {
                         f.lengths = {5, 5};
                         f.in.cache_lengths = attnc_tensor_1d(ATTNC_I64, f.lengths.data(), 2);
                     }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "cache_lengths is given, but the cache is not paged"}));
    EXPECT_EQ(
        spoilt(ATTNC_CACHE_SLOTS,
               [](CachedForward& f) { f.in.block_table = attnc_tensor_2d(ATTNC_I32, f.table.data(), 2, 2); }),
        (Failure{ATTNC_UNEXPECTED_TENSOR, "block_table is given, but the cache is not paged"}));
    // More items than slots.
    CachedForward f(ATTNC_CACHE_SLOTS);
    Forward many("d32_h2_f32_cache_page16:b4_q5_kv5");
    many.in.cache = f.cache;
    EXPECT_EQ(many.both(), (Failure{ATTNC_BAD_EXTENT,
                                    "batch is 4, but cache_slots is missing and the cache has 3 slots"}));
}

TEST(CacheErrors, Room) {
    CachedForward f(ATTNC_CACHE_SLOTS);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(f.forward(), (Failure{ATTNC_OK, ""}));
    for (float& value : f.out_data) value = 7;
    EXPECT_EQ(f.both(),
              (Failure{ATTNC_BAD_VALUE, "slot 0 holds 30 keys and item 0 brings 5, but the capacity is 32"}));
    EXPECT_EQ(attnc_cache_length(f.cache, 0), 30);
}

TEST(CacheErrors, Rings) {
    // Window of 20, ring of 32: at most 12 new keys at a time.
    CachedForward f(ATTNC_CACHE_RING);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(f.forward(), (Failure{ATTNC_OK, ""}));
    Forward longer("d32_h2_f32_cache_page16:b2_q13_kv13");
    longer.in.key = longer.in.value = {};
    longer.in.cache = f.cache;
    longer.in.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    longer.layer.reset(windowed_layer(longer.library, longer.call));
    EXPECT_EQ(longer.forward(),
              (Failure{ATTNC_BAD_VALUE,
                       "item 0 needs the last 33 of its 123 keys, but the ring's capacity is 32"}));
    Forward longest("d32_h2_f32_cache_page16:b2_q33_kv33");
    longest.in.key = longest.in.value = {};
    longest.in.cache = f.cache;
    longest.layer.reset(windowed_layer(longest.library, longest.call));
    EXPECT_EQ(longest.both(),
              (Failure{ATTNC_BAD_VALUE, "item 0 brings 33 keys, but the ring's capacity is 32"}));
    // 110 keys, of which 78 .. are there; after 100 a query wants those from 80 on, after 90 those from 70 on.
    ASSERT_EQ(attnc_cache_rewind(f.cache, 0, 90, nullptr), ATTNC_OK);
    for (float& value : f.out_data) value = 7;
    EXPECT_EQ(f.forward(),
              (Failure{ATTNC_BAD_VALUE, "item 0 needs keys from 70 on, but slot 0 holds those from 78 on"}));
    // A layer without a window may not use it.
    Forward plain("d32_h2_f32_cache_page16:b2_q5_kv5");
    plain.in.cache = f.cache;
    EXPECT_EQ(plain.both(), (Failure{ATTNC_NOT_SUPPORTED, "a ring needs a layer with window_left"}));
}

TEST(CacheErrors, Pages) {
    const auto pages = [](const std::function<void(CachedForward&)>& spoil) {
        return spoilt(ATTNC_CACHE_PAGED, spoil);
    };
    EXPECT_EQ(pages([](CachedForward& f) { f.in.block_table = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "block_table is missing"}));
    EXPECT_EQ(pages([](CachedForward& f) { f.in.cache_lengths = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "cache_lengths is missing"}));
    EXPECT_EQ(pages([](CachedForward& f) { f.give_slots(0, 1); }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "cache_slots is given, but a paged cache has no slots"}));
    EXPECT_EQ(pages([](CachedForward& f) { f.in.block_table.dtype = ATTNC_I64; }),
              (Failure{ATTNC_BAD_DTYPE, "block_table has type i64, wanted i32"}));
    EXPECT_EQ(pages([](CachedForward& f) { f.lengths[1] = -2; }),
              (Failure{ATTNC_BAD_VALUE, "cache_lengths[1] is -2, wanted 0 to 32"}));
    EXPECT_EQ(pages([](CachedForward& f) { f.lengths[1] = 30; }),
              (Failure{ATTNC_BAD_VALUE,
                       "item 1 has 30 keys and brings 5, but its pages in block_table have room for 32"}));
    EXPECT_EQ(pages([](CachedForward& f) { f.table[2] = 6; }),
              (Failure{ATTNC_BAD_VALUE, "block_table[1][0] is 6, wanted 0 to 5"}));
    EXPECT_EQ(pages([](CachedForward& f) { f.table[2] = -1; }),
              (Failure{ATTNC_BAD_VALUE, "block_table[1][0] is -1, wanted 0 to 5"}));
    EXPECT_EQ(pages([](CachedForward& f) { f.table[2] = 0; }),
              (Failure{ATTNC_BAD_VALUE,
                       "block_table gives page 0 to item 0, which appends to it, and once more to item 1"}));
    // Item 0 goes on in the page that item 1 only reads.
    EXPECT_EQ(pages([](CachedForward& f) {
                  f.table = {0, 2, 2, 3};
                  f.lengths = {16, 16};
              }),
              (Failure{ATTNC_BAD_VALUE,
                       "block_table gives page 2 to item 0, which appends to it, and once more to item 1"}));
    // Pages past the keys are not looked at.
    EXPECT_EQ(pages([](CachedForward& f) { f.table[1] = f.table[3] = -9; }), (Failure{ATTNC_OK, ""}));
}

TEST(CacheErrors, Overlaps) {
    EXPECT_EQ(spoilt(ATTNC_CACHE_SLOTS, [](CachedForward& f) { f.out.out.data = f.memory.data(); }),
              (Failure{ATTNC_OVERLAP, "out overlaps the cache"}));
    EXPECT_EQ(spoilt(ATTNC_CACHE_SLOTS, [](CachedForward& f) { f.in.query.data = f.memory.data(); }),
              (Failure{ATTNC_OVERLAP, "query overlaps the cache"}));
    CachedForward f(ATTNC_CACHE_PAGED);
    f.run.workspace = f.memory.data();
    EXPECT_EQ(f.forward(), (Failure{ATTNC_OVERLAP, "the cache overlaps the workspace"}));
    CachedForward g(ATTNC_CACHE_PAGED);
    for (float& value : g.out_data) value = 0;
    g.in.cache_lengths.data = g.out_data.data();
    attnc_error error = {};
    EXPECT_EQ(attnc_layer_forward(g.layer.get(), &g.in, &g.out, &g.run, &error), ATTNC_OVERLAP);
    EXPECT_STREQ(error.text, "out overlaps cache_lengths");
}

TEST(CacheErrors, Rewinding) {
    CachedForward f(ATTNC_CACHE_SLOTS), ring(ATTNC_CACHE_RING), paged(ATTNC_CACHE_PAGED);
    const auto rewind = [](attnc_cache* cache, int64_t slot, int64_t length) {
        attnc_error error = {};
        const attnc_status status = attnc_cache_rewind(cache, slot, length, &error);
        return Failure{status, error.text};
    };
    EXPECT_EQ(rewind(nullptr, 0, 0), (Failure{ATTNC_NULL_ARGUMENT, "cache is null"}));
    EXPECT_EQ(rewind(paged.cache, 0, 0),
              (Failure{ATTNC_NOT_SUPPORTED, "a paged cache keeps no lengths to rewind"}));
    EXPECT_EQ(rewind(f.cache, 3, 0), (Failure{ATTNC_BAD_VALUE, "slot is 3, wanted 0 to 2"}));
    EXPECT_EQ(rewind(f.cache, 0, 11), (Failure{ATTNC_BAD_VALUE, "length is 11, wanted 0 to 10"}));
    EXPECT_EQ(rewind(f.cache, 0, -1), (Failure{ATTNC_BAD_VALUE, "length is -1, wanted 0 to 10"}));
    for (int i = 0; i < 10; ++i) EXPECT_EQ(ring.forward(), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(rewind(ring.cache, 1, 27),
              (Failure{ATTNC_BAD_VALUE, "length is 27, but the ring holds keys from 28 on"}));
    EXPECT_EQ(rewind(ring.cache, 1, 28), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(rewind(ring.cache, 1, 0), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(attnc_cache_length(ring.cache, 1), 0);
    EXPECT_EQ(attnc_cache_length(ring.cache, 3), -1);
    EXPECT_EQ(attnc_cache_length(paged.cache, 0), -1);
    EXPECT_EQ(attnc_cache_length(nullptr, 0), -1);
}

TEST(CacheErrors, Reordering) {
    CachedForward f(ATTNC_CACHE_SLOTS), paged(ATTNC_CACHE_PAGED);
    const auto reorder = [](attnc_cache* cache, const int64_t* from, int64_t count) {
        attnc_error error = {};
        const attnc_status status = attnc_cache_reorder(cache, from, count, &error);
        return Failure{status, error.text};
    };
    const int64_t from[] = {1, 3, 0, 0};
    EXPECT_EQ(reorder(nullptr, from, 1), (Failure{ATTNC_NULL_ARGUMENT, "cache is null"}));
    EXPECT_EQ(reorder(paged.cache, from, 1),
              (Failure{ATTNC_NOT_SUPPORTED, "a paged cache is reordered in its block tables"}));
    EXPECT_EQ(reorder(f.cache, from, 4), (Failure{ATTNC_BAD_VALUE, "count is 4, wanted 0 to 3"}));
    EXPECT_EQ(reorder(f.cache, from, -1), (Failure{ATTNC_BAD_VALUE, "count is -1, wanted 0 to 3"}));
    EXPECT_EQ(reorder(f.cache, nullptr, 2), (Failure{ATTNC_NULL_ARGUMENT, "from is null"}));
    EXPECT_EQ(reorder(f.cache, from, 3), (Failure{ATTNC_BAD_VALUE, "from[1] is 3, wanted 0 to 2"}));
    EXPECT_EQ(reorder(f.cache, nullptr, 0), (Failure{ATTNC_OK, ""}));
}

// An export of keys 2 .. 6 of slots 0 and 1 to spoil, or an import.
struct Copying {
    CachedForward forward;
    attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;
    std::vector<float> data = std::vector<float>(static_cast<size_t>(2 * 2 * 4 * 16), 1);
    attnc_tensor key, value;

    explicit Copying(attnc_cache_kind kind)
        : forward(kind), key(attnc_tensor_4d(ATTNC_F32, data.data(), 2, 2, 4, 16)), value(key) {
        range.first = 2, range.count = 4;
        if (kind == ATTNC_CACHE_PAGED) range.block_table = forward.in.block_table;
    }
    Failure exports() {
        attnc_error error = {};
        const attnc_status status = attnc_cache_export(forward.cache, &range, &key, nullptr, &error);
        return {status, error.text};
    }
    Failure imports() {
        attnc_error error = {};
        const attnc_status status = attnc_cache_import(forward.cache, &range, &key, &value, &error);
        return {status, error.text};
    }
};

TEST(CacheErrors, Copies) {
    const auto exported = [](const std::function<void(Copying&)>& spoil,
                             attnc_cache_kind kind = ATTNC_CACHE_SLOTS) {
        Copying c(kind);
        spoil(c);
        return c.exports();
    };
    const auto imported = [](const std::function<void(Copying&)>& spoil,
                             attnc_cache_kind kind = ATTNC_CACHE_SLOTS) {
        Copying c(kind);
        spoil(c);
        return c.imports();
    };
    for (const attnc_cache_kind kind : {ATTNC_CACHE_SLOTS, ATTNC_CACHE_RING, ATTNC_CACHE_PAGED}) {
        EXPECT_EQ(exported([](Copying&) {}, kind), (Failure{ATTNC_OK, ""}));
        EXPECT_EQ(imported([](Copying&) {}, kind), (Failure{ATTNC_OK, ""}));
    }
    EXPECT_EQ(exported([](Copying& c) { c.range.struct_size = 0; }),
              (Failure{ATTNC_BAD_STRUCT_SIZE, "struct_size of attnc_cache_range is 0, wanted " +
                                                  std::to_string(sizeof(attnc_cache_range))}));
    EXPECT_EQ(exported([](Copying& c) { c.range.first = -1; }),
              (Failure{ATTNC_BAD_VALUE, "first is -1, wanted 0 or more"}));
    EXPECT_EQ(exported([](Copying& c) { c.range.count = -1; }),
              (Failure{ATTNC_BAD_VALUE, "count is -1, wanted 0 or more"}));
    EXPECT_EQ(exported([](Copying& c) { c.range.first = int64_t{1} << 62; }),
              (Failure{ATTNC_TOO_LARGE, "first + count is more than 1073741823"}));
    EXPECT_EQ(exported([](Copying& c) { c.range.count = 5; }),
              (Failure{ATTNC_BAD_EXTENT, "key has extent 4 in dimension 2 (count), wanted 5"}));
    EXPECT_EQ(exported([](Copying& c) { c.range.first = 7; }),
              (Failure{ATTNC_BAD_VALUE, "slot 0 has 10 keys, but first + count is 11"}));
    EXPECT_EQ(exported([](Copying& c) { c.key = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "key and value are missing"}));
    EXPECT_EQ(exported([](Copying& c) { c.key.data = c.forward.memory.data(); }),
              (Failure{ATTNC_OVERLAP, "key overlaps the cache"}));
    EXPECT_EQ(exported([](Copying& c) {
                  c.range.block_table = attnc_tensor_2d(ATTNC_I32, c.forward.table.data(), 2, 2);
              }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "block_table is given, but the cache is not paged"}));
    EXPECT_EQ(exported([](Copying& c) {
                  c.forward.slots = {0, 9};
                  c.range.slots = attnc_tensor_1d(ATTNC_I64, c.forward.slots.data(), 2);
              }),
              (Failure{ATTNC_BAD_VALUE, "slots[1] is 9, wanted 0 to 2"}));
    EXPECT_EQ(exported([](Copying& c) {
                  c.key = attnc_tensor_4d(ATTNC_F32, c.data.data(), 4, 2, 4, 8);
                  c.key = attnc_tensor_4d(ATTNC_F32, c.data.data(), 4, 2, 4, 16);
                  c.data.resize(4 * 2 * 4 * 16);
                  c.key.data = c.data.data();
              }),
              (Failure{ATTNC_BAD_EXTENT, "batch is 4, but slots is missing and the cache has 3 slots"}));
    EXPECT_EQ(exported(
                  [](Copying& c) {
                      for (int i = 0; i < 10; ++i) c.forward.forward();
                      c.range.first = 27;
                  },
                  ATTNC_CACHE_RING),
              (Failure{ATTNC_BAD_VALUE, "first is 27, but slot 0 holds keys from 28 on"}));
    EXPECT_EQ(exported([](Copying& c) { c.range.block_table = {}; }, ATTNC_CACHE_PAGED),
              (Failure{ATTNC_MISSING_TENSOR, "block_table is missing"}));
    EXPECT_EQ(
        exported([](Copying& c) { c.range.slots = attnc_tensor_1d(ATTNC_I64, c.forward.slots.data(), 2); },
                 ATTNC_CACHE_PAGED),
        (Failure{ATTNC_UNEXPECTED_TENSOR, "slots is given, but a paged cache has no slots"}));
    EXPECT_EQ(exported([](Copying& c) { c.range.first = 30; }, ATTNC_CACHE_PAGED),
              (Failure{ATTNC_BAD_VALUE,
                       "first + count is 34, but block_table has 2 pages of 16 keys for an item"}));
    EXPECT_EQ(exported([](Copying& c) { c.forward.table[2] = 6; }, ATTNC_CACHE_PAGED),
              (Failure{ATTNC_BAD_VALUE, "block_table[1][0] is 6, wanted 0 to 5"}));
    EXPECT_EQ(imported([](Copying& c) { c.value = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "value is missing"}));
    EXPECT_EQ(imported([](Copying& c) { c.range.first = 11; }),
              (Failure{ATTNC_BAD_VALUE, "first is 11, but slot 0 has 10 keys"}));
    EXPECT_EQ(imported([](Copying& c) {
                  for (int i = 0; i < 4; ++i) c.forward.forward();
                  c.range.first = 29;
              }),
              (Failure{ATTNC_BAD_VALUE, "first + count is 33, but the capacity is 32"}));
    EXPECT_EQ(imported(
                  [](Copying& c) {
                      c.range.count = 33;
                      c.data.resize(2 * 2 * 33 * 16);
                      c.key = c.value = attnc_tensor_4d(ATTNC_F32, c.data.data(), 2, 2, 33, 16);
                  },
                  ATTNC_CACHE_RING),
              (Failure{ATTNC_BAD_VALUE, "count is 33, but the ring's capacity is 32"}));
}

// A memory of 2 items of 5 tokens to spoil.
Failure projected(const std::function<void(CachedForward&)>& spoil) {
    CachedForward f(ATTNC_CACHE_SLOTS);
    f.in.key = f.in.query;
    f.in.query = {};
    f.in.causal = ATTNC_CAUSAL_NOT_GIVEN;
    spoil(f);
    attnc_error error = {};
    const attnc_status status = attnc_memory_project(f.layer.get(), &f.in, f.cache, &f.run, &error);
    EXPECT_EQ(attnc_cache_length(f.cache, 0), status == ATTNC_OK ? 15 : 10);
    return {status, error.text};
}

TEST(CacheErrors, Memories) {
    EXPECT_EQ(projected([](CachedForward&) {}), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(projected([](CachedForward& f) { f.in.query = f.in.key; }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "query is given, but a memory has no queries"}));
    EXPECT_EQ(projected([](CachedForward& f) {
                  f.in.key_bias = attnc_tensor_2d(ATTNC_F32, f.out_data.data(), 2, 15);
              }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "key_bias is given, but a memory has no queries"}));
    EXPECT_EQ(projected([](CachedForward& f) { f.in.causal = ATTNC_CAUSAL_TOP_LEFT; }),
              (Failure{ATTNC_BAD_VALUE, "causal is 2, but a memory has no queries, wanted 0"}));
    EXPECT_EQ(projected([](CachedForward& f) { f.in.cache_use = ATTNC_CACHE_READ; }),
              (Failure{ATTNC_BAD_VALUE, "cache_use is 2, but a memory has no queries, wanted 0"}));
    EXPECT_EQ(projected([](CachedForward& f) { f.in.key = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "key is missing"}));
    EXPECT_EQ(projected([](CachedForward& f) { f.run.workspace = nullptr; }),
              (Failure{ATTNC_NULL_ARGUMENT, "run.workspace is null"}));
    EXPECT_EQ(projected([](CachedForward& f) { f.run.workspace = f.memory.data(); }),
              (Failure{ATTNC_OVERLAP, "the cache overlaps the workspace"}));
    EXPECT_EQ(
        projected([](CachedForward& f) { f.give_slots(1, 1); }),
        (Failure{ATTNC_BAD_VALUE, "cache_slots gives slot 1 to items 0 and 1, which both append to it"}));
    CachedForward other(ATTNC_CACHE_SLOTS);
    EXPECT_EQ(projected([&](CachedForward& f) { f.in.cache = other.cache; }),
              (Failure{ATTNC_BAD_VALUE, "inputs.cache is another cache"}));
    attnc_error error = {};
    EXPECT_EQ(attnc_memory_project(other.layer.get(), &other.in, nullptr, &other.run, &error),
              ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "cache is null");
}

}  // namespace
}  // namespace attnc::test
