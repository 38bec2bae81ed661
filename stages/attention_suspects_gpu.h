// Which heads of which items have a context that isn't finite. A dropped key has weight 0, and 0 times NaN is NaN: where a
// value is not finite, attention is repeated in its guarded form, which doesn't multiply what is dropped. A kernel looks, so
// that the host needn't wait.
#pragma once

#include <Halide.h>

#include "stages/gpu_items.h"

namespace attnc {

struct SuspectsGpu {
    static constexpr int kRows = 128;  // of a tile

    Halide::Var i{"i"}, h{"h"}, b{"b"};
    Halide::Func found{"found"};  // (i, h, b): 1 where some feature of the query's context is not finite
    Halide::RDom features, rows;  // rows: of a tile, tiles of all items, heads

    // context (d, h, m) with m < row_count; items (c, b); `queries` is the most of an item.
    SuspectsGpu(const Halide::Func& context, const Halide::ImageParam& items, int v_head_dim,
                const Halide::Expr& row_count, const Halide::Expr& heads, const Halide::Expr& queries)
        : features(0, v_head_dim, "features"), item_count_(items.dim(1).extent()) {
        using namespace Halide;
        constexpr int kExponent = 0x7f800000;
        tiles_ = max((queries + (kRows - 1)) / kRows, 1);
        // By query, not by row of the context: of an index that comes from memory Halide doesn't see where it begins.
        Expr bits = reinterpret<int>(context(features, h, query_row(items, i, b, row_count)));
        found(i, h, b) = 0;
        found(i, h, b) = select((bits & kExponent) == kExponent, 1, found(i, h, b));

        rows = RDom({{0, kRows}, {0, tiles_ * item_count_}, {0, heads}}, "rows");
        rows.where(query() < item_number(items, ATTNC_ITEM_QUERIES, item()));
        rows.where(found(query(), head(), item()) != 0);
    }

    // Of an element of `rows`.
    Halide::Expr item() const { return Halide::clamp(rows[1] / tiles_, 0, item_count_ - 1); }
    Halide::Expr head() const { return rows[2]; }

private:
    Halide::Expr query() const { return rows[1] % tiles_ * kRows + rows[0]; }
    Halide::Expr tiles_, item_count_;
};

}  // namespace attnc
