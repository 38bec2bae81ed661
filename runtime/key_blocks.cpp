#include "runtime/key_blocks.h"

#include <cstring>

#include "runtime/arithmetic.h"
#include "runtime/masks.h"
#include "runtime/nonfinite.h"

namespace attnc {
namespace {

// Pairs below which looking through a mask of pairs for what it drops whole costs more than it can save.
constexpr int64_t kLeastPairs = 64 * 64;

// The map while it is made.
struct Map {
    uint8_t* data;
    int64_t rows, keys;  // of the range and the block
    int64_t columns() const { return divide_up(keys, kGranule); }
    int64_t granule_rows() const { return divide_up(rows, kGranule); }
};

bool keeps(uint8_t mask, bool dropped_where) { return (mask != 0) != dropped_where; }
bool keeps(float bias, bool) { return !is_minus_infinity(bias); }

// Whether a mask keeps a pair of a granule of rows x keys. Most granules end at their first pair.
template <typename T>
bool keeps_any(const T* first, const MaskSource& mask, int64_t rows, int64_t keys, bool dropped_where) {
    if (mask.query_stride == 0) rows = 1;
    if (mask.key_stride == 0) keys = 1;
    for (int64_t i = 0; i < rows; ++i) {
        const T* row = first + i * mask.query_stride;
        if (keeps(*row, dropped_where)) return true;
        bool any = false;
        if (mask.key_stride == 1) {
            for (int64_t j = 0; j < keys; ++j) any |= keeps(row[j], dropped_where);
        } else {
            for (int64_t j = 0; j < keys; ++j) any |= keeps(row[j * mask.key_stride], dropped_where);
        }
        if (any) return true;
    }
    return false;
}

// Drops the granules that a mask drops whole.
template <typename T>
void drop_granules(const Map& map, const MaskSource& mask, bool dropped_where) {
    const auto* data = static_cast<const T*>(mask.data);
    for (int64_t ib = 0; ib < map.granule_rows(); ++ib) {
        uint8_t* granules = map.data + ib * map.columns();
        const int64_t row = ib * kGranule, rows = least(kGranule, map.rows - row);
        for (int64_t jb = 0; jb < map.columns(); ++jb) {
            const int64_t key = jb * kGranule, keys = least(kGranule, map.keys - key);
            const T* first = data + row * mask.query_stride + key * mask.key_stride;
            if (granules[jb] != 0 && !keeps_any(first, mask, rows, keys, dropped_where)) granules[jb] = 0;
        }
    }
}

void scan_masks(const Wave& wave, const QueryRange& range, int64_t first, const Map& map) {
    const Request& r = wave.request;
    const MaskUse& use = wave.masks;
    const auto source = [&](const MaskView& view, int64_t size) {
        return mask_source(view, *range.item, range.head, range.row, first, size);
    };
    if (use.key_addend) drop_granules<float>(map, key_addend_source(wave, *range.item, first), false);
    if (map.rows * map.keys < kLeastPairs) return;
    if (use.keep) drop_granules<uint8_t>(map, source(r.keep_mask, 1), false);
    if (use.drop) drop_granules<uint8_t>(map, source(r.drop_mask, 1), true);
    if (use.bias) drop_granules<float>(map, source(r.bias, sizeof(float)), false);
}

// A granule lies in one element of the block mask.
void copy_block_mask(const Wave& wave, const QueryRange& range, int64_t first, const Map& map) {
    const BlockMask& mask = wave.request.block_keep_mask;
    const uint8_t* data = static_cast<const uint8_t*>(mask.view.data) +
                          range.item->number * mask.view.batch_stride + range.head * mask.view.head_stride;
    for (int64_t ib = 0; ib < map.granule_rows(); ++ib) {
        const uint8_t* row = data + (range.row + ib * kGranule) / mask.block_q * mask.view.query_stride;
        for (int64_t jb = 0; jb < map.columns(); ++jb) {
            const int64_t column = (first + jb * kGranule) / mask.block_kv;
            map.data[ib * map.columns() + jb] = row[column * mask.view.key_stride] != 0 ? 1 : 0;
        }
    }
}

int64_t count_dropped(const Map& map) {
    int64_t dropped = 0;
    for (int64_t n = 0; n < map.granule_rows() * map.columns(); ++n) dropped += map.data[n] == 0 ? 1 : 0;
    return dropped;
}

// Whether some column is dropped for a whole tile of queries, so that a kernel has less to do.
bool any_column_dropped(const Map& map, int64_t tile_q) {
    const int64_t tile = divide_up(tile_q, kGranule), rows = map.granule_rows();
    for (int64_t first = 0; first < rows; first += tile) {
        const int64_t end = least(first + tile, rows);
        for (int64_t jb = 0; jb < map.columns(); ++jb) {
            uint8_t kept = 0;
            for (int64_t ib = first; ib < end; ++ib) kept |= map.data[ib * map.columns() + jb];
            if (kept == 0) return true;
        }
    }
    return false;
}

}  // namespace

KeyBlockMap map_key_blocks(const Wave& wave, Worker& worker, const QueryRange& range, int64_t first,
                           int64_t count) {
    const MaskUse& use = wave.masks;
    if (!use.any) return {};
    const Map map = {worker.memory + wave.plan.worker_key_blocks, range.rows, count};
    const int64_t granules = map.granule_rows() * map.columns();
    if (use.blocks) {
        copy_block_mask(wave, range, first, map);
    } else {
        memset(map.data, 1, static_cast<size_t>(granules));
    }
    scan_masks(wave, range, first, map);
    const int64_t dropped = count_dropped(map);
    if (dropped == granules) return {map.data, map.columns(), true};
    // What other masks drop the kernel drops anyway.
    if (dropped == 0 || (!use.blocks && !any_column_dropped(map, wave.layer.layout.tile_q))) return {};
    return {map.data, map.columns(), false};
}

int64_t whole_granules(int64_t rows) {
    if (rows >= kGranule) return rows / kGranule * kGranule;
    int64_t power = 1;
    while (power * 2 <= rows) power *= 2;
    return power;
}

}  // namespace attnc
