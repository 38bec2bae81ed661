// The object of a CPU kernel, by way of its assembly where that has to change first.
#pragma once

#include <Halide.h>

#include <filesystem>
#include <string>

namespace attnc {

// Halide's prefetch is prefetchnta, which passes L2 by; what kernels ask for ahead (stages/prefetch.h) belongs there, so
// that it becomes prefetcht1. What is needed on the way lies in files that begin with `prefix`, and is removed. Throw
// std::runtime_error where a file or llvm-mc fails.
std::string assembly_of(const Halide::Module& module, const std::filesystem::path& prefix);
std::string object_of(const Halide::Module& module, const std::filesystem::path& prefix);

}  // namespace attnc
