// What llvm-mca says of a kernel's inner loops, from its object: cycles for each multiply-add, without running anything.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attnc {

struct CodeLoop {
    std::string instructions;   // a line each
    int64_t multiply_adds = 0;  // of vectors, fused or not
};

// Loops without a label inside, of what llvm-objdump printed with --symbolize-operands; the one with most multiply-adds
// first.
std::vector<CodeLoop> code_loops(const std::string& disassembly);

// Cycles for a multiply-add, the mean over the `loops` loops with most of them; nothing where the object has no such loop, or
// llvm-mca isn't there. Throws std::runtime_error for tools that fail.
std::optional<double> inner_loop_cycles(const std::filesystem::path& object, const std::string& target,
                                        size_t loops, const std::filesystem::path& folder);

}  // namespace attnc
