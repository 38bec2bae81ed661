// CPU schedule of the copies between tokens and heads.
#pragma once

#include <Halide.h>

namespace attnc {

// Features in vectors; what is left of them one by one.
inline void schedule_copy(Halide::Func y, const Halide::Var& feature, const Halide::Target& target) {
    y.vectorize(feature, target.natural_vector_size<float>(), Halide::TailStrategy::GuardWithIf);
}

}  // namespace attnc
