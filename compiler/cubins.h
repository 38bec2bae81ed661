// Cubins: what NVIDIA's assembler makes of a kernel's PTX for one architecture, so that no driver has to.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compiler/kernel_workers.h"

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

}  // namespace attnc
