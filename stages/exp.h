// The exponential as the kernels use it: one vector polynomial, the same bits in every form.
#pragma once

#include <Halide.h>

#include "stages/dropping.h"

namespace attnc {

// e^y for y <= 0 (a hair above 0 is right too). Exactly 0 for y <= -127 ln 2 and for -infinity; just above that a
// number below 2^-126, which counts as zero. NaN stays NaN.
// x = y log2(e) is split into a truncated integer t and f in (-1, 0]; a polynomial of degree 5 with constant term 1
// gives 2^f, and t is added to its exponent. Truncation saves an instruction over rounding. Relative error of 2^x:
// 2.1e-7 with fused multiply-adds, 2.5e-7 without (the polynomial's own is 8.4e-8); x adds its rounding, |x| 6e-8 ln 2.
inline Halide::Expr exp_nonpositive(const Halide::Expr& y) {
    using namespace Halide;
    Expr x = y * 1.44269504088896340736f;
    // strict_float keeps the operands in this order, in which the vector maximum passes NaN on. At -127 the
    // exponent field comes out as 0 and the result as exactly +0; -126 would leave a denormal number and slow
    // products with V.
    Expr clamped = strict_float(choose(x < -127.0f, -127.0f, x));
    Expr t = cast<int>(clamped);
    Expr f = clamped - cast<float>(t);
    Expr p = 9.44903702e-4f;
    p = p * f + 9.20579862e-3f;
    p = p * f + 5.52973598e-2f;
    p = p * f + 0.24018015f;
    p = p * f + 0.693143725f;
    p = p * f + 1.0f;
    return reinterpret<float>(reinterpret<int>(p) + (t << 23));
}

}  // namespace attnc
