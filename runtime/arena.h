// Scratch memory of one task, taken from the workspace: a stack of blocks. Blocks may be freed in any order;
// one that isn't on top is marked, and goes when it comes to the top.
#pragma once

#include <cstdint>

#include "runtime/kernel_abi.h"

namespace attnc {

// `scratch` is aligned to 64 and stays the caller's.
void arena_init(attnc_task& task, unsigned char* scratch, int64_t bytes);

// Memory aligned to 64, or null when there is no room. Each block costs 64 bytes and its size rounded up
// to 64.
void* arena_allocate(attnc_task& task, uint64_t bytes);

// Null is allowed. Memory that isn't a block of this arena in use leaves it as it is.
void arena_free(attnc_task& task, void* memory);

}  // namespace attnc
