#include "compiler/tune_builder.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <stdexcept>

#include "compiler/files.h"
#include "compiler/hash.h"
#include "compiler/interrupt.h"
#include "compiler/library_writer.h"
#include "compiler/load_library.h"
#include "compiler/manifest.h"

namespace attnc {

namespace fs = std::filesystem;

CandidateBuilder::CandidateBuilder(const BuilderOptions& options)
    : options_(options), versions_(versions_of(options.installation.command)) {
    for (size_t i = 0; i < options_.cpus.size(); ++i) threads_.emplace_back([this] { work(); });
}

CandidateBuilder::~CandidateBuilder() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ending_ = true;
        queue_.clear();
    }
    changed_.notify_all();
}

size_t CandidateBuilder::built() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return slots_.size();
}

void CandidateBuilder::prepare(const std::vector<CpuSchedule>& schedules) {
    if (threads_.empty()) return;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        queue_.clear();
        for (const CpuSchedule& schedule : schedules) {
            const std::string text = to_string(schedule);
            if (!slots_.contains(text)) queue_.push_back(text);
        }
    }
    changed_.notify_all();
}

BuiltSchedule CandidateBuilder::get(const CpuSchedule& schedule) {
    const std::string text = to_string(schedule);
    std::unique_lock<std::mutex> lock(mutex_);
    if (!slots_.contains(text)) {
        if (threads_.empty()) {
            slots_[text];
            lock.unlock();
            build_now(text, 1);
            lock.lock();
        } else {
            queue_.push_front(text);
            changed_.notify_all();
        }
    }
    for (;;) {
        if (failure_) std::rethrow_exception(failure_);
        const auto found = slots_.find(text);
        if (found != slots_.end() && found->second.done) return found->second.built;
        changed_.wait_for(lock, std::chrono::milliseconds(50));
        check_interrupt();
    }
}

BuiltSchedule CandidateBuilder::get_alone(const CpuSchedule& schedule) {
    const std::string text = to_string(schedule);
    bool missing = false;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        missing = !slots_.contains(text);
        slots_[text];
    }
    if (missing) build_now(text, 0);
    return get(schedule);
}

// The workers that a thread starts stay on its cores.
void CandidateBuilder::work() {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : options_.cpus) CPU_SET(cpu, &set);
    ::sched_setaffinity(0, sizeof set, &set);
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
        if (ending_) return;
        const std::string text = queue_.front();
        queue_.pop_front();
        if (slots_.contains(text)) continue;
        slots_[text];
        lock.unlock();
        build_now(text, 1);
        lock.lock();
    }
}

void CandidateBuilder::build_now(const std::string& text, int jobs) {
    BuiltSchedule built;
    std::exception_ptr failure;
    try {
        built = build(text, jobs);
    } catch (const Interrupted&) {
        failure = std::current_exception();
    } catch (const std::exception& error) {
        built.fault = error.what();
    }
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        slots_[text] = {true, built};
        if (failure && !failure_) failure_ = failure;
    }
    changed_.notify_all();
}

BuiltSchedule CandidateBuilder::build(const std::string& text, int jobs) const {
    LibraryPlan plan;
    plan.config = options_.config;
    plan.problem = to_string(plan.config);
    plan.name = "candidate";
    plan.targets.push_back(plan_target(plan.config, options_.target, {}, text));
    plan.hash = hash64(text);
    plan.symbol = fmt::format("attnc_lib_candidate_{:016x}", plan.hash);
    plan.versions = versions_;
    std::vector<PlannedKernel>& kernels = plan.targets.front().kernels;

    const std::string name = hash128_hex(text);
    const fs::path work = options_.folder / (name + ".work");
    make_folder(work);
    std::vector<KernelJob> kernel_jobs;
    kernel_jobs.reserve(kernels.size());
    for (const PlannedKernel& kernel : kernels) kernel_jobs.push_back(kernel.job);
    const std::vector<CompiledKernel> compiled = compile_kernels(kernel_jobs, versions_,
                                                                 {.attnc = options_.installation.command,
                                                                  .cache = options_.cache,
                                                                  .folder = work,
                                                                  .emit = {},
                                                                  .jobs = jobs,
                                                                  .time_limit = options_.time_limit,
                                                                  .memory_mib = options_.memory_mib,
                                                                  .progress = {}});
    BuiltSchedule built;
    for (size_t i = 0; i < kernels.size(); ++i) {
        kernels[i].compiled = compiled[i];
        built.object_hashes[kernels[i].job.kernel] = hash128_hex(read_file(compiled[i].object));
    }
    const fs::path archive = options_.folder / (name + ".a");
    built.library = (options_.folder / (name + ".so")).string();
    write_archive(plan, manifest_json(plan), archive, work, options_.installation.runtime_archive);
    link_library(archive, options_.installation, built.library);
    std::error_code ignored;
    fs::remove_all(work, ignored);
    return built;
}

}  // namespace attnc
