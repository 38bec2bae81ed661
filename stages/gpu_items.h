// What a GPU kernel knows of each item of a batch: a column of int32 numbers in device memory, ATTNC_ITEM_*, so that lengths
// which the device has computed need no way over the host.
#pragma once

#include <Halide.h>

#include <vector>

#include "runtime/device_abi.h"

namespace attnc {

// An element of an input. Through the input's Func, which ImageParam's own operator gives, a condition of a loop could not
// be moved out of the loops inside of it.
inline Halide::Expr element_of(const Halide::ImageParam& input, const std::vector<Halide::Expr>& place) {
    return Halide::Internal::Call::make(input.parameter(), place);
}

// A number of an item; items (c, b).
inline Halide::Expr item_number(const Halide::ImageParam& items, int column, const Halide::Expr& item) {
    return element_of(items, {column, item});
}

// The row of an item's query i. Of an index that comes from memory Halide doesn't see that it is one of `row_count` rows.
inline Halide::Expr query_row(const Halide::ImageParam& items, const Halide::Expr& query,
                              const Halide::Expr& item, const Halide::Expr& row_count) {
    return Halide::clamp(item_number(items, ATTNC_ITEM_QUERY_ROW, item) + query, 0, row_count - 1);
}

// Either value, of which the other isn't computed: what it would read may hold anything.
inline Halide::Expr only_where(const Halide::Expr& condition, const Halide::Expr& value,
                               const Halide::Expr& otherwise) {
    using Halide::Internal::Call;
    return Call::make(value.type(), Call::if_then_else, {condition, value, otherwise}, Call::PureIntrinsic);
}

}  // namespace attnc
