// Joins compiled kernels to a static library with one hidden symbol, with the LLVM tools alone: no compiler is needed.
#pragma once

#include <filesystem>
#include <string>

#include "compiler/library_plan.h"

namespace attnc {

// The table of a library (kernel_abi.h) and its manifest as assembler text.
std::string table_assembly(const LibraryPlan& plan, const std::string& manifest);

// Writes lib<name>.a to `archive`, with work files in `folder`. The names that it leaves undefined are checked against
// what `runtime_archive` defines. Throws std::runtime_error.
void write_archive(const LibraryPlan& plan, const std::string& manifest, const std::filesystem::path& archive,
                   const std::filesystem::path& folder, const std::filesystem::path& runtime_archive);

}  // namespace attnc
