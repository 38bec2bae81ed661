// What the runtime asks of the driver: which kernels in which order, whose stream and context, and what happens when the driver
// refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "runtime/attnc.hpp"
#include "tests/support/device_fixture.h"

namespace attnc::test {
namespace {

using DeviceCalls = DeviceTest;
using Names = std::vector<std::string>;

Names launched(const LayerCall& call) {
    DeviceCallRun run(call);
    EXPECT_EQ(run.forward(), ATTNC_OK) << run.error.text;
    return run.functions();
}

LayerCall self_attention(const char* problem) {
    LayerCall call = random_call(problem, 1);
    call.key = {}, call.value = {};
    return call;
}

TEST_F(DeviceCalls, SelfAttentionIsFourLaunches) {
    EXPECT_EQ(launched(self_attention("d32_h2_f32:b2_q20_kv20")),
              (Names{"fill_items", "project_heads", "attend", "project_out"}));
}

TEST_F(DeviceCalls, CrossAttentionProjectsEachSide) {
    LayerCall call = random_call("d32_h2_f32:b2_q20_kv9", 2);
    EXPECT_EQ(launched(call), (Names{"fill_items", "project_heads", "project_heads", "project_heads",
                                     "attend", "project_out"}));
    call.value = {};
    EXPECT_EQ(launched(call),
              (Names{"fill_items", "project_heads", "project_heads", "attend", "project_out"}));
}

TEST_F(DeviceCalls, WhatDropsKeysIsLookedAtForNonFiniteValues) {
    const Names guarded = {"fill_items",      "project_heads",  "attend",
                           "attend_suspects", "attend_guarded", "project_out"};
    LayerCall call = self_attention("d32_h2_f32:b2_q20_kv20");
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    EXPECT_EQ(launched(call), guarded);
    call.causal = ATTNC_CAUSAL_NONE;
    call.window_left = 4;
    EXPECT_EQ(launched(call), guarded);
    call.window_left = {};
    call.key_keep_mask = filled<uint8_t>({2, 20}, 1);
    const Names masked = {"fill_items",      "fill_key_bias",  "project_heads", "attend_masked",
                          "attend_suspects", "attend_guarded", "project_out"};
    EXPECT_EQ(launched(call), masked);
    // Lengths alone drop keys that no kernel reads.
    call.key_keep_mask = {};
    call.key_lengths = {{2}, {20, 4}};
    EXPECT_EQ(launched(call), (Names{"fill_items", "project_heads", "attend", "project_out"}));
}

TEST_F(DeviceCalls, MakeMasksOnlyOfWhatAttentionDoesNotTake) {
    const Names plain = {"fill_items",      "project_heads",  "attend_masked",
                         "attend_suspects", "attend_guarded", "project_out"};
    const auto with = [&](const Names& made) {
        Names all = plain;
        all.insert(all.begin() + 1, made.begin(), made.end());
        return all;
    };
    // One number per key is added where it lies, of whatever rank; a mask of pairs is read there too.
    LayerCall call = self_attention("d32_h2_f32:b2_q20_kv20");
    call.key_bias = random_array({2, 20}, 1, 1);
    EXPECT_EQ(launched(call), plain);
    call.key_bias = {};
    call.bias = random_array({2, 1, 1, 20}, 1, 1);
    call.keep_mask = filled<uint8_t>({1, 1, 20, 20}, 1);
    EXPECT_EQ(launched(call), plain);
    call.key_bias = random_array({2, 20}, 2, 1);
    EXPECT_EQ(launched(call), with({"fill_key_bias"}));
    call.block_q = call.block_kv = 16;
    call.block_keep_mask = filled<uint8_t>({1, 1, 2, 2}, 1);
    EXPECT_EQ(launched(call), with({"fill_key_bias"}));
    call.block_q = 32;
    call.block_keep_mask = filled<uint8_t>({1, 1, 1, 2}, 1);
    EXPECT_EQ(launched(call), with({"fill_key_bias", "fill_key_blocks"}));
    // Without keys there is nothing to make.
    call = random_call("d32_h2_f32:b2_q9_kv0", 2);
    call.key_keep_mask = filled<uint8_t>({2, 0}, 1);
    EXPECT_EQ(launched(call)[1], "project_heads");
}

// Blocks are 32 x 32: 64 x 64 granules for each mask that differs.
TEST_F(DeviceCalls, MakeWhatIsTheSameForAllOnce) {
    DeviceCallRun run(random_call("d32_h2_f32:b3_q1024_kv1024", 3));
    const auto bytes = [&](int64_t items, int64_t heads) {
        attnc_inputs in = run.inputs;
        in.block_q = in.block_kv = 32;
        in.block_keep_mask = attnc_tensor_4d(ATTNC_U8, nullptr, items, heads, 32, 32);
        in.keep_mask = attnc_tensor_4d(ATTNC_U8, nullptr, items, 1, 1, 1024);
        size_t needed = 0;
        EXPECT_EQ(attnc_layer_workspace(run.layer.get(), &in, &run.outputs, nullptr, &needed, &run.error),
                  ATTNC_OK)
            << run.error.text;
        return needed;
    };
    const size_t once = bytes(1, 1);
    EXPECT_EQ(bytes(1, 2), once + 4096);
    EXPECT_EQ(bytes(3, 1), once + 2 * (4096 + 4096));
    EXPECT_EQ(bytes(3, 2), once + 5 * 4096 + 2 * 4096);
}

TEST_F(DeviceCalls, FewQueriesGoBySplitsOfKeys) {
    LayerCall call = random_call("d32_h2_f32:b2_q1_kv70", 3);
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    EXPECT_EQ(launched(call), (Names{"fill_items", "project_heads", "project_heads", "project_heads",
                                     "attend_decode", "attend_merge", "project_out"}));
    // One split needs no joining, and block masks go by tiles of queries.
    call = random_call("d32_h2_f32:b2_q1_kv30", 3);
    EXPECT_EQ(launched(call), (Names{"fill_items", "project_heads", "project_heads", "project_heads",
                                     "attend_decode", "project_out"}));
    call.block_q = call.block_kv = 16;
    call.block_keep_mask = filled<uint8_t>({1, 1, 1, 2}, 1);
    EXPECT_EQ(launched(call)[4], "attend_masked");
}

TEST_F(DeviceCalls, FollowTheLayersOptions) {
    LayerCall call = self_attention("d32_h2_f32_qknorm_rope_noout:b2_q20_kv20");
    EXPECT_EQ(launched(call),
              (Names{"fill_items", "project_heads", "norm_heads", "norm_heads", "rotary_angles",
                     "rotate_heads", "rotate_heads", "attend", "merge_heads"}));
    call = self_attention("d32_h2_f32_biaskv_zeroattn_sink:b2_q20_kv20");
    EXPECT_EQ(launched(call), (Names{"fill_items", "fill_items", "project_heads", "attend", "attend",
                                     "attend", "attend_merge", "project_out"}));
    call = random_call("d32_h2_f32_noin:b2_q20_kv20", 4);
    EXPECT_EQ(launched(call),
              (Names{"fill_items", "split_heads", "split_heads", "split_heads", "attend", "project_out"}));
    call = self_attention("d32_h2_f32:b2_q20_kv20");
    call.empty_rows = ATTNC_EMPTY_ROWS_NAN;
    EXPECT_EQ(launched(call), (Names{"fill_items", "project_heads", "attend", "fill_empty", "project_out"}));
}

TEST_F(DeviceCalls, WriteWhatIsAskedForOnly) {
    LayerCall call = self_attention("d32_h2_f32_scores:b2_q20_kv20");
    call.lse = call.probs = call.probs_averaged = true;
    call.scores_stage = ATTNC_SCORES_SCALED;
    const Names all = {"fill_items",   "project_heads", "attend",        "attend_lse",
                       "attend_probs", "average_probs", "attend_scores", "project_out"};
    EXPECT_EQ(launched(call), all);
    // Scores of keys that the window drops have a table of their own.
    call.window_left = 3;
    EXPECT_EQ(launched(call).size(), all.size() + 3);
    call = self_attention("d32_h2_f32_scores:b0_q20_kv20");
    EXPECT_EQ(launched(call), Names());
}

TEST_F(DeviceCalls, ForwardOnlyLaunches) {
    LayerCall call = self_attention("d32_h2_f32_biaskv_rope:b2_q20_kv20");
    call.probs_averaged = true;
    DeviceCallRun run(call);
    ASSERT_EQ(run.forward(), ATTNC_OK) << run.error.text;
    stand_in::forget_calls();
    ASSERT_EQ(run.launch(), ATTNC_OK) << run.error.text;
    const Names calls = stand_in::calls();
    ASSERT_GT(calls.size(), 5U);
    EXPECT_EQ(calls.front(), "cuCtxPushCurrent_v2");
    EXPECT_EQ(calls.back(), "cuCtxPopCurrent_v2");
    for (size_t i = 1; i + 1 < calls.size(); ++i) EXPECT_EQ(calls[i], "cuLaunchKernel");
    EXPECT_EQ(run.wait(), ATTNC_OK);
}

TEST_F(DeviceCalls, PassTheGeometryThrough) {
    DeviceCallRun run(self_attention("d32_h2_f32:b3_q20_kv20"));
    ASSERT_EQ(run.forward(), ATTNC_OK) << run.error.text;
    const stand_in::Launch attend = stand_in::launches().at(2);
    EXPECT_EQ(attend.function, "_kernel_attend");
    EXPECT_THAT(attend.grid, testing::ElementsAre(3U, 2U, 1U));
    EXPECT_THAT(attend.block, testing::ElementsAre(16U, 8U, 1U));
    EXPECT_EQ(attend.shared_bytes, 60000U);  // more than every device gives without being asked
}

TEST_F(DeviceCalls, UseTheCallersStream) {
    void* context = stand_in::make_context(0);
    stand_in::push_context(context);
    const LayerCall call = self_attention("d32_h2_f32:b2_q20_kv20");
    DeviceCallRun run(call);
    ASSERT_EQ(run.status, ATTNC_OK) << run.error.text;
    EXPECT_STREQ(attnc_layer_target(run.layer.get()), "cuda");
    void* stream = stand_in::make_stream(context);
    run.run.stream = stream;
    ASSERT_EQ(run.forward(), ATTNC_OK) << run.error.text;
    for (const stand_in::Launch& launch : stand_in::launches()) {
        EXPECT_EQ(launch.stream, stream);
        EXPECT_EQ(launch.context, context);
    }
    EXPECT_EQ(stand_in::context_stack(), std::vector<void*>{context});
    run.destroy();
    EXPECT_EQ(stand_in::context_stack(), std::vector<void*>{context});
}

TEST_F(DeviceCalls, RunOnAnyThreadWhateverItsContext) {
    const LayerCall call = self_attention("d32_h2_f32:b2_q20_kv20");
    DeviceCallRun run(call);
    ASSERT_EQ(run.status, ATTNC_OK) << run.error.text;
    EXPECT_EQ(stand_in::context_stack(), std::vector<void*>());
    EXPECT_EQ(stand_in::live().primary_contexts, 1);
    std::thread([&] {
        void* other = stand_in::make_context(0);
        stand_in::push_context(other);
        EXPECT_EQ(run.forward(), ATTNC_OK) << run.error.text;
        EXPECT_EQ(stand_in::context_stack(), std::vector<void*>{other});
        stand_in::pop_context();
    }).join();
    EXPECT_TRUE(matches(call, run.result(), {kFakeDeviceTile, kFakeDeviceSplit}));
}

TEST_F(DeviceCalls, ManyThreadsMayCallOneLayer) {
    LayerCall call = self_attention("d32_h2_f32:b2_q20_kv20");
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    DeviceCallRun first(call);
    ASSERT_EQ(first.forward(), ATTNC_OK) << first.error.text;
    constexpr int kThreads = 4, kCalls = 20;
    std::vector<std::unique_ptr<DeviceCallRun>> runs;
    for (int i = 0; i < kThreads; ++i) {
        runs.push_back(std::make_unique<DeviceCallRun>(call));
        ASSERT_EQ(runs.back()->launch(), ATTNC_OK);  // it has a workspace from now on
    }
    std::vector<std::thread> threads;
    for (auto& run : runs) {
        threads.emplace_back([&first, &run] {
            for (int i = 0; i < kCalls; ++i) {
                attnc_error error = {};
                EXPECT_EQ(
                    attnc_layer_forward(first.layer.get(), &run->inputs, &run->outputs, &run->run, &error),
                    ATTNC_OK)
                    << error.text;
                EXPECT_EQ(attnc_device_synchronize(first.layer.get(), nullptr, nullptr), ATTNC_OK);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& run : runs) EXPECT_TRUE(equal_bits(first.result(), run->result()));
}

TEST_F(DeviceCalls, TwoLayersLiveOnTwoDevices) {
    begin({{8, 0, 163 << 10}, {9, 0, 227 << 10}});
    const LayerCall call = self_attention("d32_h2_f32:b2_q20_kv20");
    DeviceCallRun first(call);
    void* context = stand_in::make_context(1);
    stand_in::push_context(context);
    DeviceCallRun second(call);
    EXPECT_EQ(second.forward(), ATTNC_OK) << second.error.text;
    EXPECT_EQ(stand_in::launches().back().context, context);
    stand_in::pop_context();
    EXPECT_EQ(first.forward(), ATTNC_OK) << first.error.text;
    EXPECT_NE(stand_in::launches().back().context, context);
    EXPECT_TRUE(equal_bits(first.result(), second.result()));
}

TEST_F(DeviceCalls, DestroyingALayerWaitsForItsWork) {
    const LayerCall call = self_attention("d32_h2_f32:b2_q20_kv20");
    DeviceCallRun run(call);
    ASSERT_EQ(run.launch(), ATTNC_OK) << run.error.text;
    run.destroy();
    EXPECT_TRUE(matches(call, run.result(), {kFakeDeviceTile, kFakeDeviceSplit}));
}

struct Failing {
    int result;
    attnc_status status;
    const char* name;
};
constexpr Failing kFailing[] = {{2, ATTNC_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                                {100, ATTNC_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
                                {700, ATTNC_DEVICE_FAILED, "CUDA_ERROR_ILLEGAL_ADDRESS"}};

// Whether the call that was to fail has come; none is to fail from now on.
bool failed() {
    const bool has = stand_in::has_failed();
    stand_in::fail_call(0, 0);
    return has;
}

// Whichever call of the driver fails, creation says which, and leaves nothing behind.
TEST_F(DeviceCalls, EveryFailureOfACreationIsToldAndLeavesNothing) {
    const LayerCall call = self_attention("d32_h2_f32_rope_sink:b2_q20_kv20");
    for (const Failing& failing : kFailing) {
        int64_t calls = 0;
        for (int64_t n = 1;; ++n) {
            begin();
            stand_in::fail_call(n, failing.result);
            DeviceCallRun run(call);
            if (!failed()) break;
            ++calls;
            EXPECT_EQ(run.status, failing.status) << n;
            const std::string text = run.error.text;
            EXPECT_TRUE(text.find(failing.name) != std::string::npos || text.find("no memory") == 0) << text;
            EXPECT_EQ(stand_in::live(), stand_in::Live()) << n << " " << text;
            EXPECT_EQ(stand_in::context_stack(), std::vector<void*>()) << n;
            EXPECT_EQ(stand_in::faults(), Names()) << n;
        }
        EXPECT_GT(calls, 20);
    }
}

TEST_F(DeviceCalls, EveryFailureOfACallIsToldAndTheContextIsAsBefore) {
    LayerCall call = self_attention("d32_h2_f32_biaskv:b2_q20_kv20");
    call.causal = ATTNC_CAUSAL_TOP_LEFT;
    for (const Failing& failing : kFailing) {
        DeviceCallRun run(call);
        ASSERT_EQ(run.status, ATTNC_OK) << run.error.text;
        int64_t calls = 0;
        for (int64_t n = 1;; ++n) {
            stand_in::fail_call(n, failing.result);
            const attnc_status status = run.launch();
            if (!failed()) break;
            ++calls;
            EXPECT_EQ(status, failing.status) << n;
            EXPECT_NE(std::string(run.error.text).find(failing.name), std::string::npos) << run.error.text;
            EXPECT_EQ(stand_in::context_stack(), std::vector<void*>()) << n;
        }
        EXPECT_GT(calls, 8);
        EXPECT_EQ(run.wait(), ATTNC_OK);
    }
}

TEST_F(DeviceCalls, ARefusedLaunchNamesItsKernel) {
    DeviceCallRun run(self_attention("d32_h2_f32:b2_q20_kv20"));
    stand_in::fail_call(4, 700);  // push, two launches, attend
    EXPECT_EQ(run.launch(), ATTNC_DEVICE_FAILED);
    EXPECT_STREQ(run.error.text, "cuLaunchKernel of attend failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
}

TEST_F(DeviceCalls, AFailureToDestroyLeaksNothingOfTheHost) {
    const LayerCall call = self_attention("d32_h2_f32:b2_q20_kv20");
    for (int64_t n = 1; n < 30; ++n) {
        begin();
        DeviceCallRun run(call);
        stand_in::fail_call(n, 700);
        run.destroy();
        EXPECT_EQ(stand_in::context_stack(), std::vector<void*>()) << n;
    }
    begin();
}

TEST_F(DeviceCalls, WithoutADeviceTheCpuStillWorks) {
    const LayerCall call = self_attention("d32_h2_f32:b2_q20_kv20");
    begin({});
    DeviceCallRun run(call);
    EXPECT_EQ(run.status, ATTNC_NO_DEVICE);
    EXPECT_STREQ(run.error.text, "cuInit failed: CUDA_ERROR_NO_DEVICE (100)");
    EXPECT_STREQ(attnc_library_target_name(run.library.get(), 2), "cuda");
    EXPECT_EQ(attnc_library_target_runs(run.library.get(), 2), 0);
    EXPECT_EQ(attnc_library_target_name(run.library.get(), 3), nullptr);
    ASSERT_EQ(run.create(nullptr), ATTNC_OK) << run.error.text;
    EXPECT_STREQ(attnc_layer_target(run.layer.get()), "x86-64-linux");
    EXPECT_EQ(run.launch(), ATTNC_OK) << run.error.text;
    EXPECT_TRUE(matches(call, run.result(), {16, 16}));
    void* memory = nullptr;
    EXPECT_EQ(attnc_device_allocate(run.layer.get(), 64, &memory, &run.error), ATTNC_NO_DEVICE);
    EXPECT_STREQ(run.error.text, "the layer runs on target x86-64-linux, not on a device");
    begin({{6, 1, 48 << 10}});
    EXPECT_EQ(attnc_library_target_runs(run.library.get(), 2), 1);
    EXPECT_EQ(run.create(), ATTNC_NO_DEVICE);
    EXPECT_STREQ(run.error.text, "device 0 has compute capability 6.1, wanted 7.0 or more");
}

// Of images of which the driver takes a single one, that one has to be chosen.
TEST_F(DeviceCalls, LoadsTheNewestCodeThatTheDeviceRuns) {
    struct {
        int major, minor, architecture;
    } constexpr kDevices[] = {{7, 0, 0},  {7, 5, 75}, {8, 0, 80}, {8, 6, 86},
                              {8, 9, 86}, {9, 0, 90}, {10, 0, 0}};
    for (const auto& device : kDevices) {
        begin({{device.major, device.minor, 99 << 10}});
        DeviceCallRun run(self_attention("d32_h2_f32:b2_q20_kv20"));
        run.destroy();
        attnc_device_kernel& kernel = run.library.device().kernels[ATTNC_DEVICE_KERNEL_ATTEND];
        const attnc_device_image ptx = kernel.images[kernel.image_count - 1];
        std::string refused = static_cast<const char*>(ptx.data);
        refused.replace(refused.find(".version"), 8, ".refused");
        std::vector<attnc_device_image> images;
        for (const int64_t architecture : {75, 80, 86, 90, 0}) {
            const bool good = architecture == device.architecture;
            images.push_back({architecture, good ? ptx.data : refused.c_str(), ptx.bytes});
        }
        kernel.images = images.data();
        kernel.image_count = static_cast<int64_t>(images.size());
        EXPECT_EQ(run.create(), ATTNC_OK) << device.major << "." << device.minor << ": " << run.error.text;
        run.destroy();
    }
}

TEST_F(DeviceCalls, ALibraryForADeviceAloneHasItAsItsTarget) {
    DeviceCallRun run(self_attention("d32_h2_f32:b2_q20_kv20"));
    run.library.table().target_count = 0;
    run.library.table().targets = nullptr;
    EXPECT_STREQ(attnc_library_target_name(run.library.get(), 0), "cuda");
    EXPECT_EQ(attnc_library_target_runs(run.library.get(), 0), 1);
    ASSERT_EQ(run.create(nullptr), ATTNC_OK) << run.error.text;
    EXPECT_STREQ(attnc_layer_target(run.layer.get()), "cuda");
    EXPECT_EQ(run.create("x86-64-linux"), ATTNC_NO_TARGET);
    run.library.table().device = nullptr;
    EXPECT_EQ(run.create(nullptr), ATTNC_BAD_LIBRARY);
    EXPECT_STREQ(run.error.text, "the library has no target");
}

TEST_F(DeviceCalls, MemoryGoesThereAndBack) {
    DeviceCallRun run(self_attention("d32_h2_f32:b2_q20_kv20"));
    std::vector<float> from(1000, 3), to(1000, 0);
    void* memory = nullptr;
    const size_t bytes = from.size() * sizeof(float);
    const attnc_layer* layer = run.layer.get();
    ASSERT_EQ(attnc_device_allocate(layer, bytes, &memory, &run.error), ATTNC_OK);
    EXPECT_EQ(attnc_device_copy_in(layer, memory, from.data(), bytes, nullptr, &run.error), ATTNC_OK);
    EXPECT_EQ(attnc_device_copy_out(layer, to.data(), memory, bytes, nullptr, &run.error), ATTNC_OK);
    EXPECT_EQ(from, to);
    EXPECT_EQ(attnc_device_copy_out(layer, nullptr, memory, bytes, nullptr, &run.error), ATTNC_NULL_ARGUMENT);
    EXPECT_EQ(attnc_device_copy_in(layer, memory, from.data(), 0, nullptr, &run.error), ATTNC_OK);
    EXPECT_EQ(attnc_device_free(layer, memory, &run.error), ATTNC_OK);
    EXPECT_EQ(attnc_device_free(layer, nullptr, &run.error), ATTNC_OK);
    stand_in::fail_call(2, 2);
    EXPECT_EQ(attnc_device_allocate(layer, bytes, &memory, &run.error), ATTNC_OUT_OF_MEMORY);
    EXPECT_STREQ(run.error.text, "no memory on the device for 4000 bytes");
    EXPECT_EQ(memory, nullptr);
    EXPECT_EQ(stand_in::context_stack(), std::vector<void*>());
}

}  // namespace
}  // namespace attnc::test
