// Deterministic numbers for tests, case files and checks: the same on every machine and in every run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attnc {

// The 64-bit output function of splitmix64: element `index` (from 0) of the sequence of `seed`.
uint64_t mixed_bits(uint64_t seed, uint64_t index);

// A number of [-amplitude, amplitude) on a grid of 2^-23 * amplitude, which float32 holds exactly where the
// amplitude is a power of two. Case files name whole tensors by (seed, amplitude); seed 1, amplitude 1 begins
// with 0.13312304019927979, 0.49156343936920166.
float generated_value(uint64_t seed, uint64_t index, float amplitude);
void fill_generated(std::span<float> values, uint64_t seed, float amplitude);
std::vector<float> generated(int64_t count, uint64_t seed, float amplitude);

// A stream of choices for random configurations.
class Random {
public:
    explicit Random(uint64_t seed) : seed_(seed) {}

    uint64_t bits() { return mixed_bits(seed_, drawn_++); }
    int64_t between(int64_t low, int64_t high);  // both included; low <= high
    bool chance(double probability);
    template <typename T>
    const T& pick(std::span<const T> choices) {
        return choices[static_cast<size_t>(between(0, static_cast<int64_t>(choices.size()) - 1))];
    }

private:
    uint64_t seed_;
    uint64_t drawn_ = 0;
};

}  // namespace attnc
