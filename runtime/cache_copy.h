// Moves of what a cache holds, in the host's memory or on a device: which rows go where, and in which order slots take over one
// another.
#pragma once

#include "runtime/request.h"
#include "runtime/text.h"

namespace attnc {

// An export or import: the items' places, and the two sides.
struct Transfer {
    CallCache use;
    int64_t batch, first, count;
    OutView key, value;  // data null: not wanted
};

// Where key `row` of the transfer is outside of the cache.
inline float* outside(const OutView& view, int64_t item, int64_t head, int64_t row) {
    return view.data + item * view.batch_stride + head * view.head_stride + row * view.row_stride;
}

// Calls move(row, run) -> attnc_status for an item's keys, from key `row` of the transfer on as many as lie one after another in
// the cache.
template <typename Move>
attnc_status for_each_run(const Transfer& t, int64_t item, const Move& move) {
    const CachePlace place = t.use.place(item);
    for (int64_t done = 0; done < t.count;) {
        const RowRun run = place.at(t.first + done, t.count - done);
        ATTNC_TRY(move(done, run));
        done += run.count;
    }
    return ATTNC_OK;
}

// Slot i takes over from[i] for i < count. slots.copy(from, to) copies one; slots.rotate(first): slots first, from[first],
// from[from[first]], ... are a cycle, of which each takes over the next one. Slots that nobody waits for come first, which frees
// those that they waited for; what is left are cycles.
template <typename Slots>
attnc_status reorder(Slots& slots, attnc_cache& cache, const int64_t* from, int64_t count) {
    // Slots that take over from this one; less than 0: is done.
    auto* waiting = cache.at<int64_t>(cache.marks);
    for (int64_t slot = 0; slot < cache.slots; ++slot) waiting[slot] = 0;
    const auto stays = [&](int64_t slot) { return slot >= count || from[slot] == slot; };
    for (int64_t slot = 0; slot < count; ++slot) {
        if (!stays(slot)) ++waiting[from[slot]];
    }
    for (int64_t i = 0; i < count; ++i) {
        for (int64_t slot = i; !stays(slot) && waiting[slot] == 0;) {
            ATTNC_TRY(slots.copy(from[slot], slot));
            waiting[slot] = -1;
            --waiting[from[slot]];
            slot = from[slot];
        }
    }
    for (int64_t i = 0; i < count; ++i) {
        if (stays(i) || waiting[i] < 0) continue;
        ATTNC_TRY(slots.rotate(i));
        for (int64_t slot = i; waiting[slot] >= 0; slot = from[slot]) waiting[slot] = -1;
    }
    return ATTNC_OK;
}

}  // namespace attnc
