// Masks in the forms that attention takes, against their definition, bit for bit: every set of what is given per key, with its
// infinities and overflows; blocks of many sizes, for all items and heads or some.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "fill_key_bias.h"
#include "fill_key_blocks.h"
#include "runtime/device_abi.h"
#include "support/random.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {
namespace {

using Floats = Halide::Runtime::Buffer<float>;
using Bytes = Halide::Runtime::Buffer<uint8_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// (j, b) in memory of its own strides. One that isn't given is a single element, which drops every key that reads it.
template <typename T>
class PerKey {
public:
    PerKey(int keys, int items, bool given, bool by_item, int key_stride, const T& poison) {
        const int item = by_item ? keys * key_stride + 3 : 0;
        memory_.assign(static_cast<size_t>(keys * key_stride + item * items), poison);
        const halide_dimension_t shape[] = {{0, keys, given ? key_stride : 0}, {0, items, given ? item : 0}};
        buffer = Halide::Runtime::Buffer<T>(memory_.data(), 2, shape);
        buffer.set_host_dirty();
    }
    Halide::Runtime::Buffer<T> buffer;

private:
    std::vector<T> memory_;
};

class KeyBias {
public:
    KeyBias(int keys, int items, int given, bool by_item, int stride)
        : keys_(keys),
          items_(items),
          given_(given),
          bias(keys, items, has(ATTNC_GIVEN_BIAS), by_item, stride, -kInfinity),
          key_bias(keys, items, has(ATTNC_GIVEN_KEY_BIAS), true, stride, -kInfinity),
          keep(keys, items, has(ATTNC_GIVEN_KEEP_MASK), by_item, stride, 0),
          key_keep(keys, items, has(ATTNC_GIVEN_KEY_KEEP_MASK), true, stride, 0),
          drop(keys, items, has(ATTNC_GIVEN_DROP_MASK), by_item, stride, 1),
          key_drop(keys, items, has(ATTNC_GIVEN_KEY_DROP_MASK), true, stride, 1) {
        // Not dropped, and sums on both sides of what a float holds.
        const float values[] = {0.0F, 1.5F, -2.25F, -kInfinity, -kLargest, -kLargest / 2, 3e38F};
        uint64_t place = 0;
        const auto biases = [&](Floats& of, int flag) {
            if (!has(flag)) return;
            of.for_each_element([&](int j, int b) { of(j, b) = values[mixed_bits(1, place++) % 7]; });
        };
        const auto masks = [&](Bytes& of, int flag, uint64_t kept) {
            if (!has(flag)) return;
            of.for_each_element([&](int j, int b) {
                const bool rare = mixed_bits(2, place++) % 5 == 0;
                of(j, b) = static_cast<uint8_t>(0xfe * (rare ? 1 - kept : kept));
            });
        };
        biases(bias.buffer, ATTNC_GIVEN_BIAS), biases(key_bias.buffer, ATTNC_GIVEN_KEY_BIAS);
        masks(keep.buffer, ATTNC_GIVEN_KEEP_MASK, 1), masks(key_keep.buffer, ATTNC_GIVEN_KEY_KEEP_MASK, 1);
        masks(drop.buffer, ATTNC_GIVEN_DROP_MASK, 0), masks(key_drop.buffer, ATTNC_GIVEN_KEY_DROP_MASK, 0);
    }

    Floats filled() {
        Floats made(std::vector<int>{keys_, items_});
        EXPECT_EQ(fill_key_bias(bias.buffer, key_bias.buffer, keep.buffer, key_keep.buffer, drop.buffer,
                                key_drop.buffer, given_, made),
                  0);
        EXPECT_EQ(made.copy_to_host(), 0);
        return made;
    }

    float wanted(int j, int b) const {
        const float one = has(ATTNC_GIVEN_BIAS) ? bias.buffer(j, b) : 0.0F;
        const float other = has(ATTNC_GIVEN_KEY_BIAS) ? key_bias.buffer(j, b) : 0.0F;
        const bool dropped = one == -kInfinity || other == -kInfinity ||
                             (has(ATTNC_GIVEN_KEEP_MASK) && keep.buffer(j, b) == 0) ||
                             (has(ATTNC_GIVEN_KEY_KEEP_MASK) && key_keep.buffer(j, b) == 0) ||
                             (has(ATTNC_GIVEN_DROP_MASK) && drop.buffer(j, b) != 0) ||
                             (has(ATTNC_GIVEN_KEY_DROP_MASK) && key_drop.buffer(j, b) != 0);
        return dropped ? -kInfinity : std::max(one + other, -kLargest);
    }

private:
    bool has(int flag) const { return (given_ & flag) != 0; }
    int keys_, items_, given_;
    PerKey<float> bias, key_bias;
    PerKey<uint8_t> keep, key_keep, drop, key_drop;
};

TEST(GpuKeyBias, IsTheSumOfBiasesWhereNothingDrops) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    for (int set = 0; set < 64; ++set) {
        for (const int keys : {1, 300}) {
            KeyBias masks(keys, 3, set * ATTNC_GIVEN_BIAS, set % 3 != 0, 1 + set % 2);
            const Floats got = masks.filled();
            for (int b = 0; b < 3; ++b) {
                for (int j = 0; j < keys; ++j)
                    ASSERT_EQ(got(j, b), masks.wanted(j, b))
                        << "set " << set << ", key " << j << ", item " << b;
            }
        }
    }
}

struct BlockSizes {
    int granules_q, granules_kv, heads, items;
    int block_q, block_kv;
};

TEST(GpuKeyBlocks, AreThoseOfTheMaskOfLargerBlocks) {
    ATTNC_SKIP_WITHOUT_OPENCL();
    constexpr int kGranule = 16;
    for (const BlockSizes& s : {BlockSizes{1, 1, 1, 1, 16, 32}, BlockSizes{9, 70, 3, 2, 32, 48},
                                BlockSizes{6, 33, 1, 4, 96, 16}, BlockSizes{5, 4, 2, 1, 1 << 30, 64}}) {
        const auto blocks = [](int granules, int size) { return (granules * kGranule - 1) / size + 1; };
        const int kb = blocks(s.granules_kv, s.block_kv), qb = blocks(s.granules_q, s.block_q);
        for (const bool by_head : {false, true}) {
            std::vector<uint8_t> memory(static_cast<size_t>(kb * qb * s.heads * s.items * 2));
            for (size_t n = 0; n < memory.size(); ++n)
                memory[n] = static_cast<uint8_t>(mixed_bits(3, n) % 2 * (1 + n % 255));
            const int head = by_head ? kb * qb * 2 : 0;
            const halide_dimension_t shape[] = {
                {0, kb, 2}, {0, qb, kb * 2}, {0, s.heads, head}, {0, s.items, kb * qb * s.heads * 2}};
            Bytes mask(memory.data(), 4, shape);
            mask.set_host_dirty();
            Bytes got(std::vector<int>{s.granules_kv, s.granules_q, s.heads, s.items});
            ASSERT_EQ(fill_key_blocks(mask, s.block_q, s.block_kv, got), 0);
            ASSERT_EQ(got.copy_to_host(), 0);
            got.for_each_element([&](int jb, int ib, int h, int b) {
                ASSERT_EQ(got(jb, ib, h, b),
                          mask(jb * kGranule / s.block_kv, ib * kGranule / s.block_q, h, b))
                    << jb << " " << ib << " " << h << " " << b;
            });
        }
    }
}

}  // namespace
}  // namespace attnc::test
