// What a GPU kernel knows of each item of a batch: a column of int32 numbers in device memory, so that lengths which the
// device has computed need no way over the host.
#pragma once

#include <Halide.h>

#include <vector>

namespace attnc {

// An element of an input. Through the input's Func, which ImageParam's own operator gives, a condition of a loop could not
// be moved out of the loops inside of it.
inline Halide::Expr element_of(const Halide::ImageParam& input, const std::vector<Halide::Expr>& place) {
    return Halide::Internal::Call::make(input.parameter(), place);
}

// items (c, b).
enum GpuItemColumn {
    kItemQueryRow,  // row of its first query in q, and of the context
    kItemQueries,   // those that count
    kItemRows,      // rows of the context that are written; those that don't count become 0
    kItemKeyRow,    // row of its first key in k and v
    kItemKeys,      // those that count
    kItemFirst,     // query i sees key j when max(0, i + first) <= j < min(keys, i + last)
    kItemLast,
    kItemOwnKey,  // query i's own key is i + own_key: where ALiBi has its distance from
    kItemColumns
};

}  // namespace attnc
