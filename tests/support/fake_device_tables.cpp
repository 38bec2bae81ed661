// Tables of items, of their keys in a cache and of masks, of a fake device in plain C++.
#include <limits>

#include "tests/support/fake_device_parts.h"

namespace attnc::test {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

}  // namespace

void fill_items(const DeviceArguments& a) {
    constexpr int64_t kNoLimit = 1 << 30;
    const DeviceView items = VIEW(ITEMS);
    const int32_t given = INTEGER(GIVEN), diagonal = INTEGER(DIAGONAL);
    const int64_t count = items.extent(1);
    struct Side {
        int64_t row, rows, length;
    };
    const auto side = [&](int64_t b, const DeviceView& starts, int starts_flag, const DeviceView& lengths,
                          int lengths_flag, int64_t seq) {
        Side s = {b * seq, seq, seq};
        if ((given & starts_flag) != 0) {
            s.row = clamped(starts.i(b), 0, seq * count);
            s.rows = std::min(clamped(starts.i(b + 1), s.row, seq * count) - s.row, seq);
        }
        s.length = (given & lengths_flag) != 0 ? clamped(lengths.i(b), 0, s.rows) : s.rows;
        return s;
    };
    for (int64_t b = 0; b < count; ++b) {
        const Side q = side(b, VIEW(QUERY_STARTS), ATTNC_GIVEN_QUERY_STARTS, VIEW(QUERY_LENGTHS),
                            ATTNC_GIVEN_QUERY_LENGTHS, INTEGER(SEQ_Q));
        const Side k = side(b, VIEW(KEY_STARTS), ATTNC_GIVEN_KEY_STARTS, VIEW(KEY_LENGTHS),
                            ATTNC_GIVEN_KEY_LENGTHS, INTEGER(SEQ_KV));
        const int64_t own = diagonal == ATTNC_DIAGONAL_TOP_LEFT  ? 0
                            : diagonal == ATTNC_DIAGONAL_OFFSETS ? VIEW(CAUSAL_OFFSETS).i(b)
                                                                 : k.length - q.length;
        const int64_t left = INTEGER(WINDOW_LEFT);
        const int64_t right = diagonal != ATTNC_DIAGONAL_NONE ? 0 : INTEGER(WINDOW_RIGHT);
        const int64_t columns[] = {q.row,
                                   q.length,
                                   q.rows,
                                   k.row,
                                   k.length,
                                   left < 0 ? -kNoLimit : clamped(own - left, -kNoLimit, kNoLimit),
                                   right < 0 ? kNoLimit : clamped(own + right + 1, -kNoLimit, kNoLimit),
                                   clamped(own, -kNoLimit, kNoLimit)};
        for (int c = 0; c < ATTNC_ITEM_COLUMNS; ++c) items.i(c, b) = static_cast<int32_t>(columns[c]);
        VIEW(QUERY_COUNTS).i(b) = static_cast<int32_t>(q.length);
        VIEW(KEY_COUNTS).i(b) = static_cast<int32_t>(k.length);
    }
}

void fill_positions(const DeviceArguments& a) {
    const DeviceView starts = VIEW(STARTS), offsets = VIEW(POSITION_OFFSETS), positions = VIEW(ROW_POSITIONS);
    const bool is_offset = (INTEGER(GIVEN) & ATTNC_GIVEN_POSITION_OFFSETS) != 0;
    const int64_t rows = positions.extent(0);
    for (int64_t b = 0; b < offsets.extent(0); ++b) {
        const int64_t first = clamped(starts.i(b), 0, rows), end = clamped(starts.i(b + 1), first, rows);
        for (int64_t i = 0; i < INTEGER(SEQ) && first + i < end; ++i) {
            const int64_t position = is_offset ? offsets.i(b) + i : i;
            positions.i(first + i) = static_cast<int32_t>(std::min<int64_t>(position, INT32_MAX));
        }
    }
}

void clear_rows(const DeviceArguments& a) {
    const DeviceView items = VIEW(ITEMS), out = VIEW(OUT);
    for (int64_t b = 0; b < items.extent(1); ++b) {
        for (int64_t i = items.i(ATTNC_ITEM_QUERIES, b); i < items.i(ATTNC_ITEM_ROWS, b); ++i) {
            for (int64_t n = 0; n < out.extent(0); ++n) out.f(n, items.i(ATTNC_ITEM_QUERY_ROW, b) + i) = 0;
        }
    }
}

void fill_cache(const DeviceArguments& a) {
    const DeviceView held = VIEW(HELD), counts = VIEW(COUNTS), slots_out = VIEW(SLOTS_OUT);
    const int32_t given = INTEGER(GIVEN);
    const int64_t seq = INTEGER(SEQ), max_keys = INTEGER(MAX_KEYS);
    for (int64_t b = 0; b < held.extent(0); ++b) {
        const int64_t asked = (given & ATTNC_GIVEN_CACHE_SLOTS) != 0 ? VIEW(CACHE_SLOTS).i(b) : b;
        const int64_t slot = clamped(asked, 0, INTEGER(SLOTS) - 1);
        const int64_t before = VIEW(CACHE_LENGTHS).i((given & ATTNC_GIVEN_PAGED) != 0 ? b : slot);
        const int64_t there = clamped(before, 0, max_keys);
        const int64_t brought = (given & ATTNC_GIVEN_KEY_LENGTHS) != 0 ? VIEW(KEY_LENGTHS).i(b) : seq;
        slots_out.i(b) = static_cast<int32_t>(slot);
        held.i(b) = static_cast<int32_t>(there);
        counts.i(b) = static_cast<int32_t>(there + clamped(brought, 0, std::min(seq, max_keys - there)));
    }
}

void fill_runs(const DeviceArguments& a) {
    const DeviceView runs = VIEW(KEY_RUNS), items = VIEW(ITEMS), counts = VIEW(COUNTS);
    const int32_t given = INTEGER(GIVEN);
    const int64_t page_size = INTEGER(PAGE_SIZE);
    for (int64_t b = 0; b < runs.extent(1); ++b) {
        for (int64_t r = 0; r < runs.extent(0); ++r) {
            const int64_t key = r * ATTNC_RUN_KEYS;
            int64_t row = 0;
            if (key >= counts.i(b)) {
                row = 0;
            } else if ((given & ATTNC_GIVEN_PAGED) != 0) {
                const int64_t page = clamped(VIEW(BLOCK_TABLE).i(key / page_size, b), 0, INTEGER(PAGES) - 1);
                row = page * page_size + key % page_size;
            } else if ((given & ATTNC_GIVEN_CACHE_SLOTS) != 0) {
                row = int64_t{VIEW(CACHE_SLOTS).i(b)} * INTEGER(SLOT_ROWS) + key % INTEGER(CAPACITY);
            } else {
                row = items.i(ATTNC_ITEM_KEY_ROW, b) + key;
            }
            runs.i(r, b) = static_cast<int32_t>(row);
        }
    }
}

void append_rows(const DeviceArguments& a) {
    const DeviceView x = VIEW(INPUT), y = VIEW(Y), held = VIEW(HELD), counts = VIEW(COUNTS);
    const DeviceView runs = VIEW(KEY_RUNS), first_rows = VIEW(FIRST_ROWS);
    for (int64_t b = 0; b < held.extent(0); ++b) {
        for (int64_t i = 0; i < std::min(counts.i(b) - held.i(b), INTEGER(SEQ)); ++i) {
            const int64_t key = held.i(b) + i;
            const int64_t row = runs.i(key / ATTNC_RUN_KEYS, b) + key % ATTNC_RUN_KEYS;
            for (int64_t h = 0; h < x.extent(2); ++h) {
                for (int64_t d = 0; d < x.extent(0); ++d) y.f(d, row, h) = x.f(d, first_rows.i(b) + i, h);
            }
        }
    }
}

void keep_lengths(const DeviceArguments& a) {
    const DeviceView counts = VIEW(COUNTS), slots = VIEW(CACHE_SLOTS), kept = VIEW(KEPT);
    const int32_t capacity = INTEGER(CAPACITY);
    for (int64_t b = 0; b < counts.extent(0); ++b) {
        int32_t& number = kept.i(slots.i(b));
        number = capacity > 0 ? std::max(number, counts.i(b) - capacity) : counts.i(b);
    }
}

void fill_key_bias(const DeviceArguments& a) {
    const DeviceView to = VIEW(KEY_BIAS);
    const int32_t given = INTEGER(GIVEN);
    const auto addend = [&](int flag, const DeviceView& bias, int64_t j, int64_t b) {
        return (given & flag) != 0 ? static_cast<double>(bias.f(j, b)) : 0;
    };
    const auto drops = [&](int flag, const DeviceView& mask, bool where, int64_t j, int64_t b) {
        return (given & flag) != 0 && (mask.at<uint8_t>(j, b) != 0) == where;
    };
    for (int64_t b = 0; b < to.extent(1); ++b) {
        for (int64_t j = 0; j < to.extent(0); ++j) {
            const bool dropped = drops(ATTNC_GIVEN_KEEP_MASK, VIEW(KEEP_MASK), false, j, b) ||
                                 drops(ATTNC_GIVEN_KEY_KEEP_MASK, VIEW(KEY_KEEP_MASK), false, j, b) ||
                                 drops(ATTNC_GIVEN_DROP_MASK, VIEW(DROP_MASK), true, j, b) ||
                                 drops(ATTNC_GIVEN_KEY_DROP_MASK, VIEW(KEY_DROP_MASK), true, j, b);
            to.f(j, b) = dropped ? kMinusInfinity
                                 : static_cast<float>(addend(ATTNC_GIVEN_BIAS, VIEW(BIAS), j, b) +
                                                      addend(ATTNC_GIVEN_KEY_BIAS, VIEW(KEY_BIAS_IN), j, b));
        }
    }
}

void fill_key_blocks(const DeviceArguments& a) {
    const DeviceView from = VIEW(BLOCK_KEEP_MASK), to = VIEW(KEY_BLOCKS);
    for (int64_t b = 0; b < to.extent(3); ++b) {
        for (int64_t h = 0; h < to.extent(2); ++h) {
            for (int64_t ib = 0; ib < to.extent(1); ++ib) {
                for (int64_t jb = 0; jb < to.extent(0); ++jb) {
                    to.at<uint8_t>(jb, ib, h, b) =
                        from.at<uint8_t>(jb * 16 / INTEGER(BLOCK_KV), ib * 16 / INTEGER(BLOCK_Q), h, b);
                }
            }
        }
    }
}

}  // namespace attnc::test
