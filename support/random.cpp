#include "support/random.h"

namespace attnc {

uint64_t mixed_bits(uint64_t seed, uint64_t index) {
    uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

float generated_value(uint64_t seed, uint64_t index, float amplitude) {
    constexpr int64_t kHalf = 1 << 23;
    const int64_t step = static_cast<int64_t>(mixed_bits(seed, index) >> 40) - kHalf;
    return static_cast<float>(step) / static_cast<float>(kHalf) * amplitude;
}

void fill_generated(std::span<float> values, uint64_t seed, float amplitude) {
    for (size_t n = 0; n < values.size(); ++n) values[n] = generated_value(seed, n, amplitude);
}

std::vector<float> generated(int64_t count, uint64_t seed, float amplitude) {
    std::vector<float> values(static_cast<size_t>(count));
    fill_generated(values, seed, amplitude);
    return values;
}

int64_t Random::between(int64_t low, int64_t high) {
    const uint64_t span = static_cast<uint64_t>(high - low) + 1;
    return low + static_cast<int64_t>(bits() % span);
}

bool Random::chance(double probability) { return static_cast<double>(bits() >> 11) * 0x1p-53 < probability; }

}  // namespace attnc
