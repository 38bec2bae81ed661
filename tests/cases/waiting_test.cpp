// More threads than cores: barriers that spin made a program hundreds of times slower, or look hung
// (ggml-org/llama.cpp#1159, #29258, #13079). A thread that waits must sleep. Processor time shows it whatever else the
// machine does: a thread that sleeps has none.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/cases/direct_call.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

// Of all threads of this process.
double processor_seconds() {
    timespec time = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The calling thread, and those and the processes that it starts, run on one core only while this object lives.
class OneCore {
public:
    OneCore() {
        sched_getaffinity(0, sizeof before_, &before_);
        int core = 0;
        while (core + 1 < CPU_SETSIZE && !CPU_ISSET(core, &before_)) ++core;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    OneCore(const OneCore&) = delete;
    OneCore& operator=(const OneCore&) = delete;
    ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }

private:
    cpu_set_t before_;
};

// 0.4 seconds in which one of two tasks does nothing: seven threads wait for it, or for work.
TEST(WaitingThreads, SleepWhileATaskTakesLong) {
    const OneCore one;
    const PoolPointer pool = make_pool(8);
    const attnc_executor* executor = attnc_pool_executor(pool.get());
    const auto task = [](void*, int64_t index) {
        if (index == 0) std::this_thread::sleep_for(std::chrono::milliseconds(400));
        return 0;
    };
    for (const int64_t count : {2, 8}) {
        const double before = processor_seconds();
        EXPECT_EQ(executor->parallel_for(executor->context, count, task, nullptr), 0);
        EXPECT_LT(processor_seconds() - before, 0.1) << count << " tasks";
    }
}

TEST(WaitingThreads, SleepBetweenJobs) {
    const OneCore one;
    const PoolPointer pool = make_pool(8);
    const attnc_executor* executor = attnc_pool_executor(pool.get());
    const auto task = [](void*, int64_t) { return 0; };
    EXPECT_EQ(executor->parallel_for(executor->context, 8, task, nullptr), 0);
    const double before = processor_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    EXPECT_LT(processor_seconds() - before, 0.1);
}

struct Layer {
    LayerCall call = random_call("d64_h4_f32_nomask_noprobs:b16_q128_kv128", 41);
    LayerPointer layer = make_layer(call, runnable_targets().front());

    // Seconds of the process for `calls` calls by a pool of `threads`.
    double seconds(int64_t threads, int calls) const {
        const PoolPointer pool = make_pool(threads);
        const attnc_executor* executor = attnc_pool_executor(pool.get());
        forward(layer.get(), call, executor);  // not measured: the threads start
        const double before = processor_seconds();
        for (int n = 0; n < calls; ++n) forward(layer.get(), call, executor);
        return processor_seconds() - before;
    }
};

// At most twice the time of one thread, and some milliseconds for a machine that does other things too.
constexpr double kSlack = 0.02;

TEST(WaitingThreads, ThatOutnumberCoresCostNoMoreThanOneThread) {
    const Layer layer;
    const OneCore one;
    const double alone = layer.seconds(1, 20);
    for (const int64_t threads : {2, 4, 8}) {
        EXPECT_LT(layer.seconds(threads, 20), 2 * alone + kSlack) << threads << " threads";
    }
}

// Two processes of four threads each.
TEST(WaitingThreads, OfTwoProcessesShareACore) {
    const Layer layer;
    const OneCore one;
    const double alone = layer.seconds(1, 20);
    std::vector<pid_t> children;
    for (int n = 0; n < 2; ++n) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) _exit(layer.seconds(4, 20) < 2 * alone + kSlack ? 0 : 1);
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    }
}

}  // namespace
}  // namespace attnc::test
