#include "runtime/rotary_frequencies.h"

#include <cstring>

namespace attnc {
namespace {

__extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using): no extension of a using

constexpr int kMantissaBits = 52;
constexpr int64_t kExponentBias = 1023, kLeastExponent = -1022;
constexpr double kTwoPi = 6.283185307179586476925;

uint64_t bits_of(double value) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

double double_of(uint64_t bits) {
    double value = 0;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// A positive normal number is mantissa * 2^(exponent - 52), the mantissa with its leading bit.
uint64_t mantissa_of(uint64_t bits) {
    constexpr uint64_t kLeading = uint64_t{1} << kMantissaBits;
    return (bits & (kLeading - 1)) | kLeading;
}
int64_t exponent_of(uint64_t bits) {
    return static_cast<int64_t>(bits >> kMantissaBits & 0x7ff) - kExponentBias;
}

uint64_t high_product(uint64_t a, uint64_t b) { return static_cast<uint64_t>(Wide{a} * b >> 64); }

// log2 of a number from 1 in units of 2^-64. Bit by bit: squaring x in [1, 2) doubles its logarithm, whose whole part is
// the next bit. A step's error counts half of the one before it, so that all together stay within 4 units.
Wide log2_of(double value) {
    const uint64_t bits = bits_of(value);
    uint64_t x = mantissa_of(bits) << (63 - kMantissaBits);
    uint64_t fraction = 0;
    for (int bit = 0; bit < 64; ++bit) {
        const Wide square = Wide{x} * x;
        const bool doubled = square >> 127 != 0;
        fraction = fraction << 1 | (doubled ? 1 : 0);
        x = static_cast<uint64_t>(doubled ? square >> 64 : square >> 63);
    }
    return Wide{static_cast<uint64_t>(exponent_of(bits))} << 64 | fraction;
}

// By hand, in digits of 32 bits: the compiler's division of 128 bits is a function of its own library.
Wide divide(Wide dividend, uint64_t divisor) {
    Wide quotient = 0;
    uint64_t rest = 0;
    for (int shift = 96; shift >= 0; shift -= 32) {
        rest = rest << 32 | static_cast<uint32_t>(dividend >> shift);
        quotient = quotient << 32 | rest / divisor;
        rest %= divisor;
    }
    return quotient;
}

// 2^x - 1 for x in [0, 1), both in units of 2^-64, by the series of e^y - 1.
uint64_t exp2_less_one(uint64_t x) {
    constexpr uint64_t kLn2 = 0xb17217f7d1cf79ab;
    const uint64_t y = high_product(x, kLn2);
    uint64_t term = y, sum = y;
    for (uint64_t n = 2; term != 0; ++n) {
        term = high_product(term, y) / n;
        sum += term;
    }
    return sum;
}

}  // namespace

double inverse_power(double base, int64_t numerator, int64_t denominator) {
    const Wide logarithm =
        divide(log2_of(base) * static_cast<uint64_t>(numerator), static_cast<uint64_t>(denominator));
    auto exponent = -static_cast<int64_t>(logarithm >> 64);
    uint64_t fraction = 0 - static_cast<uint64_t>(logarithm);
    if (fraction != 0) --exponent;
    if (exponent < kLeastExponent) return 0;
    const uint64_t sum = exp2_less_one(fraction);
    const uint64_t rounded = (sum >> (64 - kMantissaBits)) + (sum >> (63 - kMantissaBits) & 1);
    // A sum that rounds up to 1 carries into the exponent, as it should.
    return double_of((static_cast<uint64_t>(exponent + kExponentBias) << kMantissaBits) + rounded);
}

// As the release of Llama 3.1 has it. The wavelength's share of the original length decides.
double scaled_frequency(double radians, const attnc_rotary& rotary) {
    if (rotary.scaling == ATTNC_ROTARY_SCALING_LINEAR) return radians / rotary.factor;
    if (rotary.scaling != ATTNC_ROTARY_SCALING_LLAMA3) return radians;
    const double wavelengths = static_cast<double>(rotary.original_positions) * radians / kTwoPi;
    if (wavelengths > rotary.high_freq_factor) return radians;
    if (wavelengths < rotary.low_freq_factor) return radians / rotary.factor;
    const double share =
        (wavelengths - rotary.low_freq_factor) / (rotary.high_freq_factor - rotary.low_freq_factor);
    return (1 - share) * radians / rotary.factor + share * radians;
}

uint64_t turns_of(double radians) {
    // 1 / (2 pi) in units of 2^-128.
    constexpr uint64_t kHigh = 0x28be60db9391054a, kLow = 0x7f09d5f47d4d3770;
    const uint64_t bits = bits_of(radians) & (~uint64_t{0} >> 1);
    const int64_t exponent = exponent_of(bits);
    if (exponent < kLeastExponent) return 0;  // zero and denormal numbers
    // The product, of 181 bits, is the turns in units of 2^(exponent - 52 - 128).
    const uint64_t mantissa = mantissa_of(bits);
    const Wide low = Wide{mantissa} * kLow;
    const Wide high = Wide{mantissa} * kHigh + (low >> 64);
    const uint64_t words[] = {static_cast<uint64_t>(low), static_cast<uint64_t>(high),
                              static_cast<uint64_t>(high >> 64)};
    const auto word = [&](int64_t i) { return i < 3 ? words[i] : 0; };
    const int64_t shift = 64 + kMantissaBits - exponent;  // at least 64
    const int64_t first = shift / 64, within = shift % 64;
    const uint64_t whole =
        within == 0 ? word(first) : word(first) >> within | word(first + 1) << (64 - within);
    const uint64_t turns = whole + (word((shift - 1) / 64) >> ((shift - 1) % 64) & 1);
    return bits == bits_of(radians) ? turns : 0 - turns;
}

}  // namespace attnc
