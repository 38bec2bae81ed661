#include "tests/harness/allocation_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace attnc::test {
namespace {
std::atomic<int64_t> counter{0};
}
int64_t allocations() { return counter.load(); }
}  // namespace attnc::test

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace attnc::test {
bool counts_allocations() { return false; }
}  // namespace attnc::test

#else

namespace attnc::test {
bool counts_allocations() { return true; }
}  // namespace attnc::test

// glibc lets a program replace these functions; it keeps the originals under these names.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
    ++attnc::test::counter;
    return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
    ++attnc::test::counter;
    return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
    ++attnc::test::counter;
    return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
    ++attnc::test::counter;
    return __libc_memalign(alignment, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
    ++attnc::test::counter;
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
    ++attnc::test::counter;
    *memory = __libc_memalign(alignment, bytes);
    return *memory != nullptr ? 0 : ENOMEM;
}
}

#endif
