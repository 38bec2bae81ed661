// Divides one block of memory into parts: sizes first, with overflow noticed, pointers when the block is
// there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace attnc {

inline constexpr int64_t kAlignment = 64;         // of every part: a cache line, and a zmm register
inline constexpr int64_t kDeviceAlignment = 256;  // the same on a device: what cuMemAlloc gives

class Carver {
public:
    explicit Carver(int64_t alignment = kAlignment) : alignment_(alignment) {}  // a power of two

    // Offset of a part of `size` bytes times all factors (none negative).
    int64_t take(int64_t size, std::initializer_list<int64_t> factors) {
        int64_t bytes = size;
        bool zero = false;
        for (const int64_t factor : factors) zero = zero || factor == 0;
        if (zero) bytes = 0;
        for (const int64_t factor : factors) {
            if (!zero && __builtin_mul_overflow(bytes, factor, &bytes)) overflow_ = true;
        }
        const int64_t offset = used_;
        int64_t end = 0;
        if (__builtin_add_overflow(bytes, alignment_ - 1, &bytes) ||
            __builtin_add_overflow(used_, bytes & ~(alignment_ - 1), &end)) {
            overflow_ = true;
        }
        used_ = overflow_ ? 0 : end;
        return offset;
    }
    int64_t bytes() const { return used_; }  // a multiple of the alignment
    bool overflow() const { return overflow_; }

private:
    int64_t alignment_;
    int64_t used_ = 0;
    bool overflow_ = false;
};

}  // namespace attnc
