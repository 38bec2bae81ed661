// The runtime's own powers and fractions of a turn, against the mathematics library's long double.
#include "runtime/rotary_frequencies.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace attnc {
namespace {

// Distance in units of the last place of doubles of one sign.
int64_t ulps(double a, double b) { return std::abs(std::bit_cast<int64_t>(a) - std::bit_cast<int64_t>(b)); }

TEST(InversePower, IsWithinAnUlpForEveryUsualBase) {
    for (const double base : {1.0000001, 1.5, 2.0, 100.0, 1e3, 1e4, 12345.678, 5e5, 1e6, 1e8, 1e9, 1e300}) {
        for (const int64_t pairs : {1, 2, 5, 16, 24, 32, 48, 64, 96, 128}) {
            for (int64_t i = 0; i < pairs; ++i) {
                const auto power = static_cast<double>(
                    std::pow(static_cast<long double>(base),
                             -static_cast<long double>(i) / static_cast<long double>(pairs)));
                EXPECT_LE(ulps(inverse_power(base, i, pairs), power), 1) << base << " " << i << "/" << pairs;
            }
        }
    }
}

TEST(InversePower, IsExactWhereThePowerIs) {
    EXPECT_EQ(inverse_power(10000, 0, 64), 1.0);
    EXPECT_EQ(inverse_power(65536, 1, 2), 0x1p-8);
    EXPECT_EQ(inverse_power(0x1p60, 7, 10), 0x1p-42);
    EXPECT_EQ(inverse_power(0x1p1000, 3, 3), 0x1p-1000);
    EXPECT_EQ(inverse_power(0x1.8p1023, 1, 1), 0.0);  // below every normal number
}

TEST(Turns, AreTheNearestFractionOfATurn) {
    constexpr long double kTurn = 2 * std::numbers::pi_v<long double>;
    for (double radians = 1; radians > 1e-12; radians *= 0.83) {
        const long double turns = static_cast<long double>(radians) / kTurn * 0x1p64L;
        const auto got = static_cast<long double>(turns_of(radians));
        EXPECT_LE(std::fabs(got - turns), 0.5L + turns * 0x1p-62L) << radians;
        EXPECT_EQ(turns_of(-radians), 0 - turns_of(radians));
    }
    EXPECT_EQ(turns_of(0), 0U);
    EXPECT_EQ(turns_of(5e-324), 0U);
    EXPECT_EQ(turns_of(0x1p-61), 1U);  // 0x1p3 / (2 pi) = 1.27
    EXPECT_EQ(turns_of(0x1p-63), 0U);  // 0.32
    EXPECT_EQ(turns_of(0x1p-62), 1U);  // 0.64
}

// Twice the angle is twice the fraction, to the last bit of the first one.
TEST(Turns, WrapForLargeFrequencies) {
    for (double radians = 0.7; radians < 0x1p52; radians *= 2) {
        const auto difference = static_cast<int64_t>(turns_of(2 * radians) - 2 * turns_of(radians));
        EXPECT_LE(std::abs(difference), 1) << radians;
    }
    // The nearest double to 2^20 turns is 1.4e-10 radians from them.
    const double turns = 0x1p20 * 2 * std::numbers::pi;
    const auto rest = static_cast<int64_t>(turns_of(turns));
    const long double error = static_cast<long double>(turns) - 0x1p21L * std::numbers::pi_v<long double>;
    EXPECT_NEAR(static_cast<double>(rest) * 2 * std::numbers::pi * 0x1p-64, static_cast<double>(error),
                1e-12);
}

attnc_rotary llama3() {
    attnc_rotary rotary = {};
    rotary.scaling = ATTNC_ROTARY_SCALING_LLAMA3;
    rotary.factor = 8, rotary.low_freq_factor = 1, rotary.high_freq_factor = 4;
    rotary.original_positions = 8192;
    return rotary;
}

TEST(ScaledFrequency, IsDividedByALinearFactor) {
    attnc_rotary rotary = {};
    EXPECT_EQ(scaled_frequency(0.375, rotary), 0.375);
    rotary.scaling = ATTNC_ROTARY_SCALING_LINEAR, rotary.factor = 4;
    EXPECT_EQ(scaled_frequency(0.375, rotary), 0.09375);
}

TEST(ScaledFrequency, OfLlama3DependsOnTheWavelength) {
    const auto of_wavelength = [](double wavelength) { return 2 * std::numbers::pi / wavelength; };
    const double shorter = of_wavelength(2000), longer = of_wavelength(8200), between = of_wavelength(4096);
    EXPECT_EQ(scaled_frequency(shorter, llama3()), shorter);
    EXPECT_EQ(scaled_frequency(longer, llama3()), longer / 8);
    const double smooth = (8192.0 / 4096 - 1) / (4 - 1);
    EXPECT_NEAR(scaled_frequency(between, llama3()), ((1 - smooth) / 8 + smooth) * between, 1e-18);
    // No jump at either end.
    EXPECT_NEAR(scaled_frequency(of_wavelength(2048.0001), llama3()), of_wavelength(2048), 1e-9);
    EXPECT_NEAR(scaled_frequency(of_wavelength(8191.9999), llama3()), of_wavelength(8192) / 8, 1e-9);
}

}  // namespace
}  // namespace attnc
