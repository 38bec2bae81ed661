// Memory between two pages that no access is allowed to touch: a read or write outside ends the test program.
#pragma once

#include <cstddef>

namespace attnc::test {

enum class Placement {
    kAtEnd,   // the last byte lies before the upper guard page
    kAtStart  // the first byte lies behind the lower guard page
};

class GuardedMemory {
public:
    // The address is a multiple of `alignment` (a power of two up to a page); kAtEnd leaves up to alignment -
    // 1 bytes unused behind the data. No bytes: an address inside the upper guard page. Filled with 0xff: NaN
    // in floats, so that what is read before it was written, or never written, shows.
    GuardedMemory(size_t bytes, Placement placement, size_t alignment = 1);
    GuardedMemory(GuardedMemory&& other) noexcept;
    GuardedMemory& operator=(GuardedMemory&&) = delete;
    GuardedMemory(const GuardedMemory&) = delete;
    ~GuardedMemory();

    void* data() const { return data_; }

private:
    void* mapping_ = nullptr;
    size_t mapped_ = 0;
    void* data_ = nullptr;
};

}  // namespace attnc::test
