// A ready executor: worker threads that wait for tasks, first for a short time awake, then asleep.
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <cstring>
#include <new>

#include "runtime/attnc.h"
#include "runtime/text.h"

// Tasks are claimed by counting `unclaimed` down, so that a claim is always one of the job whose fields are
// there: those change only when every claimed task has ended. A worker that wakes late finds nothing left.
struct attnc_pool {
    attnc_executor executor = {};
    int64_t thread_count = 0;  // started ones
    uint64_t generation = 0;   // of the process that started them
    pthread_t* threads = nullptr;

    pthread_mutex_t entry;             // held by the caller whose tasks run
    std::atomic<pthread_t> caller{0};  // that thread; 0: none (no thread's handle in glibc)
    int (*task)(void*, int64_t) = nullptr;
    void* data = nullptr;

    alignas(64) std::atomic<int64_t> unclaimed{0};
    std::atomic<int64_t> unfinished{0};
    std::atomic<int> failed{0};  // a task returned non-zero

    alignas(64) std::atomic<int> stop{0};
    std::atomic<int> sleepers{0};
    std::atomic<int> caller_sleeps{0};
    pthread_mutex_t mutex;  // of the two conditions
    pthread_cond_t work_condition, done_condition;
};

namespace {

constexpr int64_t kMaxThreads = 1024;

// How long a thread looks before it sleeps. Being woken takes some 50 microseconds on a virtual machine, so that a stage's
// last tasks are waited for awake, but for long ones: others may want the core. Between two stages of a layer pass some
// microseconds.
constexpr int64_t kNanosecondsOfTasks = 1000000, kNanosecondsBetween = 20000;
constexpr int kLooksBetweenTimes = 16;

// Threads don't survive fork. The child counts a generation on, and a pool of an earlier one runs on its
// caller.
std::atomic<uint64_t> fork_generation{0};
pthread_once_t fork_handler_once = PTHREAD_ONCE_INIT;
std::atomic<int> fork_handler_installed{0};

void count_fork() { fork_generation.fetch_add(1, std::memory_order_relaxed); }
void install_fork_handler() {
    fork_handler_installed.store(pthread_atfork(nullptr, nullptr, count_fork) == 0 ? 1 : 0,
                                 std::memory_order_relaxed);
}

bool in_forked_child(const attnc_pool& pool) {
    return pool.generation != fork_generation.load(std::memory_order_relaxed);
}

// Claims one task and runs it. False when none was left.
bool run_one(attnc_pool& pool) {
    int64_t left = pool.unclaimed.load(std::memory_order_relaxed);
    do {
        if (left <= 0) return false;
    } while (!pool.unclaimed.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                                   std::memory_order_relaxed));
    if (pool.task(pool.data, left - 1) != 0) pool.failed.store(1, std::memory_order_relaxed);
    if (pool.unfinished.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
        pool.caller_sleeps.load(std::memory_order_seq_cst) != 0) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_signal(&pool.done_condition);
        pthread_mutex_unlock(&pool.mutex);
    }
    return true;
}

bool has_news(const attnc_pool& pool) {
    return pool.unclaimed.load(std::memory_order_seq_cst) > 0 ||
           pool.stop.load(std::memory_order_seq_cst) != 0;
}

int64_t nanoseconds() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

// Looks until `done`; false when it is time to sleep.
template <typename Done>
bool look_awake(const attnc_pool& pool, Done done) {
    const int64_t begin = nanoseconds();
    int64_t running = begin;  // when tasks were last seen to run
    for (;;) {
        for (int i = 0; i < kLooksBetweenTimes; ++i) {
            if (done()) return true;
            _mm_pause();
        }
        const int64_t now = nanoseconds();
        const bool runs = pool.unfinished.load(std::memory_order_relaxed) > 0;
        if (runs && now - begin < kNanosecondsOfTasks) running = now;
        if (now - running > kNanosecondsBetween) return false;
        if (now - begin > kNanosecondsBetween)
            sched_yield();  // where threads outnumber cores, to one that works
    }
}

void wait_for_work(attnc_pool& pool) {
    if (look_awake(pool, [&] { return has_news(pool); })) return;
    pthread_mutex_lock(&pool.mutex);
    pool.sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (!has_news(pool)) pthread_cond_wait(&pool.work_condition, &pool.mutex);
    pool.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    pthread_mutex_unlock(&pool.mutex);
}

void* work(void* argument) {
    auto& pool = *static_cast<attnc_pool*>(argument);
    while (pool.stop.load(std::memory_order_acquire) == 0) {
        if (!run_one(pool)) wait_for_work(pool);
    }
    return nullptr;
}

void wake_workers(attnc_pool& pool, int64_t tasks) {
    if (pool.sleepers.load(std::memory_order_seq_cst) == 0) return;
    pthread_mutex_lock(&pool.mutex);
    if (tasks == 1) {
        pthread_cond_signal(&pool.work_condition);
    } else {
        pthread_cond_broadcast(&pool.work_condition);
    }
    pthread_mutex_unlock(&pool.mutex);
}

void wait_for_tasks(attnc_pool& pool) {
    if (look_awake(pool, [&] { return pool.unfinished.load(std::memory_order_acquire) == 0; })) return;
    pthread_mutex_lock(&pool.mutex);
    pool.caller_sleeps.store(1, std::memory_order_seq_cst);
    while (pool.unfinished.load(std::memory_order_seq_cst) != 0) {
        pthread_cond_wait(&pool.done_condition, &pool.mutex);
    }
    pool.caller_sleeps.store(0, std::memory_order_relaxed);
    pthread_mutex_unlock(&pool.mutex);
}

int run_here(int64_t count, int (*task)(void*, int64_t), void* data) {
    int failed = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (task(data, i) != 0) failed = 1;
    }
    return failed;
}

// True on a thread that is busy with a task of this pool. Waiting there for another job would never end.
bool in_own_task(const attnc_pool& pool) {
    const pthread_t self = pthread_self();
    if (pool.caller.load(std::memory_order_relaxed) == self) return true;
    for (int64_t i = 0; i < pool.thread_count; ++i) {
        if (pthread_equal(pool.threads[i], self) != 0) return true;
    }
    return false;
}

int parallel_for(void* context, int64_t count, int (*task)(void*, int64_t), void* data) {
    auto& pool = *static_cast<attnc_pool*>(context);
    if (count <= 1 || pool.thread_count == 0 || in_forked_child(pool) || in_own_task(pool)) {
        return run_here(count, task, data);
    }
    pthread_mutex_lock(&pool.entry);
    pool.caller.store(pthread_self(), std::memory_order_relaxed);
    pool.task = task;
    pool.data = data;
    pool.failed.store(0, std::memory_order_relaxed);
    pool.unfinished.store(count, std::memory_order_relaxed);
    pool.unclaimed.store(count, std::memory_order_seq_cst);
    wake_workers(pool, count - 1);
    while (run_one(pool)) {
    }
    wait_for_tasks(pool);
    const int failed = pool.failed.load(std::memory_order_relaxed);
    pool.caller.store(0, std::memory_order_relaxed);
    pthread_mutex_unlock(&pool.entry);
    return failed;
}

void stop_threads(attnc_pool& pool) {
    pool.stop.store(1, std::memory_order_seq_cst);
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_broadcast(&pool.work_condition);
    pthread_mutex_unlock(&pool.mutex);
    for (int64_t i = 0; i < pool.thread_count; ++i) pthread_join(pool.threads[i], nullptr);
}

// Signals are for the program's own threads: workers start with all of them blocked.
int start_threads(attnc_pool& pool, int64_t count) {
    sigset_t all, before;
    memset(&all, 0xff, sizeof all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = 0;
    while (pool.thread_count < count) {
        result = pthread_create(&pool.threads[pool.thread_count], nullptr, work, &pool);
        if (result != 0) break;
        ++pool.thread_count;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return result;
}

}  // namespace

using attnc::fail;

extern "C" attnc_status attnc_pool_create(int64_t threads, attnc_pool** pool, attnc_error* error) {
    if (pool == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"pool is null"});
    *pool = nullptr;
    if (threads < 1 || threads > kMaxThreads) {
        return fail(error, ATTNC_BAD_VALUE, {"threads is ", threads, ", wanted 1 to ", kMaxThreads});
    }
    pthread_once(&fork_handler_once, install_fork_handler);
    if (fork_handler_installed.load(std::memory_order_relaxed) == 0) {
        return fail(error, ATTNC_OUT_OF_MEMORY, {"no memory for the fork handler of a pool"});
    }
    void* memory = aligned_alloc(alignof(attnc_pool), sizeof(attnc_pool));
    auto* handles = static_cast<pthread_t*>(malloc(static_cast<size_t>(threads) * sizeof(pthread_t)));
    if (memory == nullptr || handles == nullptr) {
        free(memory);
        free(handles);
        return fail(error, ATTNC_OUT_OF_MEMORY, {"no memory for a pool of ", threads, " threads"});
    }
    auto* made = new (memory) attnc_pool;
    made->executor = {made, threads, parallel_for};
    made->generation = fork_generation.load(std::memory_order_relaxed);
    made->threads = handles;
    pthread_mutex_init(&made->entry, nullptr);
    pthread_mutex_init(&made->mutex, nullptr);
    pthread_cond_init(&made->work_condition, nullptr);
    pthread_cond_init(&made->done_condition, nullptr);
    if (const int result = start_threads(*made, threads - 1); result != 0) {
        const int64_t started = made->thread_count + 1;
        attnc_pool_destroy(made);
        return fail(error, ATTNC_OUT_OF_MEMORY,
                    {"thread ", started + 1, " of ", threads, " could not be started (error ", result, ")"});
    }
    *pool = made;
    return ATTNC_OK;
}

extern "C" const attnc_executor* attnc_pool_executor(attnc_pool* pool) { return &pool->executor; }

extern "C" void attnc_pool_destroy(attnc_pool* pool) {
    if (pool == nullptr) return;
    if (!in_forked_child(*pool)) {  // in a child the threads are gone, and who held the locks is unknown
        stop_threads(*pool);
        pthread_mutex_destroy(&pool->entry);
        pthread_mutex_destroy(&pool->mutex);
        pthread_cond_destroy(&pool->work_condition);
        pthread_cond_destroy(&pool->done_condition);
    }
    free(pool->threads);
    free(pool);
}
