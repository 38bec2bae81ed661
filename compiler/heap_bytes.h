// Heap memory of a lowered kernel, read from its statements.
#pragma once

#include <Halide.h>

#include <cstdint>

namespace attnc {

// Most bytes of the runtime's scratch that one run of `body` takes: the deepest sum of nested heap allocations, each
// with its header of 64 bytes and its size rounded up to 64. Throws std::runtime_error naming a Func whose heap memory
// has no constant size.
int64_t heap_bytes(const Halide::Internal::Stmt& body);

}  // namespace attnc
