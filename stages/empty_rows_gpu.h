// What rows that see no key become: zeros, NaN, or a mean over the values of all of the item's keys.
#pragma once

#include <Halide.h>

#include <optional>

#include "runtime/attnc.h"
#include "stages/gpu_items.h"
#include "stages/row_stats.h"

namespace attnc {

// The policy's choice (attnc_empty_rows). By bits: floats that are compared or chosen are taken for numbers.
inline Halide::Expr empty_row_value(const Halide::Expr& empty_rows, const Halide::Expr& mean) {
    using namespace Halide;
    constexpr int kNanBits = 0x7fc00000;
    return reinterpret<float>(select(empty_rows == ATTNC_EMPTY_ROWS_NAN, kNanBits,
                                     empty_rows == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES, reinterpret<int>(mean),
                                     0));
}

struct EmptyRowsInputs {
    Halide::Func row_stats;                      // (m, h, c)
    Halide::Func v;                              // (d, m, h)
    Halide::ImageParam items;                    // (c, b)
    std::optional<Halide::ImageParam> key_runs;  // (r, b): where keys lie; not given: by the items
    Halide::Expr row_count, key_row_count, heads, key_heads;
    Halide::Expr seq_q;
    Halide::Expr empty_rows;  // attnc_empty_rows
};

// A block of threads has a tile of an item's rows, and a thread one feature: it looks whether some row of the tile is empty,
// and only then goes through the values. They are summed in double, so that many keys cost no exactness.
struct EmptyRowsGpu {
    static constexpr int kRows = 32;  // of a tile

    Halide::Var d{"d"}, h{"h"}, n{"n"};  // n: item and tile of its rows
    Halide::Func some{"some"};           // (h, n): 1 where a row of the tile is empty
    Halide::Func sums{"sums"};           // (d, h, n)
    Halide::RDom looked_at, keys;
    Halide::RDom rows;  // of a tile; tiles

    explicit EmptyRowsGpu(const EmptyRowsInputs& in)
        : looked_at(0, kRows, "looked_at"), keys(0, in.key_row_count, "keys"), in_(in) {
        using namespace Halide;
        some(h, n) = 0;
        some(h, n) = select(is_empty(looked_at, n), 1, some(h, n));

        sums(d, h, n) = cast<double>(0);
        // The keys that are read, as one number, so that the loop goes no further.
        Expr is_read = some(h, n) != 0 && in_.empty_rows == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES;
        keys.where(keys < select(is_read, key_count(n), 0));
        Expr key_row = in_.key_runs.has_value()
                           ? row_of_run(*in_.key_runs, keys, 0, item(n), in_.key_row_count)
                           : row_of_item(in_.items, keys, item(n), in_.key_row_count);
        sums(d, h, n) += cast<double>(in_.v(d, key_row, h / (in_.heads / in_.key_heads)));

        rows = RDom({{0, kRows}, {0, tiles() * in_.items.dim(1).extent()}}, "rows");
        rows.where(is_empty(rows[0], rows[1]));
    }

    // Row of the context of an element of `rows`, and what it becomes.
    Halide::Expr context_row() const { return row(rows[0], rows[1]); }
    Halide::Expr value() const {
        using namespace Halide;
        const Expr of = rows[1];
        Expr mean = cast<float>(sums(d, h, of) / cast<double>(max(key_count(of), 1)));
        return empty_row_value(in_.empty_rows, mean);
    }

private:
    using Expr = Halide::Expr;
    EmptyRowsInputs in_;

    Expr tiles() const { return Halide::max((in_.seq_q + (kRows - 1)) / kRows, 1); }
    Expr item(const Expr& of) const { return Halide::clamp(of / tiles(), 0, in_.items.dim(1).extent() - 1); }
    Expr query(const Expr& local, const Expr& of) const { return of % tiles() * kRows + local; }
    Expr row(const Expr& local, const Expr& of) const {
        return query_row(in_.items, query(local, of), item(of), in_.row_count);
    }
    Expr key_count(const Expr& of) const { return item_number(in_.items, ATTNC_ITEM_KEYS, item(of)); }
    Expr is_empty(const Expr& local, const Expr& of) const {
        return query(local, of) < item_number(in_.items, ATTNC_ITEM_QUERIES, item(of)) &&
               sees_no_key(in_.row_stats(row(local, of), h, kSum));
    }
};

}  // namespace attnc
