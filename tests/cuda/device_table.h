// Tables of a call as a device has them.
#pragma once

#include <HalideBuffer.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "support/random.h"

namespace attnc::test {

using Table = std::vector<int32_t>;

inline Table random_table(size_t count, uint64_t seed, int32_t low, int32_t high) {
    Table made;
    const auto span = static_cast<uint64_t>(int64_t{high} - low + 1);
    for (size_t n = 0; n < count; ++n) {
        made.push_back(static_cast<int32_t>(low + static_cast<int64_t>(mixed_bits(seed, n) % span)));
    }
    return made;
}

inline int32_t nearest(int64_t value, int64_t low, int64_t high) {
    return static_cast<int32_t>(std::clamp(value, low, high));
}

// 0 .. count - 1, shuffled.
inline Table shuffled(int count, uint64_t seed) {
    Table numbers(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    std::sort(numbers.begin(), numbers.end(), [&](int32_t a, int32_t b) {
        return mixed_bits(seed, static_cast<uint64_t>(a)) < mixed_bits(seed, static_cast<uint64_t>(b));
    });
    return numbers;
}

// A table as a device has it: of int32, or the low halves of int64. One that isn't given is any number, everywhere.
class DeviceTable {
public:
    DeviceTable(const Table& table, int extent, bool wide) {
        const int stride = table.empty() ? 0 : wide ? 2 : 1;
        numbers_.assign(static_cast<size_t>(std::max(1, stride * extent)), -0x55);
        for (size_t n = 0; n < table.size(); ++n) numbers_[n * static_cast<size_t>(stride)] = table[n];
        const halide_dimension_t shape[] = {{0, extent, stride}};
        buffer_ = Halide::Runtime::Buffer<int32_t>(numbers_.data(), 1, shape);
        buffer_.set_host_dirty();
    }
    halide_buffer_t* get() { return buffer_.raw_buffer(); }

private:
    std::vector<int32_t> numbers_;
    Halide::Runtime::Buffer<int32_t> buffer_;
};

}  // namespace attnc::test
