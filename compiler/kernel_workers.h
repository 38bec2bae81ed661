// Compiles a list of kernels in worker processes, several at a time, with a cache of what was compiled before.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "compiler/kernel_job.h"

namespace attnc {

struct WorkerOptions {
    std::filesystem::path attnc;           // the command that is run again
    std::filesystem::path cache;           // empty: none
    std::filesystem::path folder;          // for <symbol>.o and what is emitted
    Emit emit;                             // with any of these every kernel is compiled
    int jobs = 0;                          // 0: one per CPU this process may use
    std::chrono::seconds time_limit{300};  // of a kernel, which takes seconds
    int64_t memory_mib = 0;                // of address space that a worker may take; 0: any
    std::function<void(int done, int all)> progress;
};

// Code of a device for one architecture.
struct Cubin {
    int architecture = 0;  // 80: sm_80
    std::filesystem::path file;
    int64_t bytes = 0;
};

struct CompiledKernel {
    std::filesystem::path object;  // on a device with device_code_file beside it
    KernelInfo info;
    bool cached = false;
    std::vector<Cubin> cubins;  // where a device's architectures are asked for
};

// In the jobs' order. The first kernel that fails ends the others; it throws std::runtime_error with the reason and a
// command that repeats it. Throws Interrupted.
std::vector<CompiledKernel> compile_kernels(const std::vector<KernelJob>& jobs,
                                            const CompilerVersions& versions, const WorkerOptions& options);

// One kernel in one worker.
CompiledKernel compile_in_worker(const KernelJob& job, const WorkerOptions& options);

// Asked from a worker, since only that links Halide.
CompilerVersions versions_of(const std::filesystem::path& attnc);

}  // namespace attnc
