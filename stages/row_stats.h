// Row statistics: what a query carries from its keys beside its context.
#pragma once

#include <Halide.h>

namespace attnc {

// Columns: the largest score, and the sum of exp(score - largest).
enum RowStat { kLargest, kSum, kRowStats };

// True where the query sees no key: the sum is +0, and else at least 1. By bits: the code generator may take a
// comparison of NaN with 0 for true, and a row of NaN sees keys.
inline Halide::Expr sees_no_key(const Halide::Expr& sum) { return Halide::reinterpret<int>(sum) == 0; }

}  // namespace attnc
