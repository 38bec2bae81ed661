// The ready executor: every task once, whatever the number of threads, callers and processes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "runtime/attnc.hpp"

namespace attnc {
namespace {

struct Counted {
    std::vector<std::atomic<int>> runs;
    explicit Counted(int64_t count) : runs(static_cast<size_t>(count)) {}
    static int task(void* data, int64_t index) {
        ++static_cast<Counted*>(data)->runs[static_cast<size_t>(index)];
        return 0;
    }
    bool each_once() const {
        for (const auto& n : runs) {
            if (n != 1) return false;
        }
        return true;
    }
};

int run(const ThreadPool& pool, int64_t count, int (*task)(void*, int64_t), void* data) {
    const attnc_executor* executor = pool.executor();
    return executor->parallel_for(executor->context, count, task, data);
}

TEST(Pool, RunsEveryTaskOnce) {
    for (const int64_t threads : {1, 2, 3, 8}) {
        const ThreadPool pool(threads);
        EXPECT_EQ(pool.executor()->concurrency, threads);
        for (const int64_t count : {0, 1, 2, 3, 7, 100}) {
            Counted counted(count);
            EXPECT_EQ(run(pool, count, Counted::task, &counted), 0);
            EXPECT_TRUE(counted.each_once()) << threads << " " << count;
        }
    }
}

TEST(Pool, ManyJobsFollowEachOther) {
    const ThreadPool pool(4);
    for (int round = 0; round < 5000; ++round) {
        Counted counted(1 + round % 6);
        ASSERT_EQ(run(pool, 1 + round % 6, Counted::task, &counted), 0);
        ASSERT_TRUE(counted.each_once()) << round;
        if (round % 1000 == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(2));  // workers fall asleep
    }
}

TEST(Pool, ReportsATaskThatFails) {
    const ThreadPool pool(2);
    const auto fails = [](void*, int64_t index) { return index == 3 ? 5 : 0; };
    EXPECT_NE(run(pool, 8, fails, nullptr), 0);
    Counted counted(8);
    EXPECT_EQ(run(pool, 8, Counted::task, &counted), 0);
}

TEST(Pool, UsesSeveralThreads) {
    const ThreadPool pool(3);
    struct Meeting {
        std::atomic<int> arrived{0};
    } meeting;
    // Each task waits for the others, so they can only end when all run at a time.
    const auto meet = [](void* data, int64_t) {
        auto& m = *static_cast<Meeting*>(data);
        ++m.arrived;
        while (m.arrived < 3) std::this_thread::yield();
        return 0;
    };
    EXPECT_EQ(run(pool, 3, meet, &meeting), 0);
}

TEST(Pool, SeveralCallersTakeTurns) {
    const ThreadPool pool(2);
    std::vector<std::thread> callers;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t) {
        callers.emplace_back([&] {
            for (int round = 0; round < 300; ++round) {
                Counted counted(5);
                if (run(pool, 5, Counted::task, &counted) != 0 || !counted.each_once()) ++wrong;
            }
        });
    }
    for (auto& caller : callers) caller.join();
    EXPECT_EQ(wrong, 0);
}

// On the caller's thread and on workers alike: waiting there for the pool would never end.
TEST(Pool, ATaskMayAskTheSamePool) {
    struct Outer {
        const ThreadPool& pool;
        Counted inner;
        static int task(void* data, int64_t index) {
            auto& outer = *static_cast<Outer*>(data);
            struct Part {
                Outer& outer;
                int64_t first;
                static int task(void* part_data, int64_t part_index) {
                    const auto& part = *static_cast<Part*>(part_data);
                    return Counted::task(&part.outer.inner, part.first + part_index);
                }
            } part{outer, 5 * index};
            return run(outer.pool, 5, Part::task, &part);
        }
    };
    for (const int64_t threads : {1, 2, 4}) {
        const ThreadPool pool(threads);
        for (int round = 0; round < 200; ++round) {
            Outer outer{pool, Counted(5 * 16)};
            ASSERT_EQ(run(pool, 16, Outer::task, &outer), 0);
            ASSERT_TRUE(outer.inner.each_once()) << threads;
        }
    }
}

TEST(Pool, AChildOfForkRunsOnItsCaller) {
    ThreadPool pool(3);
    Counted before(5);
    ASSERT_EQ(run(pool, 5, Counted::task, &before), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(20);
        Counted counted(5);
        const bool ran = run(pool, 5, Counted::task, &counted) == 0 && counted.each_once();
        pool = ThreadPool(1);  // destroys the inherited one
#ifndef __SANITIZE_THREAD__    // which ends a child that starts threads
        ThreadPool own(2);     // a pool made by the child has threads again
        Counted again(5);
        const bool own_ran = run(own, 5, Counted::task, &again) == 0 && again.each_once();
#else
        const bool own_ran = true;
#endif
        _exit(ran && own_ran ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    Counted after(5);
    EXPECT_EQ(run(pool, 5, Counted::task, &after), 0);
    EXPECT_TRUE(after.each_once());
}

// While another thread holds the pool, too.
TEST(Pool, AForkInTheMiddleOfAJobLeavesTheChildUsable) {
    const ThreadPool pool(2);
    std::atomic<bool> stop{false};
    std::thread busy([&] {
        while (!stop) {
            Counted counted(4);
            run(pool, 4, Counted::task, &counted);
        }
    });
    for (int round = 0; round < 20; ++round) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            alarm(20);
            Counted counted(5);
            _exit(run(pool, 5, Counted::task, &counted) == 0 && counted.each_once() ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    stop = true;
    busy.join();
}

TEST(Pool, RefusesWrongNumbersOfThreads) {
    for (const int64_t threads : {-1, 0, 1025}) {
        attnc_error error = {};
        attnc_pool* pool = nullptr;
        EXPECT_EQ(attnc_pool_create(threads, &pool, &error), ATTNC_BAD_VALUE);
        EXPECT_EQ(std::string(error.text), "threads is " + std::to_string(threads) + ", wanted 1 to 1024");
        EXPECT_EQ(pool, nullptr);
    }
    attnc_error error = {};
    EXPECT_EQ(attnc_pool_create(1, nullptr, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "pool is null");
    attnc_pool_destroy(nullptr);
}

}  // namespace
}  // namespace attnc
