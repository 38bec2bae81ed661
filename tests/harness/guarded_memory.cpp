#include "tests/harness/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

namespace attnc::test {

GuardedMemory::GuardedMemory(size_t bytes, Placement placement, size_t alignment) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inner = (bytes + alignment - 1 + page - 1) / page * page;
    mapped_ = inner + 2 * page;
    mapping_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) throw std::bad_alloc();
    char* first = static_cast<char*>(mapping_) + page;
    if (inner > 0 && mprotect(first, inner, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    const size_t offset = placement == Placement::kAtStart ? 0 : (inner - bytes) / alignment * alignment;
    data_ = first + (bytes == 0 ? inner : offset);
    if (inner > 0) std::memset(first, 0xff, inner);
}

GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)), mapped_(other.mapped_), data_(other.data_) {}

GuardedMemory::~GuardedMemory() {
    if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

}  // namespace attnc::test
