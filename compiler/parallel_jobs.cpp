#include "compiler/parallel_jobs.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace attnc {

namespace {

int available_cpus() {
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return std::max(1, CPU_COUNT(&set));
}

}  // namespace

void for_each_job(size_t count, int jobs, const std::function<void(int done, int all)>& progress,
                  const std::function<void(size_t)>& work) {
    std::atomic<size_t> next = 0;
    std::mutex mutex;  // of what follows
    std::exception_ptr failure;
    int done = 0;
    const auto run = [&] {
        for (;;) {
            const size_t index = next++;
            if (index >= count) return;
            try {
                work(index);
            } catch (...) {
                const std::lock_guard<std::mutex> lock(mutex);
                if (!failure) failure = std::current_exception();
                next = count;
                return;
            }
            const std::lock_guard<std::mutex> lock(mutex);
            ++done;
            if (progress) progress(done, static_cast<int>(count));
        }
    };
    const auto wanted = static_cast<size_t>(jobs > 0 ? jobs : available_cpus());
    {
        std::vector<std::jthread> threads;
        threads.reserve(std::min(wanted, count));
        for (size_t i = 0; i < std::min(wanted, count); ++i) threads.emplace_back(run);
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace attnc
