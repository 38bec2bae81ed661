// Faults that users of other attention layers met with threads, and with what many calls and threads leave in memory,
// each with its public report.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/cases/direct_call.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kMemoryDriftKib = int64_t{1} << 30;  // a sanitizer keeps freed memory
#else
constexpr int64_t kMemoryDriftKib = 1024;
#endif

int64_t resident_kib() {
    std::ifstream statm("/proc/self/statm");
    int64_t all = 0, resident = 0;
    statm >> all >> resident;
    return resident * sysconf(_SC_PAGESIZE) / 1024;
}

class ThreadCases : public TargetTest {};
ATTNC_FOR_EACH_TARGET(ThreadCases);

// Memory grew when the length varied (pytorch/pytorch#32596, #29893): 5000 calls of any length. Everything that the test
// itself needs is there before, so that what grows is the layer's.
TEST_P(ThreadCases, MemoryStaysFlatOverManySizes) {
    constexpr int64_t kLongest = 512, kFeatures = 16;
    const LayerCall call =
        random_call(parse_config("d16_h1_f32_nomask_noprobs"), {1, kLongest, kLongest}, 32);
    const LayerPointer layer = make_layer(call, target());
    Array<float> out = filled<float>({1, kLongest, kFeatures}, 0);
    Workspace workspace;
    Random random(320);
    int64_t warm = 0;
    for (int n = 0; n < 5000; ++n) {
        const int64_t seq = n < 20 ? kLongest - n : random.between(1, kLongest);
        attnc_inputs in = ATTNC_INPUTS_INIT;
        in.query = attnc_tensor_3d(ATTNC_F32, call.query.values.data(), 1, seq, kFeatures);
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = attnc_tensor_3d(ATTNC_F32, out.values.data(), 1, seq, kFeatures);
        const DirectResult result = forward(layer.get(), in, outputs, workspace);
        ASSERT_TRUE(result.ok()) << result.error;
        if (n == 100) warm = resident_kib();
    }
    EXPECT_LT(resident_kib() - warm, kMemoryDriftKib);
}

// Memory grew with every new thread that called (pytorch/pytorch#64412, halide/Halide#5883): 500 that call once.
TEST_P(ThreadCases, ShortLivedThreadsLeaveNothing) {
    const LayerCall call = random_call("d48_h3_f32:b1_q17_kv17", 33);
    const LayerPointer layer = make_layer(call, target());
    const std::vector<float> want = forward(layer.get(), call);
    std::vector<float> got(want.size());
    const attnc_inputs in = call.inputs();
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = attnc_tensor_3d(ATTNC_F32, got.data(), 1, 17, 48);
    Workspace workspace;
    int64_t warm = 0;
    for (int n = 0; n < 500; ++n) {
        bool ok = false;
        std::thread([&] { ok = forward(layer.get(), in, outputs, workspace).ok(); }).join();
        ASSERT_TRUE(ok);
        ASSERT_TRUE(same_bits(want, got));
        if (n == 50) warm = resident_kib();
    }
    EXPECT_LT(resident_kib() - warm, kMemoryDriftKib);
}

// A layer gave other bits when the number of threads changed (pytorch/pytorch#88718).
TEST_P(ThreadCases, ThreadCountChangesNoBit) {
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

// One compiled object run from several threads gave wrong results and a corrupted heap (uxlfoundation/oneDNN#4381, #5393,
// microsoft/onnxruntime#13571): 8 threads, 1000 calls each, of changing shapes.
TEST_P(ThreadCases, OneLayerServesManyThreadsAtOnce) {
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
            for (size_t n = 0; n < 1000; ++n) {
                const size_t which = (n + t) % calls.size();
                if (!same_bits(want[which], forward(layer.get(), calls[which]))) ++wrong;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0);
}

// Stacks that every thread gets which names no other, those of a pool too, while this object lives.
class DefaultStack {
public:
    explicit DefaultStack(size_t bytes) {
        pthread_getattr_default_np(&before_);
        pthread_attr_t small;
        pthread_getattr_default_np(&small);
        pthread_attr_setstacksize(&small, bytes);
        pthread_setattr_default_np(&small);
        pthread_attr_destroy(&small);
    }
    DefaultStack(const DefaultStack&) = delete;
    DefaultStack& operator=(const DefaultStack&) = delete;
    ~DefaultStack() {
        pthread_setattr_default_np(&before_);
        pthread_attr_destroy(&before_);
    }

private:
    pthread_attr_t before_;
};

// Nested parallel loops recursed on the stack of one task until it overflowed (halide/Halide#9377, #9372): 100000 heads
// of one token, on threads with 256 KiB of stack.
TEST_P(ThreadCases, ManyTinyTasksNeedLittleStack) {
    const LayerCall call = random_call("d16_h16_f32:b6250_q1_kv1", 45);
    const LayerPointer layer = make_layer(call, target());
    const std::vector<float> want = forward(layer.get(), call);
    ASSERT_FALSE(want.empty());
    std::vector<float> got;
    {
        const DefaultStack stack(256 * 1024);
        std::thread([&] {
            const PoolPointer pool = make_pool(2);
            got = forward(layer.get(), call, attnc_pool_executor(pool.get()));
        }).join();
    }
    EXPECT_TRUE(same_bits(want, got));
}

}  // namespace
}  // namespace attnc::test
