// Rotary position embedding (Su et al. 2021): pairs of a head's features turned by angles that grow with the position.
#pragma once

#include <Halide.h>

#include "stages/config.h"

namespace attnc {

// How a number becomes one of a kernel's code.
using DoubleConstant = Halide::Expr (*)(double);
inline Halide::Expr double_constant(double value) { return Halide::Expr(value); }

// Cosine and sine of position * frequency, times a magnitude. Frequencies are fractions of a turn in units of 2^-64, so
// that the product of both, in 64 bits that wrap, is the angle without its whole turns: reducing the range is exact, for
// every position and frequency. What is left of the angle (within an eighth of a turn) goes through polynomials in
// double, and the result is rounded to float once.
// Error of a result before that rounding, as a part of the magnitude: polynomials 2^-33, the frequency's own rounding
// 2^-65 turns for each unit of position, which is 2^-31 at position 2^31. So a table is off by at most 1.02 u.
struct RotaryAngles {
    Halide::Expr cosine, sine;  // float

    // position: int32 or int64; turns: uint64, of one unit of position; magnitude: double.
    RotaryAngles(const Halide::Expr& position, const Halide::Expr& turns, const Halide::Expr& magnitude,
                 DoubleConstant number = double_constant);
};

// The features of a pair of so many: r and r + pairs, or with Rotary::kPairs 2 r and 2 r + 1.
struct FeaturePair {
    Halide::Expr first, second;
};
FeaturePair pair_of_features(const Halide::Expr& pair, const Halide::Expr& pairs, Rotary layout);

// Both turned: a cos - b sin and b cos + a sin.
FeaturePair turned_pair(const FeaturePair& values, const Halide::Expr& cosine, const Halide::Expr& sine);

// Turns the first features of heads y (d, m, h) in place, a pair for each column of the tables (r, m). Both are read before
// either is written, and features past the pairs are not touched.
struct Rotation {
    Halide::Var m{"m"}, h{"h"};
    Halide::RDom pair;  // over the columns of the tables

    Rotation(const Halide::Func& y, const Halide::Func& cos_table, const Halide::Func& sin_table,
             const Halide::Expr& pairs, Rotary layout);
};

}  // namespace attnc
