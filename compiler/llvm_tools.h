// The LLVM tools that write a library, found on PATH when they are needed: "llvm-mc-19", or "llvm-mc".
#pragma once

#include <string>
#include <vector>

namespace attnc {

struct LlvmTools {
    std::string mc, objcopy, ar, objdump, lld;  // paths
};

// Throws std::runtime_error naming what is missing and the Debian packages that have it.
LlvmTools find_llvm_tools();

// Runs a tool; returns what it printed. Throws std::runtime_error with the last line that it printed.
std::string run_tool(const std::vector<std::string>& command);

}  // namespace attnc
