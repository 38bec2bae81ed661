// Memory that every call walks through, in large pages: fewer translations of addresses, and rows that don't meet in the
// same sets of a cache by chance.
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "runtime/attnc.h"

extern "C" void attnc_memory_advise(void* memory, size_t bytes) {
    constexpr uintptr_t kLargePage = uintptr_t{2} << 20;
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    const uintptr_t first = (begin + kLargePage - 1) / kLargePage * kLargePage;
    const uintptr_t end = (begin + bytes) / kLargePage * kLargePage;
    // A system that has none, or gives none, says so; the memory is as it was then.
    if (memory != nullptr && first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}
