// What rows of a packed batch need of their own, since its items have rows in any number: positions counted from the item's
// first one, and zeros in the output where a row doesn't count. A thread has a row of an item.
#pragma once

#include <Halide.h>

#include <cstdint>

#include "stages/gpu_items.h"

namespace attnc {

struct FillPositionsInputs {
    Halide::Func starts;            // (b + 1)
    Halide::Func position_offsets;  // (b)
    Halide::Expr given;             // ATTNC_GIVEN_POSITION_OFFSETS: offsets are read
    Halide::Expr seq;               // most rows of an item
    Halide::Expr item_count, row_count;
};

// row_positions (m): that of row i of item b is i more than the item's offset.
struct FillPositionsGpu {
    Halide::RDom rows;  // of an item; items

    FillPositionsGpu(const Halide::Func& row_positions, const FillPositionsInputs& in)
        : rows({{0, in.seq}, {0, in.item_count}}, "rows") {
        using namespace Halide;
        const Expr i = rows[0], b = rows[1];
        Expr first = clamp(in.starts(b), 0, in.row_count);
        rows.where(i < clamp(in.starts(b + 1), first, in.row_count) - first);
        Expr offset = select((in.given & ATTNC_GIVEN_POSITION_OFFSETS) != 0, in.position_offsets(b), 0);
        Expr position = cast<int64_t>(offset) + i;
        const Var m("m");
        row_positions(m) = undef<int32_t>();
        row_positions(clamp(first + i, 0, in.row_count - 1)) = cast<int32_t>(min(position, INT32_MAX));
    }
};

// out (n, m) of `columns`: 0 in rows of items that are past those that count; all others stay.
struct ClearRowsGpu {
    Halide::RDom at;  // column, row of an item, item

    ClearRowsGpu(const Halide::Func& out, const Halide::ImageParam& items, const Halide::Expr& columns,
                 const Halide::Expr& row_count, const Halide::Expr& seq_q)
        : at({{0, columns}, {0, seq_q}, {0, items.dim(1).extent()}}, "at") {
        using namespace Halide;
        const Expr query = at[1], item = at[2];
        at.where(query >= item_number(items, ATTNC_ITEM_QUERIES, item) &&
                 query < item_number(items, ATTNC_ITEM_ROWS, item));
        const Var n("n"), m("m");
        out(n, m) = undef<float>();
        out(at[0], query_row(items, query, item, row_count)) = 0.0f;
    }
};

}  // namespace attnc
