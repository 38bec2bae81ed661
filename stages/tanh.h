// The hyperbolic tangent as the kernels use it for soft caps: vector code, exact to a few roundings near 0 too.
#pragma once

#include <Halide.h>

#include <limits>

#include "stages/dropping.h"
#include "stages/exp.h"

namespace attnc {

// scale * tanh(y / scale) for scale from 2^-126 to 2^126. NaN stays NaN; infinities give +-scale.
// Below |y / scale| = 0.625 it is y + y z p(z), z = (y / scale)^2, with p of degree 4 (its own error is 4.4e-9), so that
// small y come out as they are; above, scale (1 - e) / (1 + e) with e = exp(-2 |y / scale|). Relative error: at most 10
// roundings (docs/numerics.md), on every instruction set; the largest found, with a float in three for scale 1 and one in
// 29 for others, is 3.0e-7, 5 roundings.
inline Halide::Expr scaled_tanh(const Halide::Expr& y, const Halide::Expr& scale) {
    using namespace Halide;
    Expr x = y * (1.0f / scale);
    Expr z = x * x;
    Expr p = -5.70498699e-3f;
    p = p * z + 2.06390872e-2f;
    p = p * z - 5.37397151e-2f;
    p = p * z + 0.133314422f;
    p = p * z - 0.333332819f;
    Expr near_zero = y + y * (z * p);
    Expr e = exp_nonpositive(abs(x) * -2.0f);
    Expr far = scale * ((1.0f - e) / (1.0f + e));
    // The sign by bits, which no infinity disturbs.
    Expr sign = reinterpret<int>(y) & std::numeric_limits<int>::min();
    Expr signed_far = reinterpret<float>(reinterpret<int>(far) | sign);
    return choose(abs(x) < 0.625f, near_zero, signed_far);
}

}  // namespace attnc
