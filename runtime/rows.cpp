#include "runtime/rows.h"

#include "runtime/arithmetic.h"

namespace attnc {
namespace {

// Chunks of a long stretch are a multiple of this, which register tiles of 4, 6, 8 and 12 rows divide: what
// is left over for a tile that is not full comes once, at the end.
constexpr int64_t kRowMultiple = 24;

// Whether the next item's rows follow this item's without a gap in the caller's tensor.
bool joins_next(const Rows& rows, int64_t item) {
    const int64_t end = rows.skipped(item) + rows.length(item);
    const bool is_last = item + 1 >= rows.item_count;
    const bool next_is_whole = is_last || rows.skipped(item + 1) == 0;
    const int64_t step = is_last ? 1 : rows.origin(item + 1) - rows.origin(item);
    return next_is_whole && end * rows.row_stride == step * rows.batch_stride;
}

// The last item that begins at or before `row` and is not empty; `row` is valid.
int64_t item_of(const Rows& rows, int64_t row) {
    int64_t low = 0, high = rows.item_count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (rows.first(middle) <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

}  // namespace

int64_t chunk_begin(const Rows& rows, int64_t chunk) {
    if (chunk <= 0) return 0;
    if (chunk >= rows.chunks) return rows.total;
    const int64_t size = rows.total / rows.chunks;
    const int64_t row = chunk * size + chunk * (rows.total % rows.chunks) / rows.chunks;
    const int64_t item = item_of(rows, row);
    const int64_t behind = row - rows.first(item);
    const int64_t ahead = rows.length(item) - behind;
    if (joins_next(rows, item)) {
        const int64_t border = row - row % kRowMultiple;
        return border < row - behind ? row - behind : border;
    }
    if (behind <= ahead && behind <= size / 4) return row - behind;
    if (ahead < behind && ahead <= size / 4) return row + ahead;
    return row - behind % kRowMultiple;
}

Stretch stretch_at(const Rows& rows, int64_t row, int64_t end) {
    int64_t item = item_of(rows, row);
    const int64_t item_row = rows.skipped(item) + row - rows.first(item);
    Stretch stretch = {item, item_row, row, 0};
    int64_t stop = rows.first(item) + rows.length(item);
    while (stop < end && joins_next(rows, item)) {
        ++item;
        stop += rows.length(item);
    }
    if (stop > end) stop = end;
    stretch.count = stop - row;
    if (stretch.count > rows.call_rows) stretch.count = rows.call_rows;
    return stretch;
}

RowSteps row_steps(int64_t rows, int64_t tile, int64_t tail) {
    RowSteps best = {rows, 0, 0, divide_up(rows, tile) * tile};
    const int64_t most_few = tail > ATTNC_FEW_ROWS ? least(rows, ATTNC_FEW_ROWS) : 0;
    for (int64_t few = 0; few <= most_few; ++few) {
        for (int64_t steps = 0; best.made > rows; ++steps) {
            const int64_t tails = least(steps * tail, rows - few), whole = rows - few - tails;
            const int64_t made =
                divide_up(whole, tile) * tile + steps * tail + (few > 0 ? ATTNC_FEW_ROWS : 0);
            if (made < best.made) best = {whole, tails, few, made};
            if (whole == 0 || tail == 0) break;
        }
    }
    return best;
}

}  // namespace attnc
