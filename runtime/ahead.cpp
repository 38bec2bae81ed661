#include "runtime/ahead.h"

#include "runtime/cache_rows.h"

namespace attnc {
namespace {

constexpr int64_t kL2Bytes = 1 << 20;  // at least, of a core
constexpr int64_t kMostBytes = kL2Bytes / 2;

uint64_t address_of_row(const HeadRows& rows, int64_t row) {
    return reinterpret_cast<uint64_t>(rows.data + row * rows.row_stride);
}

uint64_t bytes_between(const HeadRows& rows) {
    return static_cast<uint64_t>(rows.row_stride) * sizeof(float);
}

// Of a key and its value.
int64_t row_bytes(const attnc_layer& layer) {
    return (layer.qk_width + layer.v_width) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

Ahead rows_ahead(const Wave& wave, const QueryRange& next) {
    const Item& item = *next.item;
    Ahead ahead = {.q = address_of_row(query_rows(wave, next), 0)};
    const int64_t tile = wave.layer.layout.tile_kv;
    const KeyInterval seen = visible_keys(next);
    const int64_t first = seen.first / tile * tile;
    const KvPool pool = kv_pool(wave, item, kv_head_of(wave.layer, next.head));
    if (pool.runs != nullptr || (seen.end - first) * row_bytes(wave.layer) > kMostBytes) return ahead;
    ahead.k = address_of_row(pool.k, first - item.kv_first);
    ahead.k_bytes = bytes_between(pool.k);
    ahead.v = address_of_row(pool.v, first - item.kv_first);
    ahead.v_bytes = bytes_between(pool.v);
    return ahead;
}

bool keys_come_from_afar(const Wave& wave) {
    const attnc_layer& layer = wave.layer;
    const int64_t keys =
        wave.request.batch * wave.request.seq_kv * layer.config.num_kv_heads * row_bytes(layer);
    return keys + static_cast<int64_t>(layer.bytes) > kL2Bytes;
}

}  // namespace attnc
