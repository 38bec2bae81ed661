#include "runtime/ahead.h"

#include "runtime/cache_rows.h"

namespace attnc {
namespace {

constexpr int64_t kMostBytes = 1 << 19;

uint64_t address_of_row(const HeadRows& rows, int64_t row) {
    return reinterpret_cast<uint64_t>(rows.data + row * rows.row_stride);
}

}  // namespace

Ahead rows_ahead(const Wave& wave, const QueryRange& next) {
    const Item& item = *next.item;
    Ahead ahead = {address_of_row(query_rows(wave, next), 0), 0, 0, 0};
    const int64_t tile = wave.layer.layout.tile_kv,
                  row_bytes = (wave.layer.qk_width + wave.layer.v_width) * 4;
    const KeyInterval seen = visible_keys(next);
    const int64_t first = seen.first / tile * tile;
    const KvPool pool = kv_pool(wave, item, kv_head_of(wave.layer, next.head));
    if (pool.runs != nullptr || (seen.end - first) * row_bytes > kMostBytes) return ahead;
    ahead.k = address_of_row(pool.k, first - item.kv_first);
    ahead.v = address_of_row(pool.v, first - item.kv_first);
    return ahead;
}

}  // namespace attnc
