// What a layer on a device refuses: libraries, calls that it can't do yet, sizes; and the C++ wrapper of it.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>

#include "runtime/attnc.hpp"
#include "tests/harness/guarded_memory.h"
#include "tests/support/device_fixture.h"

namespace attnc::test {
namespace {

using DeviceErrors = DeviceTest;

struct Refusal {
    attnc_status status;
    std::string text;
    bool operator==(const Refusal&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Refusal& refusal) {
    return out << refusal.status << " " << refusal.text;
}

// Of a call after `change`, and the same of the size of its workspace.
Refusal refusal_of(const LayerCall& call, const std::function<void(DeviceCallRun&)>& change) {
    DeviceCallRun run(call);
    if (run.status != ATTNC_OK) return {run.status, run.error.text};
    change(run);
    size_t bytes = 0;
    attnc_error error = {};
    const attnc_status planned =
        attnc_layer_workspace(run.layer.get(), &run.inputs, &run.outputs, &run.run, &bytes, &error);
    attnc_run with_memory = run.run;
    with_memory.workspace = reinterpret_cast<void*>(256);
    with_memory.workspace_bytes = SIZE_MAX / 4;
    const attnc_status status =
        attnc_layer_forward(run.layer.get(), &run.inputs, &run.outputs, &with_memory, &run.error);
    EXPECT_EQ(planned, status);
    EXPECT_STREQ(error.text, run.error.text);
    EXPECT_TRUE(stand_in::launches().empty());
    return {status, run.error.text};
}

// 2500 x 2500 granules for each head of each of 22 items.
TEST_F(DeviceErrors, LimitsTheMasksThatAPackedBatchNeeds) {
    constexpr int64_t kRows = 40000, kItems = 22;
    const auto memory = [](uintptr_t number) { return reinterpret_cast<void*>(number << 40); };
    LayerCall call = random_call("d32_h2_f32:b1_q9_kv9", 4);
    call.key = {}, call.value = {};
    EXPECT_EQ(refusal_of(call,
                         [&](DeviceCallRun& run) {
                             attnc_inputs& in = run.inputs;
                             in.query = attnc_tensor_2d(ATTNC_F32, memory(1), kRows, 32);
                             run.outputs.out = attnc_tensor_2d(ATTNC_F32, memory(2), kRows, 32);
                             in.query_cu_seqlens = attnc_tensor_1d(ATTNC_I64, memory(3), kItems + 1);
                             in.block_q = 16, in.block_kv = 4000;
                             in.block_keep_mask =
                                 attnc_tensor_4d(ATTNC_U8, memory(4), kItems, 2, kRows / 16, kRows / 4000);
                         }),
              (Refusal{ATTNC_TOO_LARGE,
                       "masks of a packed batch need 275000000 bytes of the workspace, on a device at most "
                       "268435456"}));
}

// A cache of a layer on a device, and a call of that.
struct DeviceCache {
    DeviceCallRun run;
    attnc_cache_options options = ATTNC_CACHE_OPTIONS_INIT;
    std::unique_ptr<GuardedMemory> head, memory;
    size_t bytes = 0;
    attnc_cache* cache = nullptr;

    explicit DeviceCache(std::string_view problem, attnc_cache_kind kind = ATTNC_CACHE_SLOTS,
                         std::optional<int64_t> window_left = {})
        : run(windowed(problem, window_left)) {
        EXPECT_EQ(run.status, ATTNC_OK) << run.error.text;
        options.kind = kind;
        options.slots = kind == ATTNC_CACHE_PAGED ? 0 : 3;
        options.capacity = kind == ATTNC_CACHE_PAGED ? 0 : 32;
        options.pages = kind == ATTNC_CACHE_PAGED ? 6 : 0;
        EXPECT_EQ(sizes(), (Refusal{ATTNC_OK, ""}));
        head = std::make_unique<GuardedMemory>(bytes, Placement::kAtEnd, 64);
        memory = std::make_unique<GuardedMemory>(options.device_bytes, Placement::kAtEnd, 256);
        options.device_memory = memory->data();
        EXPECT_EQ(create(), (Refusal{ATTNC_OK, ""}));
        run.inputs.key = run.inputs.value = {};
        run.inputs.cache = cache;
    }
    static LayerCall windowed(std::string_view problem, std::optional<int64_t> window_left) {
        LayerCall call = random_call(problem, 3);
        call.window_left = window_left;
        return call;
    }
    Refusal sizes() {
        attnc_error error = {};
        attnc_status status = attnc_cache_bytes(run.layer.get(), &options, &bytes, &error);
        if (status == ATTNC_OK)
            status = attnc_cache_device_bytes(run.layer.get(), &options, &options.device_bytes, &error);
        return {status, error.text};
    }
    Refusal create() {
        attnc_error error = {};
        const attnc_status status =
            attnc_cache_create(run.layer.get(), &options, head->data(), bytes, &cache, &error);
        return {status, error.text};
    }
    Refusal planned() {
        attnc_error error = {};
        size_t workspace = 0;
        const attnc_status status =
            attnc_layer_workspace(run.layer.get(), &run.inputs, &run.outputs, nullptr, &workspace, &error);
        return {status, error.text};
    }
    Refusal forward() {
        const auto [status, text] = planned();
        EXPECT_EQ(run.forward(), status);
        EXPECT_EQ(status != ATTNC_OK ? run.error.text : "", text);
        return {status, text};
    }
};
constexpr const char* kCached = "d32_h2_f32_cache_page16:b2_q5_kv5";

TEST_F(DeviceErrors, CachesNeedMemoryThere) {
    DeviceCache c(kCached);
    const size_t needed = c.options.device_bytes;
    void* memory = c.options.device_memory;
    c.options.device_memory = nullptr;
    EXPECT_EQ(c.create(), (Refusal{ATTNC_NULL_ARGUMENT, "device_memory is null"}));
    c.options.device_memory = static_cast<std::byte*>(memory) + 64;
    EXPECT_EQ(c.create(), (Refusal{ATTNC_WORKSPACE_MISALIGNED, "device_memory is not aligned to 256 bytes"}));
    c.options.device_memory = memory, c.options.device_bytes = needed - 1;
    EXPECT_EQ(c.create(),
              (Refusal{ATTNC_WORKSPACE_TOO_SMALL, "device_memory has " + std::to_string(needed - 1) +
                                                      " bytes, wanted " + std::to_string(needed)}));
    EXPECT_EQ(c.cache, nullptr);
    // 16 features of 4 bytes: 33554431 rows are below 2 GiB, of which the slots have whole runs of 16 and one more.
    c.options.capacity = int64_t{1} << 25;
    EXPECT_EQ(c.sizes(), (Refusal{ATTNC_TOO_LARGE, "capacity is 33554432, at most 33554416"}));
    c.options.capacity = int64_t{1} << 23;
    EXPECT_EQ(c.sizes(), (Refusal{ATTNC_TOO_LARGE,
                                  "the cache has 33554432 rows for a head, on a device at most 33554431"}));
    c.options.slots = int64_t{1} << 60;
    EXPECT_EQ(c.sizes().status, ATTNC_TOO_LARGE);
    c.options.slots = 1;
    EXPECT_EQ(c.sizes(), (Refusal{ATTNC_OK, ""}));
}

TEST_F(DeviceErrors, CachesAreOfTheLayersPlace) {
    DeviceCache c(kCached);
    DeviceCallRun on_cpu(random_call(kCached, 3));
    ASSERT_EQ(on_cpu.create("x86-64-linux"), ATTNC_OK);
    on_cpu.inputs.key = on_cpu.inputs.value = {};
    on_cpu.inputs.cache = c.cache;
    EXPECT_EQ(on_cpu.launch(), ATTNC_BAD_VALUE);
    EXPECT_STREQ(on_cpu.error.text,
                 "cache was made for a layer on a device, the layer is on target x86-64-linux");
    attnc_cache_options options = ATTNC_CACHE_OPTIONS_INIT;
    options.slots = 2, options.capacity = 16;
    size_t bytes = 0;
    ASSERT_EQ(attnc_cache_bytes(on_cpu.layer.get(), &options, &bytes, nullptr), ATTNC_OK);
    const GuardedMemory memory(bytes, Placement::kAtEnd, 64);
    ASSERT_EQ(
        attnc_cache_create(on_cpu.layer.get(), &options, memory.data(), bytes, &c.run.inputs.cache, nullptr),
        ATTNC_OK);
    EXPECT_EQ(c.forward(), (Refusal{ATTNC_BAD_VALUE,
                                    "cache was made for a layer on no device, the layer is on target cuda"}));
    // A layer of another context can't reach it, one of the same context can.
    DeviceCallRun neighbour(random_call(kCached, 4));
    neighbour.inputs.key = neighbour.inputs.value = {};
    neighbour.inputs.cache = c.cache;
    EXPECT_EQ(neighbour.forward(), ATTNC_OK) << neighbour.error.text;
    EXPECT_EQ(attnc_cache_length(c.cache, 1), 5);
    stand_in::push_context(stand_in::make_context(0));
    DeviceCallRun stranger(random_call(kCached, 4));
    stranger.inputs.key = stranger.inputs.value = {};
    stranger.inputs.cache = c.cache;
    EXPECT_EQ(stranger.launch(), ATTNC_BAD_VALUE);
    EXPECT_STREQ(stranger.error.text, "cache was made in another context of the device than the layer");
    stand_in::pop_context();
}

TEST_F(DeviceErrors, WhatARingsLengthsWouldBeRefusedFor) {
    constexpr const char* kRing = "d32_h2_f32_cache:b2_q13_kv13";
    DeviceCache c(kRing, ATTNC_CACHE_RING, 20);
    EXPECT_EQ(c.forward(), (Refusal{ATTNC_BAD_VALUE, "max_keys is 0, but a ring on a device needs it"}));
    c.run.inputs.max_keys = 33;
    EXPECT_EQ(c.forward(),
              (Refusal{ATTNC_BAD_VALUE,
                       "items need the last 13 + 20 of their keys, but the ring's capacity is 32"}));
    c.run.inputs.max_keys = 32;  // none is ever overwritten
    EXPECT_EQ(c.forward(), (Refusal{ATTNC_OK, ""}));
    DeviceCache longer("d32_h2_f32_cache:b2_q33_kv33", ATTNC_CACHE_RING, 20);
    longer.run.inputs.max_keys = 100;
    EXPECT_EQ(longer.forward(),
              (Refusal{ATTNC_BAD_VALUE, "items bring 33 keys, but the ring's capacity is 32"}));
}

TEST_F(DeviceErrors, MasksOfACacheHaveMaxKeys) {
    DeviceCache c(kCached);
    const Array<uint8_t> mask = filled<uint8_t>({2, 32}, 1);
    c.run.inputs.key_keep_mask = attnc_tensor_2d(ATTNC_U8, mask.values.data(), 2, 16);
    EXPECT_EQ(c.forward(),
              (Refusal{ATTNC_BAD_EXTENT, "key_keep_mask has extent 16 in dimension 1 (seq_kv), wanted 32"}));
    c.run.inputs.max_keys = 16;
    EXPECT_EQ(c.forward(), (Refusal{ATTNC_OK, ""}));
    c.run.inputs.max_keys = 0;
    c.run.inputs.key_keep_mask = attnc_tensor_2d(ATTNC_U8, mask.values.data(), 2, 32);
    EXPECT_EQ(c.forward(), (Refusal{ATTNC_OK, ""}));
}

TEST_F(DeviceErrors, OutputsMayNotLieInTheCache) {
    DeviceCache c(kCached);
    c.run.outputs.out.data = c.options.device_memory;
    EXPECT_EQ(c.forward(), (Refusal{ATTNC_OVERLAP, "out overlaps the cache"}));
    attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;
    const attnc_tensor key = attnc_tensor_4d(ATTNC_F32, c.options.device_memory, 1, 2, 0, 16);
    EXPECT_EQ(attnc_cache_export(c.cache, &range, &key, nullptr, &c.run.error), ATTNC_OK);
    range.count = 5;
    c.run.outputs.out.data = nullptr;
    const attnc_tensor inside = attnc_tensor_4d(ATTNC_F32, c.options.device_memory, 1, 2, 5, 16);
    EXPECT_EQ(attnc_cache_export(c.cache, &range, &inside, nullptr, &c.run.error), ATTNC_OVERLAP);
    EXPECT_STREQ(c.run.error.text, "key overlaps the cache");
}

TEST_F(DeviceErrors, LimitsTheTablesOfPagesAndRuns) {
    DeviceCache c(kCached, ATTNC_CACHE_PAGED);
    const std::vector<int32_t> numbers(4);
    attnc_inputs& in = c.run.inputs;
    in.cache_lengths = attnc_tensor_1d(ATTNC_I32, numbers.data(), 2);
    in.block_table = attnc_tensor_2d(ATTNC_I32, nullptr, 2, int64_t{1} << 26);
    EXPECT_EQ(c.planned(),
              (Refusal{ATTNC_TOO_LARGE, "block_table has 67108864 pages for an item, at most 67108863"}));
    in.block_table.extent[1] = 4, in.block_table.stride[1] = int64_t{1} << 29;
    EXPECT_EQ(
        c.planned(),
        (Refusal{ATTNC_TOO_LARGE, "an item of block_table spans more than 2 GiB, on a device at most that"}));
    // 2500 runs for each of 30000 items.
    LayerCall call = random_call("d32_h2_f32_cache:b1_q9_kv9", 4);
    call.key = {}, call.value = {};
    const auto memory = [](uintptr_t number) { return reinterpret_cast<void*>(number << 40); };
    EXPECT_EQ(refusal_of(call,
                         [&](DeviceCallRun& run) {
                             run.inputs.query = attnc_tensor_2d(ATTNC_F32, memory(1), 40000, 32);
                             run.outputs.out = attnc_tensor_2d(ATTNC_F32, memory(2), 40000, 32);
                             run.inputs.query_cu_seqlens = attnc_tensor_1d(ATTNC_I64, memory(3), 30001);
                         }),
              (Refusal{ATTNC_TOO_LARGE,
                       "tables of a packed batch need 300000000 bytes of the workspace, on a device at most "
                       "268435456"}));
}

TEST_F(DeviceErrors, LimitsTheItemsOfACache) {
    DeviceCache c(kCached);
    constexpr int64_t kItems = int64_t{1} << 28;
    attnc_inputs& in = c.run.inputs;
    in.cache_use = ATTNC_CACHE_READ;
    in.cache_slots = attnc_tensor_1d(ATTNC_I64, nullptr, kItems);
    in.query = attnc_tensor_3d(ATTNC_F32, nullptr, kItems, 1, 32);
    c.run.outputs.out = attnc_tensor_3d(ATTNC_F32, nullptr, kItems, 1, 32);
    EXPECT_EQ(c.planned(),
              (Refusal{ATTNC_TOO_LARGE,
                       "batch is 268435456, in a call with a cache on a device at most 268435455"}));
    for (attnc_tensor* t : {&in.cache_slots, &in.query, &c.run.outputs.out}) t->extent[0] = kItems - 1;
    EXPECT_EQ(c.planned(), (Refusal{ATTNC_OK, ""}));
}

TEST_F(DeviceErrors, WantsItsWorkspaceAligned) {
    DeviceCallRun run(random_call("d32_h2_f32:b2_q5_kv5", 4));
    ASSERT_EQ(run.forward(), ATTNC_OK) << run.error.text;
    attnc_run other = run.run;
    other.workspace = static_cast<std::byte*>(run.run.workspace) + 64;
    EXPECT_EQ(attnc_layer_forward(run.layer.get(), &run.inputs, &run.outputs, &other, &run.error),
              ATTNC_WORKSPACE_MISALIGNED);
    EXPECT_STREQ(run.error.text, "run.workspace is not aligned to 256 bytes");
    other = run.run;
    other.workspace_bytes -= 1;
    EXPECT_EQ(attnc_layer_forward(run.layer.get(), &run.inputs, &run.outputs, &other, &run.error),
              ATTNC_WORKSPACE_TOO_SMALL);
    other.workspace = nullptr;
    EXPECT_EQ(attnc_layer_forward(run.layer.get(), &run.inputs, &run.outputs, &other, &run.error),
              ATTNC_NULL_ARGUMENT);
}

TEST_F(DeviceErrors, RefusesWhatKernelsCantNumber) {
    LayerCall call = random_call("d16_h1_f32_noin_noout:b1_q2_kv2", 5);
    call.causal = ATTNC_CAUSAL_TOP_LEFT;
    const auto seq = [](int64_t q, int64_t kv) {
        return [q, kv](DeviceCallRun& run) {
            run.inputs.query.extent[1] = run.outputs.out.extent[1] = q;
            run.inputs.key.extent[1] = run.inputs.value.extent[1] = kv;
            uintptr_t address = 0;  // apart from each other, and never looked at
            for (attnc_tensor* t : {&run.inputs.query, &run.inputs.key, &run.inputs.value, &run.outputs.out})
                t->data = reinterpret_cast<void*>(address += uintptr_t{1} << 40);
        };
    };
    EXPECT_EQ(refusal_of(call, seq(1 << 16, 1 << 16)),
              (Refusal{ATTNC_TOO_LARGE,
                       "a head of an item has 65536 times 65536 pairs of query and key, on a "
                       "device at most 2147483647"}));
    const Refusal rows = refusal_of(call, seq(int64_t{1} << 26, 2));
    EXPECT_EQ(rows, (Refusal{ATTNC_TOO_LARGE, "seq_q is 67108864, at most 33554431"}));
}

TEST_F(DeviceErrors, RefusesTablesThatItCantTrust) {
    const LayerCall call = random_call("d32_h2_f32:b2_q5_kv5", 6);
    const auto refused = [&](const std::function<void(attnc_device_entry&)>& change) {
        DeviceCallRun run(call);
        run.destroy();
        change(run.library.device());
        const attnc_status on_device = run.create();
        const Refusal refusal = {on_device, run.error.text};
        EXPECT_EQ(run.create(nullptr), on_device);  // the table is corrupt, whatever is asked of it
        return refusal;
    };
    constexpr attnc_status kBad = ATTNC_BAD_LIBRARY;
    EXPECT_EQ(refused([](attnc_device_entry& e) { e.kernels[ATTNC_DEVICE_KERNEL_ATTEND].run = nullptr; }),
              (Refusal{kBad, "the library has no kernel attend for target cuda"}));
    EXPECT_EQ(refused([](attnc_device_entry& e) { e.kernels[ATTNC_DEVICE_KERNEL_ATTEND].image_count = 0; }),
              (Refusal{kBad,
                       "the library's code of kernel attend for target cuda is not there or does not end "
                       "in PTX"}));
    EXPECT_EQ(refused([](attnc_device_entry& e) {
                  e.kernels[ATTNC_DEVICE_KERNEL_ATTEND] = e.kernels[ATTNC_DEVICE_KERNEL_ATTEND_MASKED];
              }),
              (Refusal{kBad,
                       "the library's kernel attend for target cuda takes argument key_blocks, which this "
                       "runtime does not give it"}));
    static constexpr int64_t kUnknown[] = {0, ATTNC_DEVICE_ARGUMENT_COUNT};
    EXPECT_EQ(refused([](attnc_device_entry& e) {
                  e.kernels[ATTNC_DEVICE_KERNEL_ATTEND].arguments = kUnknown;
                  e.kernels[ATTNC_DEVICE_KERNEL_ATTEND].argument_count = 2;
              }),
              (Refusal{kBad, "the library's kernel attend for target cuda takes argument " +
                                 std::to_string(ATTNC_DEVICE_ARGUMENT_COUNT) +
                                 ", which this runtime does not know"}));
    EXPECT_EQ(refused([](attnc_device_entry& e) { e.kernels[0].argument_count = 0; }),
              (Refusal{kBad, "the library's entry of kernel fill_items for target cuda is corrupt"}));
    EXPECT_EQ(
        refused([](attnc_device_entry& e) { e.layout.panel = 30; }),
        (Refusal{kBad, "the library's panel for target cuda is 30, wanted a multiple of 4 up to 1048576"}));
    EXPECT_EQ(
        refused([](attnc_device_entry& e) { e.layout.decode_rows = 0; }),
        (Refusal{kBad,
                 "the library's decode_rows for target cuda is 0, wanted a multiple of 1 up to 1048576"}));
    EXPECT_EQ(refused([](attnc_device_entry& e) { e.runtime = nullptr; }),
              (Refusal{kBad, "the library's target cuda names no runtime"}));
    EXPECT_EQ(refused([](attnc_device_entry& e) { e.name = nullptr; }),
              (Refusal{kBad, "the library's device has no name"}));
}

// Kernels that a configuration never calls may be missing.
TEST_F(DeviceErrors, AsksOnlyForKernelsThatAreCalled) {
    DeviceCallRun run(random_call("d32_h2_f32_nomask_noprobs:b2_q5_kv5", 7));
    run.destroy();
    for (const int kernel : {ATTNC_DEVICE_KERNEL_ATTEND_MASKED, ATTNC_DEVICE_KERNEL_ATTEND_PROBS,
                             ATTNC_DEVICE_KERNEL_SPLIT_HEADS, ATTNC_DEVICE_KERNEL_ROTATE_HEADS}) {
        run.library.device().kernels[kernel] = {};
    }
    ASSERT_EQ(run.create(), ATTNC_OK) << run.error.text;
    EXPECT_EQ(run.forward(), ATTNC_OK) << run.error.text;
}

TEST_F(DeviceErrors, TheWorkspaceBoundCoversEveryCall) {
    for (const char* problem :
         {"d32_h2_f32", "d32_h4_kv1_f32_biaskv_zeroattn_rope_scores", "d64_h2_f32_noin_noout",
          "d96_h3_f32_qknorm_sink", "d32_h4_kv1_f32_biaskv_zeroattn_rope_scores_cache"}) {
        DeviceCallRun run(random_call(std::string(problem) + ":b1_q1_kv1", 8));
        ASSERT_EQ(run.status, ATTNC_OK) << run.error.text;
        for (const Sizes& s : {Sizes{1, 1, 1}, Sizes{3, 1, 5000}, Sizes{70, 400, 7}, Sizes{20000, 1, 1},
                               Sizes{2, 20000, 1}, Sizes{2, 9, 40000}, Sizes{33, 500, 500}, Sizes{1, 3, 0}}) {
            LayerCall call = random_call(std::string(problem) + ":b1_q1_kv1", 8);
            call.probs_averaged = call.config.probs;
            DeviceCallRun sized(call);
            for (attnc_tensor* t : {&sized.inputs.query, &sized.outputs.out, &sized.outputs.probs_averaged})
                t->extent[0] = s.batch, t->extent[1] = s.seq_q, t->data = nullptr;
            for (attnc_tensor* t : {&sized.inputs.key, &sized.inputs.value})
                t->extent[0] = s.batch, t->extent[1] = s.seq_kv, t->data = nullptr;
            sized.outputs.probs_averaged.extent[2] =
                s.seq_kv + (call.config.bias_kv ? 1 : 0) + (call.config.zero_attn ? 1 : 0);
            for (attnc_tensor* t : {&sized.inputs.query, &sized.inputs.key, &sized.inputs.value,
                                    &sized.outputs.out, &sized.outputs.probs_averaged}) {
                t->stride[1] = t->extent[2], t->stride[0] = t->extent[1] * t->extent[2];
            }
            if (s.seq_kv > 0) {
                attnc_inputs& in = sized.inputs;
                in.block_q = 32, in.block_kv = 16;
                in.block_keep_mask = attnc_tensor_4d(ATTNC_U8, nullptr, s.batch, call.config.num_heads,
                                                     (s.seq_q + 31) / 32, (s.seq_kv + 15) / 16);
                in.key_keep_mask = attnc_tensor_2d(ATTNC_U8, nullptr, s.batch, s.seq_kv);
            }
            size_t bytes = 0, bound = 0, larger = 0;
            ASSERT_EQ(attnc_layer_workspace(sized.layer.get(), &sized.inputs, &sized.outputs, nullptr, &bytes,
                                            &sized.error),
                      ATTNC_OK)
                << sized.error.text;
            attnc_limits limits = ATTNC_LIMITS_INIT;
            limits.max_batch = s.batch, limits.max_seq_q = s.seq_q, limits.max_concurrency = 1;
            limits.max_seq_kv = std::max<int64_t>(s.seq_kv, 1);
            ASSERT_EQ(attnc_layer_workspace_bound(sized.layer.get(), &limits, &bound, nullptr), ATTNC_OK);
            EXPECT_GE(bound, bytes) << problem << " " << s.batch << " " << s.seq_q << " " << s.seq_kv;
            for (int64_t* limit : {&limits.max_batch, &limits.max_seq_q, &limits.max_seq_kv}) {
                *limit += 5;
                ASSERT_EQ(attnc_layer_workspace_bound(sized.layer.get(), &limits, &larger, nullptr),
                          ATTNC_OK);
                EXPECT_GE(larger, bound);
                bound = larger;
            }
        }
    }
}

TEST_F(DeviceErrors, TheWrapperKeepsItsMemoryOnTheDevice) {
    LayerCall call = random_call("d32_h2_f32:b2_q20_kv20", 9);
    call.key = {}, call.value = {};
    FakeLayout layout;
    layout.device = true;
    const FakeLibrary library(call.config, layout);
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
                      {.target = "cuda"});
    ASSERT_TRUE(layer.on_device());
    DeviceArray<float> query(layer, call.query.values), out(layer, call.query.values.size());
    DeviceArray<int32_t> lengths(layer, std::vector<int32_t>{20, 7});
    Session session(layer, {.max_batch = 2, .max_seq = 20});
    EXPECT_GE(stand_in::live().allocations, 5);
    session.forward({.query = {query.span(), {2, 20, 32}}, .key_lengths = lengths.span()},
                    {.out = {out.span(), {2, 20, 32}}});
    FakeResult got;
    got.out.resize(out.size());
    layer.synchronize();
    out.copy_out(got.out);
    call.key_lengths = {{2}, {20, 7}};
    FakeOptions options;
    options.device = true;
    const FakeResult want = run_fake(call, options);
    EXPECT_EQ(got.out, want.out);
    EXPECT_THROW(out.copy_in(std::vector<float>(3)), Error);
    DeviceArray<float> moved = std::move(out);
    EXPECT_EQ(moved.size(), call.query.values.size());
}

}  // namespace
}  // namespace attnc::test
