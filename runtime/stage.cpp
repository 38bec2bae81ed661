#include "runtime/stage.h"

#include <atomic>

#include "runtime/arena.h"
#include "runtime/arithmetic.h"
#include "runtime/fp_control.h"
#include "runtime/text.h"

namespace attnc {
namespace {

// State that the tasks of a stage share.
struct Shared {
    const Wave& wave;
    const WorkList* lists;
    int64_t list_count;
    int64_t work_count;
    int64_t task_count;
    std::atomic<int64_t> next_work{0};
    std::atomic<int64_t> next_worker{0};  // tasks take their part of the workspace in the order they come
    std::atomic<int64_t> tasks_done{0};
    std::atomic<int> failed{0};
    attnc_error failure = {};  // written by the task that set `failed`
};

void record_failure(Shared& shared, const attnc_task& task, const char* kernel) {
    if (shared.failed.exchange(1, std::memory_order_relaxed) != 0) return;
    if (task.error_text[0] != 0) {
        fail(&shared.failure, ATTNC_KERNEL_FAILED, {"kernel ", kernel, " failed: ", task.error_text});
    } else {
        fail(&shared.failure, ATTNC_KERNEL_FAILED,
             {"kernel ", kernel, " failed with code ", task.error_code});
    }
}

// Workers take turns, each along a stretch of a list: what a piece of work asks for ahead is wanted by the next one, and heads
// are attended where they were projected.
int64_t along_stretch(int64_t turn, int64_t count, int64_t workers) {
    const int64_t stretch = turn % workers, longer = count % workers;
    return stretch * (count / workers) + least(stretch, longer) + turn / workers;
}

bool run_one(const Shared& shared, Worker& worker, int64_t turn, const char** refused) {
    const WorkList* list = shared.lists;
    while (turn >= list->count) turn -= list++->count;
    const int64_t index = along_stretch(turn, list->count, shared.task_count);
    return list->run(shared.wave, list->data, worker, index, refused);
}

int run_task(void* data, int64_t) {
    auto& shared = *static_cast<Shared*>(data);
    const int64_t number = shared.next_worker.fetch_add(1, std::memory_order_relaxed);
    if (number >= shared.task_count) return 1;  // the executor runs more tasks than it was asked to
    const FpControlGuard guard;
    const Plan& plan = shared.wave.plan;
    Worker worker;
    worker.copied = {};
    worker.memory = shared.wave.workspace + plan.workers + number * plan.worker_bytes;
    arena_init(worker.task, worker.memory + plan.worker_scratch, shared.wave.layer.scratch_bytes);
    int64_t index = 0;
    while (shared.failed.load(std::memory_order_relaxed) == 0 &&
           (index = shared.next_work.fetch_add(1, std::memory_order_relaxed)) < shared.work_count) {
        const char* refused = "";
        if (!run_one(shared, worker, index, &refused)) record_failure(shared, worker.task, refused);
    }
    shared.tasks_done.fetch_add(1, std::memory_order_release);
    return shared.failed.load(std::memory_order_relaxed);
}

}  // namespace

attnc_status run_stage(attnc_error* error, const Wave& wave, const WorkList* lists, int64_t list_count) {
    int64_t work = 0;
    for (int64_t i = 0; i < list_count; ++i) work += lists[i].count;
    if (work == 0) return ATTNC_OK;
    const int64_t tasks = work < wave.plan.concurrency ? work : wave.plan.concurrency;
    Shared shared{
        .wave = wave, .lists = lists, .list_count = list_count, .work_count = work, .task_count = tasks};
    const attnc_executor* executor = wave.request.executor;
    const int returned = executor != nullptr
                             ? executor->parallel_for(executor->context, tasks, run_task, &shared)
                             : run_task(&shared, 0);
    const int64_t done = shared.tasks_done.load(std::memory_order_acquire);
    if (shared.failed.load(std::memory_order_relaxed) != 0) {
        return fail(error, shared.failure.code, {shared.failure.text});
    }
    if (returned != 0) {
        return fail(error, ATTNC_EXECUTOR_FAILED, {"executor.parallel_for returned ", returned});
    }
    const int64_t started = shared.next_worker.load(std::memory_order_relaxed);
    if (done != tasks || started != tasks) {
        return fail(error, ATTNC_EXECUTOR_FAILED,
                    {"executor.parallel_for ran ", started, " tasks, wanted ", tasks});
    }
    return ATTNC_OK;
}

}  // namespace attnc
