#include "runtime/query_tiles.h"

#include "runtime/arithmetic.h"

namespace attnc {
namespace {

// Along a diagonal a tile scores half a square of pairs in vain. With fewer keys than these that costs more than the
// broadcasts of a narrower one, of which each serves fewer queries.
constexpr int64_t kNarrowDiagonal = 512;

}  // namespace

QueryTiles next_query_tiles(const attnc_layer& layer, const QueryRange& range, int64_t first, int64_t end) {
    const int64_t wide = layer.layout.tile_q;
    const int64_t narrow = layer.layout.tile_q_narrow, single = layer.layout.tile_q_single;
    const int64_t rows = range.rows;
    if (single >= rows) return {ATTNC_KERNEL_ATTEND_SINGLE, rows};
    if (narrow >= rows) return {ATTNC_KERNEL_ATTEND_NARROW, rows};
    const int64_t keys = end - first;
    if (narrow > 0 && keys < kNarrowDiagonal && !sees_all(range, first, end)) {
        const int64_t whole = rows - rows % narrow;
        return {ATTNC_KERNEL_ATTEND_NARROW, rows - whole > single ? rows : whole};
    }
    if (rows >= wide) return {ATTNC_KERNEL_ATTEND, rows - rows % wide};
    if (narrow > 0 && rows <= narrow + single) return {ATTNC_KERNEL_ATTEND_NARROW, narrow};
    return {ATTNC_KERNEL_ATTEND, rows};
}

}  // namespace attnc
