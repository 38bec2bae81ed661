// Faults that users of other attention layers met with threads, many calls and the memory they take.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/layer_run.h"
#include "tests/harness/libraries.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kMemoryDriftKib = int64_t{1} << 30;  // a sanitizer keeps freed memory
#else
constexpr int64_t kMemoryDriftKib = 1024;
#endif

struct LayerDelete {
    void operator()(attnc_layer* layer) const { attnc_layer_destroy(layer); }
};
using LayerPointer = std::unique_ptr<attnc_layer, LayerDelete>;

LayerPointer make_layer(const LayerCall& call, const std::string& target) {
    attnc_error error = {};
    attnc_layer_options options = ATTNC_LAYER_OPTIONS_INIT;
    options.target = target.c_str();
    const attnc_weights weights = call.weights();
    attnc_layer* layer = nullptr;
    EXPECT_EQ(attnc_layer_create(library_of(call.config), &weights, &options, &layer, &error), ATTNC_OK)
        << error.text;
    return LayerPointer(layer);
}

// One call with memory of its own; empty when it failed.
std::vector<float> forward(const attnc_layer* layer, const LayerCall& call,
                           const attnc_executor* executor = nullptr) {
    attnc_error error = {};
    const attnc_inputs in = call.inputs();
    Array<float> out = filled<float>({call.sizes.batch, call.sizes.seq_q, call.config.d_model}, 0);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = out.view();
    attnc_run run = ATTNC_RUN_INIT;
    run.executor = executor;
    if (attnc_layer_workspace(layer, &in, &outputs, &run, &run.workspace_bytes, &error) != ATTNC_OK)
        return {};
    const std::unique_ptr<void, decltype(&std::free)> workspace(
        std::aligned_alloc(64, (run.workspace_bytes + 63) / 64 * 64), std::free);
    run.workspace = workspace.get();
    if (attnc_layer_forward(layer, &in, &outputs, &run, &error) != ATTNC_OK) return {};
    return out.values;
}

int64_t resident_kib() {
    std::ifstream statm("/proc/self/statm");
    int64_t all = 0, resident = 0;
    statm >> all >> resident;
    return resident * sysconf(_SC_PAGESIZE) / 1024;
}

class ThreadCases : public TargetTest {};
ATTNC_FOR_EACH_TARGET(ThreadCases);

TEST_P(ThreadCases, MemoryStaysFlatOverManySizes_M32) {
    const LayerCall first = random_call("d48_h3_f32:b1_q1_kv1", 32);
    const LayerPointer layer = make_layer(first, target());
    Random random(320);
    int64_t warm = 0;
    for (int n = 0; n < 600; ++n) {
        const int64_t seq = n < 20 ? 257 - n : random.between(1, 256);
        LayerCall call = first;
        call.sizes = {1, seq, seq};
        call.query = random_array({1, seq, 48}, random.bits(), 1);
        call.key = call.value = {};
        ASSERT_FALSE(forward(layer.get(), call).empty());
        if (n == 100) warm = resident_kib();
    }
    EXPECT_LT(resident_kib() - warm, kMemoryDriftKib);
}

TEST_P(ThreadCases, ShortLivedThreadsLeaveNothing_M32) {
    const LayerCall call = random_call("d48_h3_f32:b1_q17_kv17", 33);
    const LayerPointer layer = make_layer(call, target());
    const std::vector<float> want = forward(layer.get(), call);
    std::atomic<int> wrong{0};
    int64_t warm = 0;
    for (int n = 0; n < 200; ++n) {
        std::thread([&] {
            if (!same_bits(want, forward(layer.get(), call))) ++wrong;
        }).join();
        if (n == 50) warm = resident_kib();
    }
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_LT(resident_kib() - warm, kMemoryDriftKib);
}

TEST_P(ThreadCases, ThreadCountChangesNoBit_M36) {
    for (const char* problem :
         {"d56_h4_f32:b1_q56_kv56", "d444_h4_f32:b1_q20_kv20", "d512_h8_f32:b1_q50_kv50"}) {
        const LayerCall call = random_call(problem, 36);
        const RunResult alone = run_call(call, target());
        EXPECT_TRUE(matches_reference(call, alone, {.target = target()}));
        for (const int64_t threads : {1, 2, 3, 8}) {
            const RunOptions options = {
                .target = target(), .executor = Executor::kPool, .concurrency = threads};
            EXPECT_TRUE(same_bits(alone, run_call(call, options)))
                << problem << ", " << threads << " threads";
        }
    }
}

TEST_P(ThreadCases, OneLayerServesManyThreadsAtOnce_M43) {
    std::vector<LayerCall> calls;
    for (const int64_t seq : {3, 17, 33, 50}) {
        LayerCall call = random_call(parse_config("d48_h3_f32"), {2, seq, seq}, 43);
        call.key_lengths = {{2}, {seq, (seq + 1) / 2}};
        calls.push_back(call);
    }
    const LayerPointer layer = make_layer(calls[0], target());
    std::vector<std::vector<float>> want;
    for (const LayerCall& call : calls) want.push_back(forward(layer.get(), call));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            for (size_t n = 0; n < 100; ++n) {
                const size_t which = (n + t) % calls.size();
                if (!same_bits(want[which], forward(layer.get(), calls[which]))) ++wrong;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0);
}

// Very many heads of one token, on a thread with little stack.
TEST_P(ThreadCases, ManyTinyTasksNeedLittleStack_M45) {
    struct Work {
        const attnc_layer* layer;
        LayerCall call;
        std::vector<float> got;
    };
    Work work = {nullptr, random_call("d16_h16_f32:b2000_q1_kv1", 45), {}};
    const LayerPointer layer = make_layer(work.call, target());
    work.layer = layer.get();
    const std::vector<float> want = forward(layer.get(), work.call);
    ASSERT_FALSE(want.empty());

    pthread_attr_t attributes;
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
    pthread_t thread{};
    const auto run = [](void* argument) -> void* {
        auto& w = *static_cast<Work*>(argument);
        attnc_pool* pool = nullptr;
        attnc_error error = {};
        if (attnc_pool_create(2, &pool, &error) != ATTNC_OK) return nullptr;
        w.got = forward(w.layer, w.call, attnc_pool_executor(pool));
        attnc_pool_destroy(pool);
        return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, run, &work), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    EXPECT_TRUE(same_bits(want, work.got));
}

}  // namespace
}  // namespace attnc::test
