// Cubins: what NVIDIA's assembler makes of a kernel's PTX for one architecture, so that no driver has to.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compiler/kernel_workers.h"
#include "schedules/tuning_record.h"

namespace attnc {

struct Ptxas {
    std::filesystem::path program;
    std::string version;  // "13.0.88"
};
// By PATH. Throws std::runtime_error where there is none.
Ptxas find_ptxas();

// For every kernel one for each of the architectures, beside its object. With a cache those that are there are taken, and
// the others added. Throws Interrupted, or std::runtime_error with what the assembler said.
void assemble_cubins(const std::vector<CompiledKernel*>& kernels, const std::vector<int>& architectures,
                     const Ptxas& ptxas, const CompilerVersions& versions, const WorkerOptions& options);

// What becomes of a kernel, compiled by a worker, on an architecture; `shared_bytes` that its launches ask for. A cache keeps
// what the assembler reported. Throws as assemble_cubins does.
AssembledKernel assemble_kernel(const CompiledKernel& kernel, int architecture, int64_t shared_bytes,
                                const Ptxas& ptxas, const CompilerVersions& versions,
                                const WorkerOptions& options);

// From the assembler's report (-v); of several functions the most of each. Throws std::runtime_error where it says nothing.
AssembledKernel parse_assembler_report(const std::string& report);

}  // namespace attnc
