// Rows of a cache: where an item's keys lie, in runs of ATTNC_RUN_KEYS rows one after another, and new keys and values on
// their way there.
#pragma once

#include <Halide.h>

#include "stages/gpu_items.h"

namespace attnc {

struct FillRunsInputs {
    Halide::ImageParam items;          // (c, b): ATTNC_ITEM_*
    Halide::Func counts, cache_slots;  // (b)
    Halide::ImageParam block_table;    // (p, b)
    Halide::Expr given;                // ATTNC_GIVEN_*: of what kind the cache is
    Halide::Expr slot_rows, capacity;
    Halide::Expr page_size, pages;
};

class FillRunsGpu {
public:
    Halide::Var r{"r"}, b{"b"};

    explicit FillRunsGpu(const FillRunsInputs& in) : in_(in) {}

    // Row of the first key of run r of item b.
    Halide::Expr row() const {
        using namespace Halide;
        Expr key = r * ATTNC_RUN_KEYS;
        Expr page_size = max(in_.page_size, 1), capacity = max(in_.capacity, 1);
        Expr page_place = clamp(key / page_size, 0, in_.block_table.dim(0).extent() - 1);
        Expr page = clamp(element_of(in_.block_table, {page_place, b}), 0, in_.pages - 1);
        Expr first =
            select(is_given(ATTNC_GIVEN_PAGED), page * page_size + key % page_size,
                   is_given(ATTNC_GIVEN_CACHE_SLOTS), in_.cache_slots(b) * in_.slot_rows + key % capacity,
                   item_number(in_.items, ATTNC_ITEM_KEY_ROW, b) + key);
        return select(key < in_.counts(b), first, 0);
    }

private:
    Halide::Expr is_given(int kind) const { return (in_.given & kind) != 0; }
    FillRunsInputs in_;
};

struct AppendRowsInputs {
    Halide::Func x;                   // (d, m, h)
    Halide::Expr features, x_rows;    // extents of d and m
    Halide::ImageParam first_rows;    // (b): of the rows of x
    Halide::ImageParam held, counts;  // (b): keys of an item before the call and after it
    Halide::ImageParam key_runs;      // (r, b)
    Halide::Expr seq;                 // most rows of an item
    Halide::Expr y_rows;
};

// y (d, n, h): rows that an item brings go to the places of its new keys; all others stay.
struct AppendRowsGpu {
    Halide::Var h{"h"};
    Halide::RDom at;  // feature, row of an item, item

    AppendRowsGpu(const Halide::Func& y, const AppendRowsInputs& in)
        : at({{0, in.features}, {0, in.seq}, {0, in.counts.dim(0).extent()}}, "at") {
        using namespace Halide;
        const Expr item = at[2];
        Expr key = element_of(in.held, {item}) + at[1];
        at.where(key < element_of(in.counts, {item}));
        Expr row = clamp(element_of(in.first_rows, {item}) + at[1], 0, in.x_rows - 1);
        const Var d("d"), n("n");
        y(d, n, h) = undef<float>();
        y(at[0], row_of_run(in.key_runs, key, 0, item, in.y_rows), h) = in.x(at[0], row, h);
    }
};

}  // namespace attnc
