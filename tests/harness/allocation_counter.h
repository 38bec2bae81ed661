// Counts the heap allocations of the whole program, all threads included. Link attnc_allocation_counter to
// use it.
#pragma once

#include <cstdint>

namespace attnc::test {

// Calls of malloc, calloc, realloc, aligned_alloc and their like (operator new among them) so far.
// Deallocations do not count.
int64_t allocations();

// False in a program with a sanitizer, which has an allocator of its own.
bool counts_allocations();

}  // namespace attnc::test
