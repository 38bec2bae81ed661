// What a GPU kernel knows of each item of a batch: a column of int32 numbers in device memory, ATTNC_ITEM_*, so that lengths
// which the device has computed need no way over the host.
#pragma once

#include <Halide.h>

#include <vector>

#include "runtime/kernel_abi.h"

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

// The row of an item's key `first` + `next` in k and v, of which there are `row_count`: runs (r, b) has that of each run of
// ATTNC_RUN_KEYS keys, which follow one another. The key is in the run of `first`, so that neighbours are found by one look.
inline Halide::Expr row_of_run(const Halide::ImageParam& runs, const Halide::Expr& first,
                               const Halide::Expr& next, const Halide::Expr& item,
                               const Halide::Expr& row_count) {
    using namespace Halide;
    Expr run = clamp(first / ATTNC_RUN_KEYS, 0, runs.dim(0).extent() - 1);
    return clamp(element_of(runs, {run, item}) + (first % ATTNC_RUN_KEYS + next), 0, row_count - 1);
}

// The same of a key in an item whose keys follow one another from its first row on.
inline Halide::Expr row_of_item(const Halide::ImageParam& items, const Halide::Expr& key,
                                const Halide::Expr& item, const Halide::Expr& row_count) {
    return Halide::clamp(item_number(items, ATTNC_ITEM_KEY_ROW, item) + key, 0, row_count - 1);
}

// Either value, of which the other isn't computed: what it would read may hold anything.
inline Halide::Expr only_where(const Halide::Expr& condition, const Halide::Expr& value,
                               const Halide::Expr& otherwise) {
    using Halide::Internal::Call;
    return Call::make(value.type(), Call::if_then_else, {condition, value, otherwise}, Call::PureIntrinsic);
}

}  // namespace attnc
