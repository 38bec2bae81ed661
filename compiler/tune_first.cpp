#include "compiler/tune_first.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "compiler/files.h"
#include "compiler/hash.h"
#include "compiler/inner_loop_cost.h"
#include "compiler/interrupt.h"
#include "compiler/library_plan.h"
#include "compiler/tune_trials.h"

namespace attnc {

namespace {

constexpr double kNoLoop = std::numeric_limits<double>::infinity();

// Projections have one loop of multiply-adds, attention has one for scores and one for contexts.
size_t loops_of(const SearchPart& part) { return part.name.starts_with("project") ? 1 : 2; }

// All that decides about the kernel's object, and how many of its loops are looked at.
std::string analysis_key(const FirstRequest& request, const KernelJob& job) {
    const std::string all = fmt::format("{} {} {} {} {}", request.versions.identity, job.config, job.target,
                                        job.schedule, loops_of(request.part.part));
    return fmt::format("{}{} {}", analysis_key_begin(request.part.part.name, request.config), job.schedule,
                       hash128_hex(all));
}

std::optional<double> analyse(const FirstRequest& request, const KernelJob& job,
                              const std::filesystem::path& folder) {
    WorkerOptions workers = request.workers;
    workers.folder = folder;
    workers.jobs = 1;
    const std::vector<CompiledKernel> compiled = compile_kernels({job}, request.versions, workers);
    return inner_loop_cycles(compiled.front().object, request.target, loops_of(request.part.part), folder);
}

// In as many threads as workers; a kernel that can't be compiled costs its candidate alone.
std::vector<double> analyse_all(const FirstRequest& request, const std::vector<SearchPoint>& points) {
    std::vector<double> cycles(points.size(), kNoLoop);
    std::atomic<size_t> next = 0;
    std::mutex mutex;  // of the journal and of what follows
    std::exception_ptr failure;
    const auto one = [&](size_t i, const std::filesystem::path& folder) {
        const CpuSchedule schedule = request.space.schedule(points[i]);
        const int kernel = request.part.part.kernels.front();
        if (!has_kernel(schedule, kernel)) return;
        const KernelJob job = kernel_job(request.config, request.target, schedule, kernel);
        const std::string key = analysis_key(request, job);
        std::optional<double> found;
        if (request.journal != nullptr) {
            const std::lock_guard<std::mutex> lock(mutex);
            found = request.journal->find_cycles(key);
        }
        const bool known = found.has_value();
        if (!known) found = analyse(request, job, folder);
        if (!found) return;
        cycles[i] = *found;
        if (known || request.journal == nullptr) return;
        const std::lock_guard<std::mutex> lock(mutex);
        try {
            request.journal->add_cycles(key, *found);
        } catch (const std::exception&) {
            failure = std::current_exception();
        }
    };
    const auto work = [&](int number) {
        const std::filesystem::path folder = request.workers.folder / fmt::format("analysis{}", number);
        make_folder(folder);
        for (size_t i = next++; i < points.size() && !request.ended(); i = next++) {
            try {
                one(i, folder);
            } catch (const Interrupted&) {
                const std::lock_guard<std::mutex> lock(mutex);
                failure = std::current_exception();
                return;
            } catch (const std::exception&) {
                cycles[i] = kNoLoop;  // the search will say why, if it comes to it
            }
        }
    };
    {
        std::vector<std::jthread> threads;
        for (int n = 0; n < std::max(request.workers.jobs, 1); ++n) threads.emplace_back(work, n);
    }
    if (failure) std::rethrow_exception(failure);
    return cycles;
}

}  // namespace

std::vector<SearchPoint> choose_first(const FirstRequest& request) {
    const auto& [part, space, config, target, caches, count, analysed, seed, versions, journal, workers,
                 ended] = request;
    const std::vector<SearchPoint> ranked =
        ranked_points(space, space.points(), config, target, part.sizes, caches);
    std::vector<SearchPoint> chosen = first_candidates(space, ranked, std::max(count, analysed), seed);
    if (analysed <= count) return chosen;
    // Both have to think well of a candidate: the analysis knows the code, but neither rows in vain nor caches.
    const std::vector<double> cycles = analyse_all(request, chosen);
    std::vector<double> score;
    score.reserve(chosen.size());
    for (size_t i = 0; i < chosen.size(); ++i) {
        score.push_back(cycles[i] * static_estimate(space.schedule(chosen[i]), part.part, config, target,
                                                    part.sizes, caches));
    }
    std::vector<size_t> order(chosen.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score[a] < score[b]; });
    std::vector<SearchPoint> best;
    for (size_t i = 0; i < std::min(count, order.size()); ++i) best.push_back(chosen[order[i]]);
    return best;
}

}  // namespace attnc
