// Caches on a device, and heads rotated by themselves: what is launched and copied, by whose stream, and what the driver's
// refusals leave behind. That calls compute what they should is runtime_cache_test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "runtime/attnc.hpp"
#include "tests/harness/cached_run.h"
#include "tests/support/device_fixture.h"

namespace attnc::test {
namespace {

using DeviceCaches = DeviceTest;
using Names = std::vector<std::string>;

FakeLayout device_layout() {
    FakeLayout layout;
    layout.device = true;
    return layout;
}

// Functions launched since the last look.
Names launched() {
    Names names;
    const std::string prefix = "_kernel_";
    for (const stand_in::Launch& launch : stand_in::launches())
        names.push_back(launch.function.substr(prefix.size()));
    stand_in::forget_calls();
    return names;
}

// A library, and calls of one layer of it that share a cache.
struct Caching {
    LayerCall call;
    FakeLibrary library;
    CachedLayer cached;

    explicit Caching(const LayerCall& of, const CacheShape& shape = {ATTNC_CACHE_SLOTS, 2, 96})
        : call(of), library(of.config, device_layout()), cached(library.get(), of, shape, "cuda") {
        stand_in::forget_calls();
    }
};

TEST_F(DeviceCaches, AppendWhatWasProjectedAndGrowAtTheEnd) {
    Caching c(self_attention("d32_h2_f32_cache:b2_q40_kv40", 1));
    ASSERT_EQ(c.cached.append(part_of(c.call, {0, 20, 0, 20})).status, ATTNC_OK);
    EXPECT_EQ(launched(),
              (Names{"fill_cache", "fill_items", "fill_runs", "project_heads", "append_rows", "attend",
                     "attend_suspects", "attend_guarded", "project_out", "keep_lengths"}));
    // A step of generation.
    ASSERT_EQ(c.cached.append(part_of(c.call, {20, 1, 20, 1})).status, ATTNC_OK);
    EXPECT_EQ(launched(), (Names{"fill_cache", "fill_items", "fill_runs", "project_heads", "append_rows",
                                 "attend_decode", "project_out", "keep_lengths"}));
    ASSERT_EQ(c.cached.read(part_of(c.call, {20, 1, 0, 21})).status, ATTNC_OK);
    EXPECT_EQ(launched(), (Names{"fill_cache", "fill_items", "fill_runs", "project_heads", "attend_decode",
                                 "project_out"}));
}

TEST_F(DeviceCaches, NewKeysHaveCountsOfTheirOwnOnlyWhereTheyDiffer) {
    LayerCall call = self_attention("d32_h2_f32_cache:b2_q20_kv20", 2);
    Caching c(call);
    const auto tables = [](const Names& names) {
        return std::count(names.begin(), names.end(), "fill_items");
    };
    call.query_lengths = call.key_lengths = {{2}, {20, 7}};
    ASSERT_EQ(c.cached.append(call).status, ATTNC_OK);
    EXPECT_EQ(tables(launched()), 2);  // copies of equal lengths are other lengths
    call.query_lengths = {};
    call.sizes.seq_kv = 40;
    ASSERT_EQ(c.cached.append(call).status, ATTNC_OK);
    EXPECT_EQ(tables(launched()), 2);
    call.key_lengths = {};
    call.sizes.seq_kv = 60;
    ASSERT_EQ(c.cached.append(call).status, ATTNC_OK);
    EXPECT_EQ(tables(launched()), 1);
    EXPECT_EQ(c.cached.length(0), 60);
    EXPECT_EQ(c.cached.length(1), 34);
}

TEST_F(DeviceCaches, OtherCallsOfSuchALibraryFindTheirKeysByRunsToo) {
    LayerCall call = self_attention("d32_h2_f32_biaskv_cache:b2_q20_kv20", 3);
    Caching c(call);
    ASSERT_EQ(c.cached.plain(call).status, ATTNC_OK);
    EXPECT_EQ(launched(),
              (Names{"fill_items", "fill_items", "fill_runs", "fill_runs", "project_heads", "attend",
                     "attend_suspects", "attend_guarded", "attend", "attend_merge", "project_out"}));
    FakeOptions options;
    options.device = true;
    for (const char* problem :
         {"d32_h4_kv2_f32_cache_page16:b3_q20_kv37", "d32_h2_f32_cache:b2_q1_kv70",
          "d32_h2_f32_biaskv_zeroattn_sink_cache:b2_q9_kv40", "d32_h2_f32_noin_noout_cache:b2_q5_kv0"}) {
        EXPECT_TRUE(matches(everything(problem, 4), options));
    }
}

TEST_F(DeviceCaches, AMemoryIsProjectedWithoutQueries) {
    LayerCall call = random_call("d32_h2_f32_qknorm_rope_cache:b2_q5_kv30", 5);
    Caching c(call);
    ASSERT_EQ(c.cached.memory(call).status, ATTNC_OK);
    EXPECT_EQ(launched(),
              (Names{"fill_cache", "fill_items", "fill_runs", "project_heads", "project_heads", "norm_heads",
                     "rotary_angles", "rotate_heads", "append_rows", "keep_lengths"}));
    EXPECT_EQ(c.cached.length(1), 30);
}

// Positions go on behind the keys of a cache, on a device by a table that it makes.
TEST_F(DeviceCaches, RotateByTheKeysThatTheyHave) {
    for (const char* problem :
         {"d32_h2_f32_rope_cache:b2_q40_kv40", "d32_h2_f32_ropepairs_qknorm_cache:b2_q40_kv40"}) {
        Caching c(self_attention(problem, 6));
        const RunResult whole = c.cached.plain(c.call);
        ASSERT_EQ(whole.status, ATTNC_OK) << whole.error;
        int64_t first = 0;
        for (const int64_t count : {17, 1, 1, 20, 1}) {
            const RunResult got = c.cached.append(part_of(c.call, {first, count, first, count}));
            ASSERT_EQ(got.status, ATTNC_OK) << got.error;
            for (int64_t n = 0; n < 2 * count * 32; ++n) {
                const int64_t item = n / (count * 32), rest = n % (count * 32);
                EXPECT_NEAR(got.out[static_cast<size_t>(n)],
                            whole.out[static_cast<size_t>((item * 40 + first) * 32 + rest)], 1e-4)
                    << first << " " << n;
            }
            first += count;
        }
    }
}

TEST_F(DeviceCaches, ForwardOnlyLaunchesOnTheCallersStream) {
    void* context = stand_in::make_context(0);
    stand_in::push_context(context);
    void* stream = stand_in::make_stream(context);
    {
        Caching c(self_attention("d32_h2_f32_biaskv_rope_cache:b2_q20_kv20", 7));
        attnc_inputs in = c.call.inputs();
        in.cache = c.cached.cache();
        std::vector<float> out(2 * 20 * 32);
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = attnc_tensor_3d(ATTNC_F32, out.data(), 2, 20, 32);
        attnc_run run = ATTNC_RUN_INIT;
        run.stream = stream;
        ASSERT_EQ(attnc_layer_workspace(c.cached.layer(), &in, &outputs, &run, &run.workspace_bytes, nullptr),
                  ATTNC_OK);
        const GuardedMemory workspace(run.workspace_bytes, Placement::kAtEnd, 256);
        run.workspace = workspace.data();
        stand_in::forget_calls();
        // As a graph does: the same call again, which goes on where the last one ended.
        for (int round = 0; round < 4; ++round)
            ASSERT_EQ(attnc_layer_forward(c.cached.layer(), &in, &outputs, &run, nullptr), ATTNC_OK);
        const Names calls = stand_in::calls();
        for (const std::string& name : calls) {
            EXPECT_TRUE(name == "cuLaunchKernel" || name == "cuCtxPushCurrent_v2" ||
                        name == "cuCtxPopCurrent_v2")
                << name;
        }
        for (const stand_in::Launch& launch : stand_in::launches()) EXPECT_EQ(launch.stream, stream);
        EXPECT_EQ(attnc_device_synchronize(c.cached.layer(), stream, nullptr), ATTNC_OK);
        EXPECT_EQ(c.cached.length(0), 80);
        EXPECT_EQ(stand_in::context_stack(), std::vector<void*>{context});
    }
    stand_in::pop_context();
}

// A packed batch's rows are one item to all that goes by rows; how many keys each item brings is found out first.
TEST_F(DeviceCaches, PackedBatchesCountTheirKeysFirst) {
    LayerCall call = self_attention("d32_h2_f32_rope_cache:b2_q20_kv20", 17);
    call.query_lengths = call.key_lengths = {{2}, {20, 7}};
    Caching c(call);
    ASSERT_EQ(c.cached.append_packed(call, {}, {.gap = 1}).status, ATTNC_OK);
    EXPECT_EQ(launched(), (Names{"fill_items", "fill_cache", "fill_items", "fill_items", "fill_runs",
                                 "project_heads", "fill_positions", "rotary_angles", "rotate_heads",
                                 "rotate_heads", "append_rows", "attend", "attend_suspects", "attend_guarded",
                                 "project_out", "clear_rows", "keep_lengths"}));
    EXPECT_EQ(c.cached.length(0), 20);
    EXPECT_EQ(c.cached.length(1), 7);
}

// Nobody on the host sees that; what there is no room for is left out.
TEST_F(DeviceCaches, APackedItemFillsARingAtMost) {
    LayerCall call = self_attention("d32_h2_f32_cache:b2_q40_kv40", 18);
    call.window_left = 5;
    call.query_lengths = call.key_lengths = {{2}, {40, 12}};
    Caching c(call, {ATTNC_CACHE_RING, 2, 32});
    ASSERT_EQ(c.cached.append_packed(call).status, ATTNC_OK);
    EXPECT_EQ(c.cached.length(0), 32);
    EXPECT_EQ(c.cached.length(1), 12);
}

// More items than a wave has, with and without slots of their own.
TEST_F(DeviceCaches, WavesHaveTheSlotsOfTheirItems) {
    constexpr int64_t kItems = 600;
    Caching c(self_attention("d16_h1_f32_cache:b600_q60_kv60", 8), {ATTNC_CACHE_SLOTS, kItems, 64});
    const LayerCall first = part_of(c.call, {0, 40, 0, 40}), next = part_of(c.call, {40, 20, 40, 20});
    ASSERT_EQ(c.cached.append(first).status, ATTNC_OK);
    const Names names = launched();
    EXPECT_EQ(std::ranges::count(names, "fill_runs"), 2);
    EXPECT_EQ(std::ranges::count(names, "fill_cache"), 1);
    EXPECT_EQ(std::ranges::count(names, "keep_lengths"), 1);
    const RunResult got = c.cached.append(next);
    ASSERT_EQ(got.status, ATTNC_OK) << got.error;
    Caching other(c.call, {ATTNC_CACHE_SLOTS, kItems, 64});
    std::vector<int64_t> slots(kItems);
    std::iota(slots.rbegin(), slots.rend(), 0);
    ASSERT_EQ(other.cached.append(first, slots).status, ATTNC_OK);
    EXPECT_EQ(got.out, other.cached.append(next, slots).out);
    EXPECT_EQ(other.cached.length(599), 60);
}

// Tables in memory that the host may not look at before the work runs.
TEST_F(DeviceCaches, ReadNoTablesOnTheHost) {
    const LayerCall call = self_attention("d32_h2_f32_cache_page16:b2_q20_kv20", 9);
    constexpr size_t kPage = 4096;
    auto* memory = static_cast<int32_t*>(
        mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    for (const attnc_cache_kind kind : {ATTNC_CACHE_SLOTS, ATTNC_CACHE_PAGED}) {
        Caching c(call, {kind, 2, 64});
        attnc_inputs in = call.inputs();
        in.cache = c.cached.cache();
        const int32_t numbers[] = {1, 0, 16, 3, 0, 0, 4, 2, 1, 3};
        std::copy_n(numbers, 10, memory);
        in.key_lengths = in.query_lengths = attnc_tensor_1d(ATTNC_I32, memory + 2, 2);
        if (kind == ATTNC_CACHE_SLOTS) in.cache_slots = attnc_tensor_1d(ATTNC_I32, memory, 2);
        if (kind == ATTNC_CACHE_PAGED) {
            in.cache_lengths = attnc_tensor_1d(ATTNC_I32, memory + 4, 2);
            in.block_table = attnc_tensor_2d(ATTNC_I32, memory + 6, 2, 2);
        }
        std::vector<float> out(2 * 20 * 32);
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = attnc_tensor_3d(ATTNC_F32, out.data(), 2, 20, 32);
        attnc_run run = ATTNC_RUN_INIT;
        ASSERT_EQ(mprotect(memory, kPage, PROT_NONE), 0);
        attnc_error error = {};
        ASSERT_EQ(attnc_layer_workspace(c.cached.layer(), &in, &outputs, &run, &run.workspace_bytes, &error),
                  ATTNC_OK)
            << error.text;
        const GuardedMemory workspace(run.workspace_bytes, Placement::kAtEnd, 256);
        run.workspace = workspace.data();
        EXPECT_EQ(attnc_layer_forward(c.cached.layer(), &in, &outputs, &run, &error), ATTNC_OK) << error.text;
        ASSERT_EQ(mprotect(memory, kPage, PROT_READ | PROT_WRITE), 0);
        EXPECT_EQ(attnc_device_synchronize(c.cached.layer(), nullptr, nullptr), ATTNC_OK);
        LayerCall padded = call;
        padded.key_lengths = padded.query_lengths = {{2}, {16, 3}};
        EXPECT_EQ(out, c.cached.plain(padded).out);
        if (kind == ATTNC_CACHE_SLOTS) {
            EXPECT_EQ(c.cached.length(1), 16);
        }
    }
    munmap(memory, kPage);
}

TEST_F(DeviceCaches, WhatIsOutOfRangeBecomesTheNearest) {
    const LayerCall call = self_attention("d32_h2_f32_cache_page16:b2_q20_kv20", 10);
    Caching c(call, {ATTNC_CACHE_SLOTS, 3, 32}), right(call, {ATTNC_CACHE_SLOTS, 3, 32});
    const RunResult wrong_slots = c.cached.append(call, {-5, 17});
    EXPECT_EQ(wrong_slots.out, right.cached.append(call, {0, 2}).out);
    EXPECT_EQ(c.cached.length(0), 20);
    EXPECT_EQ(c.cached.length(2), 20);
    // There is room for 12 more keys; the others are left out, and queries still see those that are there.
    LayerCall more = call;
    more.causal = ATTNC_CAUSAL_NONE;
    more.sizes.seq_kv = 40;
    ASSERT_EQ(c.cached.append(more, {0, 2}).status, ATTNC_OK);
    EXPECT_EQ(c.cached.length(0), 32);
    EXPECT_EQ(c.cached.length(1), 0);
    EXPECT_EQ(c.cached.length(2), 32);
    // So they are where max_keys is less than the room.
    LayerCall fewer = call;
    fewer.causal = ATTNC_CAUSAL_NONE;
    fewer.sizes.seq_kv = 9;
    ASSERT_EQ(c.cached.append(fewer, {1, 0}).status, ATTNC_OK);
    EXPECT_EQ(c.cached.length(1), 9);
}

TEST_F(DeviceCaches, KeepPaddingZero) {
    const LayerCall call = self_attention("d20_h2_hd5_vhd7_f32_cache:b2_q20_kv20", 11);
    LayerCall crossed = call;
    crossed.key = crossed.value = crossed.query;
    Caching c(crossed);
    ASSERT_EQ(c.cached.append(crossed).status, ATTNC_OK);
    for (const float value : c.cached.read(crossed).out) ASSERT_TRUE(std::isfinite(value));
}

struct Failing {
    int result;
    attnc_status status;
    const char* name;
};
constexpr Failing kFailing[] = {{2, ATTNC_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                                {100, ATTNC_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
                                {700, ATTNC_DEVICE_FAILED, "CUDA_ERROR_ILLEGAL_ADDRESS"}};

// Whichever call of the driver fails, the function says which, and the thread's contexts are as before.
void expect_every_failure_told(const std::function<attnc_status(attnc_error*)>& function,
                               int64_t least_calls) {
    for (const Failing& failing : kFailing) {
        int64_t calls = 0;
        for (int64_t n = 1;; ++n) {
            attnc_error error = {};
            stand_in::fail_call(n, failing.result);
            const attnc_status status = function(&error);
            const bool failed = stand_in::has_failed();
            stand_in::fail_call(0, 0);
            stand_in::synchronize();
            if (!failed) {
                EXPECT_EQ(status, ATTNC_OK) << error.text;
                break;
            }
            ++calls;
            EXPECT_EQ(status, failing.status) << n;
            EXPECT_NE(std::string(error.text).find(failing.name), std::string::npos) << error.text;
            EXPECT_EQ(stand_in::context_stack(), std::vector<void*>()) << n;
        }
        EXPECT_GE(calls, least_calls);
    }
}

TEST_F(DeviceCaches, EveryFailureOfACopyIsToldAndTheContextIsAsBefore) {
    const LayerCall call = self_attention("d20_h2_hd5_vhd7_f32_cache:b3_q20_kv20", 12);
    LayerCall crossed = call;
    crossed.key = crossed.value = crossed.query;
    Caching c(crossed, {ATTNC_CACHE_SLOTS, 3, 64});
    ASSERT_EQ(c.cached.append(crossed).status, ATTNC_OK);
    attnc_cache* cache = c.cached.cache();
    Array<float> key = filled<float>({3, 2, 20, 5}, 0), value = filled<float>({3, 2, 20, 7}, 0);
    const attnc_tensor k = key.view(), v = value.view();
    attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;
    range.count = 20;
    expect_every_failure_told(
        [&](attnc_error* error) { return attnc_cache_export(cache, &range, &k, &v, error); }, 20);
    expect_every_failure_told(
        [&](attnc_error* error) { return attnc_cache_import(cache, &range, &k, &v, error); }, 30);
    expect_every_failure_told([&](attnc_error* error) { return attnc_cache_rewind(cache, 0, 20, error); }, 8);
    const int64_t from[] = {1, 2, 0};
    expect_every_failure_told([&](attnc_error* error) { return attnc_cache_reorder(cache, from, 3, error); },
                              13);
    stand_in::fail_call(2, 700);
    EXPECT_EQ(attnc_cache_length(cache, 0), -1);
    EXPECT_EQ(attnc_cache_length(cache, 0), 20);
}

// The keys that a slot says it holds, and what they are: from the first that can be exported on.
struct HeldKeys {
    int64_t first = 0, length = 0;
    std::vector<float> values;  // of all heads of `first` .. length
};
HeldKeys held_keys(const attnc_cache* cache, int64_t slot) {
    HeldKeys held = {.first = 0, .length = attnc_cache_length(cache, slot), .values = {}};
    const std::vector<int64_t> slots = {slot};
    for (;; ++held.first) {
        Array<float> key = filled<float>({1, 2, held.length - held.first, 16}, 0);
        attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;
        range.slots = attnc_tensor_1d(ATTNC_I64, slots.data(), 1);
        range.first = held.first, range.count = held.length - held.first;
        const attnc_tensor to = key.view();
        if (attnc_cache_export(cache, &range, &to, nullptr, nullptr) != ATTNC_OK) continue;
        held.values = key.values;
        return held;
    }
}

// A call that fails in the middle may have overwritten a ring's oldest keys. They are not held any more; all others are what
// they were, and no slot has grown, not those of a wave that went through.
TEST_F(DeviceCaches, AfterAnyFailureARingHoldsWhatItSays) {
    constexpr int64_t kItems = 320, kHeld = 80, kNew = 54, kRows = 64;  // two waves
    LayerCall call = self_attention("d32_h2_f32_cache:b320_q134_kv134", 19);
    call.window_left = 10;
    const LayerCall first = appended(call, 0, 40), second = appended(call, 40, 40),
                    third = appended(call, kHeld, kNew);
    const auto filled_ring = [&] {
        auto c = std::make_unique<Caching>(call, CacheShape{ATTNC_CACHE_RING, kItems, kRows});
        EXPECT_EQ(c->cached.append(first).status, ATTNC_OK);
        EXPECT_EQ(c->cached.append(second).status, ATTNC_OK);
        return c;
    };
    const auto c = filled_ring();
    std::vector<HeldKeys> before;
    const std::vector<int64_t> slots = {0, 1, 302, 303, 319};
    for (const int64_t slot : slots) before.push_back(held_keys(c->cached.cache(), slot));
    EXPECT_EQ(before[0].first, kHeld - kRows);
    int64_t failures = 0, forgotten = 0;
    for (int64_t n = 1;; ++n, ++failures) {
        stand_in::forget_calls();
        stand_in::fail_call(n, 700);
        ASSERT_EQ(c->cached.append(third).status, ATTNC_DEVICE_FAILED) << "call " << n;
        stand_in::fail_call(0, 0);
        // The last call of the driver comes after all launches, and the ring has grown.
        if (std::ranges::count(launched(), "keep_lengths") == 2) break;
        for (size_t s = 0; s < slots.size(); ++s) {
            const HeldKeys now = held_keys(c->cached.cache(), slots[s]);
            ASSERT_EQ(now.length, kHeld) << "call " << n << " slot " << slots[s];
            ASSERT_TRUE(now.first == kHeld - kRows || now.first == kHeld + kNew - kRows) << "call " << n;
            if (now.first > before[s].first) ++forgotten;
            const auto kept = static_cast<size_t>(now.length - now.first) * 16;
            const auto was = static_cast<size_t>(before[s].length - before[s].first) * 16;
            for (size_t head = 0; head < 2; ++head) {
                for (size_t i = 0; i < kept; ++i)
                    ASSERT_EQ(now.values[head * kept + i], before[s].values[head * was + was - kept + i])
                        << "call " << n << " slot " << slots[s] << " " << i;
            }
        }
    }
    EXPECT_GE(failures, 20);
    EXPECT_GT(forgotten, 0);
    // What all launches have made is what a ring has that never saw a failure.
    const auto other = filled_ring();
    ASSERT_EQ(other->cached.append(third).status, ATTNC_OK);
    for (const int64_t slot : slots) {
        const HeldKeys got = held_keys(c->cached.cache(), slot),
                       want = held_keys(other->cached.cache(), slot);
        EXPECT_EQ(got.first, want.first);
        EXPECT_EQ(got.length, kHeld + kNew);
        EXPECT_EQ(got.values, want.values);
    }
}

TEST_F(DeviceCaches, EveryFailureToMakeOneIsTold) {
    Caching c(self_attention("d32_h2_f32_cache:b2_q20_kv20", 13));
    attnc_cache_options options = ATTNC_CACHE_OPTIONS_INIT;
    options.slots = 2, options.capacity = 20;
    size_t bytes = 0;
    ASSERT_EQ(attnc_cache_bytes(c.cached.layer(), &options, &bytes, nullptr), ATTNC_OK);
    ASSERT_EQ(attnc_cache_device_bytes(c.cached.layer(), &options, &options.device_bytes, nullptr), ATTNC_OK);
    const GuardedMemory head(bytes, Placement::kAtEnd, 64),
        memory(options.device_bytes, Placement::kAtEnd, 256);
    options.device_memory = memory.data();
    attnc_cache* cache = nullptr;
    expect_every_failure_told(
        [&](attnc_error* error) {
            const attnc_status status =
                attnc_cache_create(c.cached.layer(), &options, head.data(), bytes, &cache, error);
            EXPECT_EQ(cache == nullptr, status != ATTNC_OK);
            return status;
        },
        4);
    EXPECT_EQ(attnc_cache_length(cache, 1), 0);
}

TEST_F(DeviceCaches, EveryFailureOfAMemoryIsTold) {
    LayerCall call = random_call("d32_h2_f32_rope_cache:b2_q5_kv30", 14);
    Caching c(call);
    attnc_inputs in = ATTNC_INPUTS_INIT;
    in.key = call.key.view(), in.value = call.value.view();
    attnc_run run = ATTNC_RUN_INIT;
    ASSERT_EQ(attnc_memory_workspace(c.cached.layer(), &in, c.cached.cache(), nullptr, &run.workspace_bytes,
                                     nullptr),
              ATTNC_OK);
    const GuardedMemory workspace(run.workspace_bytes, Placement::kAtEnd, 256);
    run.workspace = workspace.data();
    expect_every_failure_told(
        [&](attnc_error* error) {
            return attnc_memory_project(c.cached.layer(), &in, c.cached.cache(), &run, error);
        },
        11);
}

// Slots are copied for all heads at once, and where none has to be put aside each once.
TEST_F(DeviceCaches, ReorderBySlots) {
    Caching c(self_attention("d32_h4_kv2_f32_cache:b3_q20_kv20", 15), {ATTNC_CACHE_SLOTS, 3, 64});
    ASSERT_EQ(c.cached.append(c.call).status, ATTNC_OK);
    const auto copies = [&](std::vector<int64_t> from) {
        stand_in::forget_calls();
        EXPECT_EQ(attnc_cache_reorder(c.cached.cache(), from.data(), 3, nullptr), ATTNC_OK);
        const Names calls = stand_in::calls();
        return std::count(calls.begin(), calls.end(), "cuMemcpy2DUnaligned_v2") -
               2;  // lengths there and back
    };
    EXPECT_EQ(copies({0, 1, 2}), 0);
    EXPECT_EQ(copies({0, 0, 2}), 2);
    EXPECT_EQ(copies({1, 2, 0}), 8);
}

// A loop of generation through the wrapper: in a cache of its own, and in memory of the caller's.
TEST_F(DeviceCaches, TheWrapperKeepsThemOnTheDevice) {
    const LayerCall call = self_attention("d32_h2_f32_rope_cache:b2_q20_kv20", 16);
    const FakeLibrary library(call.config, device_layout());
    const auto view = [](const Array<float>& a) {
        return a.shape.size() == 2 ? Tensor(a.values, {a.shape[0], a.shape[1]}) : Tensor(a.values);
    };
    const Layer layer(library.get(),
                      {.wq = view(call.wq),
                       .wk = view(call.wk),
                       .wv = view(call.wv),
                       .wo = view(call.wo),
                       .bq = view(call.bq),
                       .bk = view(call.bk),
                       .bv = view(call.bv),
                       .bo = view(call.bo)},
                      {.target = "cuda", .rotary = call.rotary});
    const CacheOptions options = {.slots = 2, .capacity = 32};
    DeviceArray<std::byte> memory(layer, Cache::device_bytes(layer, options));
    Cache own(layer, options), given(layer, options, memory.span());
    EXPECT_LT(own.bytes(), 1024U);
    Session session(layer, {.max_batch = 2, .max_seq_q = 20, .max_seq_kv = 32});
    std::vector<float> results[2];
    for (Cache* cache : {&own, &given}) {
        for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 17}, {17, 1}, {18, 2}}) {
            const LayerCall part = part_of(call, {first, count, first, count});
            DeviceArray<float> x(layer, part.query.values), y(layer, part.query.values.size());
            session.forward({.query = {x.span(), {2, count, 32}},
                             .causal = Causal::kBottomRight,
                             .cache = cache->c(),
                             .max_keys = first + count},
                            {.out = {y.span(), {2, count, 32}}});
            std::vector<float>& all = results[cache == &given ? 1 : 0];
            all.resize(all.size() + y.size());
            y.copy_out(std::span(all).last(y.size()));
        }
        layer.synchronize();
        EXPECT_EQ(cache->length(1), 20);
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0].size(), 2U * 20 * 32);
    Cache moved = std::move(own);
    moved.rewind(0, 5);
    moved.reorder(std::vector<int64_t>{1, 0});
    EXPECT_EQ(moved.length(1), 5);
    DeviceArray<float> key(layer, 5 * 32), value(layer, 5 * 32);
    moved.export_to({.slots = std::vector<int64_t>{1}, .count = 5}, {key.span(), {1, 2, 5, 16}},
                    {value.span(), {1, 2, 5, 16}});
    given.clear(0);
    given.import_from({.count = 5}, {key.span(), {1, 2, 5, 16}}, {value.span(), {1, 2, 5, 16}});
    EXPECT_EQ(given.length(0), 5);
    // A memory, and heads rotated by themselves.
    DeviceArray<float> tokens(layer, call.query.values);
    given.clear(0), given.clear(1);
    session.project_memory({.key = {tokens.span(), {2, 20, 32}}, .cache = given.c()});
    layer.synchronize();
    EXPECT_EQ(given.length(1), 20);
    DeviceArray<std::byte> workspace(layer, layer.rotate_workspace());
    layer.rotate({.x = {tokens.span(), {2, 20, 32}}, .out = {tokens.span(), {2, 20, 32}}}, workspace.span());
    layer.synchronize();
}

// ---- attnc_layer_rotate

struct Rotating {
    LayerCall call;
    FakeLibrary library;
    LayerPointer layer;
    attnc_rotation rotation = ATTNC_ROTATION_INIT;
    attnc_run run = ATTNC_RUN_INIT;
    attnc_error error = {};
    std::unique_ptr<GuardedMemory> workspace;

    explicit Rotating(std::string_view problem, const char* target)
        : call(random_call(problem, 1)),
          library(call.config, device_layout()),
          layer(make_layer(library, call, &error, target)) {
        EXPECT_NE(layer, nullptr) << error.text;
        rotation.heads = ATTNC_HEADS_QUERY;
        EXPECT_EQ(attnc_layer_rotate_workspace(layer.get(), nullptr, &run.workspace_bytes, &error), ATTNC_OK);
        workspace = std::make_unique<GuardedMemory>(run.workspace_bytes, Placement::kAtEnd, 256);
        run.workspace = workspace->data();
    }
    attnc_status rotate() {
        const attnc_status status = attnc_layer_rotate(layer.get(), &rotation, &run, &error);
        const bool on_device = std::string_view(attnc_layer_target(layer.get())) == "cuda";
        return status == ATTNC_OK && on_device ? attnc_device_synchronize(layer.get(), nullptr, &error)
                                               : status;
    }
};

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t n = 0; n < got.size(); ++n) ASSERT_NEAR(got[n], want[n], 1e-5) << n;
}

TEST_F(DeviceCaches, RotateHeadsAsTheCpuDoes) {
    for (const char* problem :
         {"d32_h2_f32_rope:b1_q1_kv1", "d40_h4_kv2_hd10_vhd6_f32_ropepairs_qknorm:b1_q1_kv1",
          "d32_h2_f32_qknorm:b1_q1_kv1", "d48_h3_f32_noin_noout_rope:b1_q1_kv1"}) {
        Rotating cpu(problem, "x86-64-linux"), device(problem, "cuda");
        const Config& c = cpu.call.config;
        const bool rotates = c.rotary != Rotary::kNone;
        for (const attnc_heads heads : {ATTNC_HEADS_QUERY, ATTNC_HEADS_KEY}) {
            const int64_t count = heads == ATTNC_HEADS_QUERY ? c.num_heads : c.num_kv_heads;
            const Array<float> x = random_array({3, 11, count * c.head_dim}, 2, 1);
            const std::vector<int64_t> positions = {5, 3, -9, 0, 1, 2, 3, 4, 100000, 6, 7, 1, 1, 1, 1, 1, 1,
                                                    1, 1, 1,  1, 1, 8, 7, 6, 5,      4, 3, 2, 1, 0, 9, 10};
            const std::vector<int32_t> offsets = {-5, 0, 1000};
            for (int form = 0; form < (rotates ? 3 : 1); ++form) {
                std::vector<float> results[2];
                for (Rotating* r : {&cpu, &device}) {
                    std::vector<float>& out = results[r == &device ? 1 : 0];
                    out = x.values;
                    r->rotation.heads = heads;
                    r->rotation.x = r->rotation.out =
                        attnc_tensor_3d(ATTNC_F32, out.data(), 3, 11, count * c.head_dim);
                    r->rotation.positions = r->rotation.position_offsets = {};
                    if (form == 1)
                        r->rotation.positions = attnc_tensor_2d(ATTNC_I64, positions.data(), 3, 11);
                    if (form == 2)
                        r->rotation.position_offsets = attnc_tensor_1d(ATTNC_I32, offsets.data(), 3);
                    ASSERT_EQ(r->rotate(), ATTNC_OK) << r->error.text;
                }
                expect_near(results[1], results[0]);
            }
        }
    }
}

// Longer than what the workspace has, which doesn't grow with it.
TEST_F(DeviceCaches, RotateAnyNumberOfRows) {
    Rotating cpu("d32_h2_f32_rope:b1_q1_kv1", "x86-64-linux"), device("d32_h2_f32_rope:b1_q1_kv1", "cuda");
    const std::vector<int64_t> offsets = {70, 3};
    for (const auto& [batch, seq] : {std::pair<int64_t, int64_t>{2, 40000}, {20000, 2}}) {
        const Array<float> x = random_array({batch, seq, 32}, 3, 1);
        for (const bool split : {false, true}) {
            std::vector<float> results[2];
            for (Rotating* r : {&cpu, &device}) {
                std::vector<float>& out = results[r == &device ? 1 : 0];
                out.resize(x.values.size());
                r->rotation.x = attnc_tensor_3d(ATTNC_F32, x.values.data(), batch, seq, 32);
                r->rotation.out = split ? attnc_tensor_4d(ATTNC_F32, out.data(), batch, 2, seq, 16)
                                        : attnc_tensor_3d(ATTNC_F32, out.data(), batch, seq, 32);
                r->rotation.position_offsets = {};
                if (batch == 2) r->rotation.position_offsets = attnc_tensor_1d(ATTNC_I64, offsets.data(), 2);
                ASSERT_EQ(r->rotate(), ATTNC_OK) << r->error.text;
            }
            expect_near(results[1], results[0]);
        }
    }
    EXPECT_GT(std::ranges::count(launched(), "rotate_heads"), 10);
}

TEST_F(DeviceCaches, EveryFailureOfARotationIsTold) {
    Rotating r("d32_h2_f32_qknorm_rope:b1_q1_kv1", "cuda");
    std::vector<float> x(3 * 5 * 32, 1);
    r.rotation.x = r.rotation.out = attnc_tensor_3d(ATTNC_F32, x.data(), 3, 5, 32);
    expect_every_failure_told(
        [&](attnc_error* error) { return attnc_layer_rotate(r.layer.get(), &r.rotation, &r.run, error); }, 8);
    r.run.workspace_bytes -= 1;
    EXPECT_EQ(r.rotate(), ATTNC_WORKSPACE_TOO_SMALL);
    r.run.workspace = static_cast<std::byte*>(r.run.workspace) + 64;
    EXPECT_EQ(r.rotate(), ATTNC_WORKSPACE_MISALIGNED);
    EXPECT_STREQ(r.error.text, "run.workspace is not aligned to 256 bytes");
}

}  // namespace
}  // namespace attnc::test
