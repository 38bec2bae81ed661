// The worker's job: a registered generator to an object file, in a process of its own. Object code is then the same
// bytes every time, and a crash inside LLVM costs one kernel.
#pragma once

#include "compiler/kernel_job.h"

namespace attnc {

// Writes the files of worker_command. Throws std::runtime_error for whatever makes the kernel unfit for a library:
// Halide's errors and warnings, a parallel loop, an unknown argument, heap memory without a constant size, much stack.
void compile_kernel(const KernelJob& job, const std::filesystem::path& prefix, const Emit& emit);

CompilerVersions compiler_versions();

}  // namespace attnc
