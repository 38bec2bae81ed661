// What the GPU forms leave to instructions that Halide doesn't choose: the power of two, and the larger of two numbers.
#pragma once

#include <Halide.h>

namespace attnc {

// e^y for y <= 0. 0 for -infinity and where the result is below 2^-126, 1 for 0, NaN for NaN. Relative error of the power:
// 2^-22 on NVIDIA GPUs (PTX ISA, ex2.approx.ftz.f32), which is four of the five roundings that docs/numerics.md counts, and
// 3 ulp in OpenCL. y log2(e) adds its rounding, as in exp_nonpositive.
// Scalar: the instruction has no vector form, so loops over lanes are unrolled.
inline Halide::Expr exp_nonpositive_gpu(const Halide::Expr& y, const Halide::Target& target) {
    using Halide::Internal::Call;
    const char* power = target.has_feature(Halide::Target::CUDA) ? "llvm.nvvm.ex2.approx.ftz.f" : "exp2";
    return Call::make(Halide::Float(32), power, {y * 1.44269504088896340736f}, Call::PureExtern);
}

// The larger one; of a NaN and a number, the number.
inline Halide::Expr larger_gpu(const Halide::Expr& a, const Halide::Expr& b, const Halide::Target& target) {
    using Halide::Internal::Call;
    const char* larger = target.has_feature(Halide::Target::CUDA) ? "llvm.nvvm.fmax.ftz.f" : "fmax";
    return Call::make(Halide::Float(32), larger, {a, b}, Call::PureExtern);
}

}  // namespace attnc
