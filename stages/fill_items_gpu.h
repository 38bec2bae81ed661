// The numbers of each item of a batch, from what a call gives of them: lengths, first rows, the diagonal and the window. The
// device makes them, and clamps what is out of range, so that no table has to be read by the host.
#pragma once

#include <Halide.h>

#include "stages/gpu_items.h"

namespace attnc {

struct FillItemsInputs {
    Halide::Func query_lengths, key_lengths, causal_offsets;  // (b)
    Halide::Func query_starts, key_starts;                    // (b + 1)
    Halide::Expr given;                                       // ATTNC_GIVEN_*: tables that are read
    Halide::Expr item_count;
    Halide::Expr seq_q, seq_kv;  // most rows of an item
    Halide::Expr diagonal;       // ATTNC_DIAGONAL_*
    Halide::Expr window_left, window_right;
};

class FillItemsGpu {
public:
    Halide::Var b{"b"};

    explicit FillItemsGpu(const FillItemsInputs& in) : in_(in) {
        const Side queries = side(in.query_starts, ATTNC_GIVEN_QUERY_STARTS, in.query_lengths,
                                  ATTNC_GIVEN_QUERY_LENGTHS, in.seq_q);
        const Side keys =
            side(in.key_starts, ATTNC_GIVEN_KEY_STARTS, in.key_lengths, ATTNC_GIVEN_KEY_LENGTHS, in.seq_kv);
        numbers_[ATTNC_ITEM_QUERY_ROW] = queries.first_row;
        numbers_[ATTNC_ITEM_QUERIES] = queries.length;
        numbers_[ATTNC_ITEM_ROWS] = queries.rows;
        numbers_[ATTNC_ITEM_KEY_ROW] = keys.first_row;
        numbers_[ATTNC_ITEM_KEYS] = keys.length;
        set_interval(queries.length, keys.length);
    }

    // A number (ATTNC_ITEM_*) of item b.
    const Halide::Expr& number(int column) const { return numbers_[column]; }

private:
    using Expr = Halide::Expr;
    static constexpr int kNoLimit = 1 << 30;  // keys; sums of two are still int32

    struct Side {
        Expr first_row, rows, length;
    };

    Expr is_given(int table) const { return (in_.given & table) != 0; }

    Side side(const Halide::Func& starts, int starts_flag, const Halide::Func& lengths, int lengths_flag,
              const Expr& seq) const {
        using namespace Halide;
        Expr most = cast<int>(min(cast<int64_t>(seq) * in_.item_count, INT32_MAX));
        Expr start = clamp(starts(b), 0, most), end = clamp(starts(b + 1), start, most);
        Expr rows = select(is_given(starts_flag), min(end - start, seq), seq);
        return {.first_row = select(is_given(starts_flag), start, b * seq),
                .rows = rows,
                .length = select(is_given(lengths_flag), clamp(lengths(b), 0, rows), rows)};
    }

    void set_interval(const Expr& queries, const Expr& keys) {
        using namespace Halide;
        Expr offset = select(is_given(ATTNC_GIVEN_CAUSAL_OFFSETS), in_.causal_offsets(b), 0);
        Expr own = cast<int64_t>(select(in_.diagonal == ATTNC_DIAGONAL_TOP_LEFT, 0,
                                        in_.diagonal == ATTNC_DIAGONAL_OFFSETS, offset, keys - queries));
        // A diagonal drops all that a window's right side could.
        Expr right = select(in_.diagonal != ATTNC_DIAGONAL_NONE, 0, in_.window_right);
        numbers_[ATTNC_ITEM_FIRST] =
            select(in_.window_left < 0, -kNoLimit, within_limits(own - in_.window_left));
        numbers_[ATTNC_ITEM_LAST] = select(right < 0, kNoLimit, within_limits(own + right + 1));
        numbers_[ATTNC_ITEM_OWN_KEY] = within_limits(own);
    }

    static Expr within_limits(const Expr& key) {
        return Halide::cast<int>(Halide::clamp(key, -kNoLimit, kNoLimit));
    }

    FillItemsInputs in_;
    Expr numbers_[ATTNC_ITEM_COLUMNS];
};

}  // namespace attnc
