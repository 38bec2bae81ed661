#include "compiler/kernel_workers.h"

#include <fmt/format.h>

#include <memory>
#include <stdexcept>

#include "compiler/files.h"
#include "compiler/kernel_cache.h"
#include "compiler/parallel_jobs.h"
#include "compiler/subprocess.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kVersionsTimeLimit{60};

// The reason is the worker's last line: it has one line for what it refuses, and LLVM prints one before it aborts.
[[noreturn]] void fail(const KernelJob& job, const ProcessResult& result, const WorkerOptions& options) {
    std::string reason = last_line(result.output);
    if (reason.starts_with("attnc: ")) reason.erase(0, std::string("attnc: ").size());
    const bool refused = result.signal == 0 && !result.timed_out && !reason.empty();
    const std::string ended = describe_failure(result, options.time_limit);
    if (!refused) reason = reason.empty() ? ended : fmt::format("{}: {}", ended, reason);
    throw std::runtime_error(fmt::format("cannot compile {} for {}: {}; to repeat: {}", job.kernel,
                                         job.target, reason,
                                         quoted(worker_command(options.attnc, job, "kernel", options.emit))));
}

CompiledKernel obtain(const KernelJob& job, const WorkerOptions& options, const KernelCache* cache) {
    if (cache == nullptr) return compile_in_worker(job, options);
    const fs::path object = options.folder / (job.symbol + ".o");
    if (!options.emit.any()) {
        if (auto info = cache->take(job, object)) return {object, *info, true};
    }
    const KernelCache::Hold held = cache->hold(job);
    if (!options.emit.any()) {  // another may have compiled it since
        if (auto info = cache->take(job, object)) return {object, *info, true};
    }
    CompiledKernel kernel = compile_in_worker(job, options);
    cache->add(job, kernel.object, kernel.info);
    return kernel;
}

}  // namespace

CompiledKernel compile_in_worker(const KernelJob& job, const WorkerOptions& options) {
    const fs::path prefix = options.folder / job.symbol;
    std::vector<std::string> command = worker_command(options.attnc, job, prefix, options.emit);
    if (options.memory_mib > 0) {
        command.emplace_back("--memory-mib");
        command.push_back(std::to_string(options.memory_mib));
    }
    const ProcessResult result = run_process(command, options.time_limit);
    if (!result.succeeded()) fail(job, result, options);
    const fs::path answer = prefix.string() + ".json";
    CompiledKernel kernel = {prefix.string() + ".o", parse_kernel_info(read_file(answer)), false};
    fs::remove(answer);
    return kernel;
}

std::vector<CompiledKernel> compile_kernels(const std::vector<KernelJob>& jobs,
                                            const CompilerVersions& versions, const WorkerOptions& options) {
    std::unique_ptr<KernelCache> cache;
    if (!options.cache.empty()) cache = std::make_unique<KernelCache>(options.cache, versions);

    std::vector<CompiledKernel> kernels(jobs.size());
    for_each_job(jobs.size(), options.jobs, options.progress,
                 [&](size_t n) { kernels[n] = obtain(jobs[n], options, cache.get()); });
    return kernels;
}

CompilerVersions versions_of(const fs::path& attnc) {
    const std::vector<std::string> command = {attnc.string(), "compile-kernel", "--versions"};
    const ProcessResult result = run_process(command, kVersionsTimeLimit);
    if (!result.succeeded()) {
        throw std::runtime_error(
            fmt::format("{} does not run: {}", attnc.string(), last_line(result.output)));
    }
    return parse_compiler_versions(result.output);
}

}  // namespace attnc
