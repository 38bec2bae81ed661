// Frequencies of a rotary embedding, computed when a layer is made. In whole numbers of 64 and 128 bits: no library of
// mathematics is needed, and the bits are the same on every machine.
#pragma once

#include <cstdint>

#include "runtime/attnc.h"

namespace attnc {

// base^(-numerator / denominator), to an ulp. base is finite and above 1; 0 <= numerator <= denominator < 2^32, and
// denominator is not 0. 0 where the result is below every normal number.
double inverse_power(double base, int64_t numerator, int64_t denominator);

// The frequency, in radians, after the scaling that `rotary` asks for.
double scaled_frequency(double radians, const attnc_rotary& rotary);

// Radians as a fraction of a turn in units of 2^-64, without whole turns; the nearest such number. |radians| < 2^53.
uint64_t turns_of(double radians);

}  // namespace attnc
