// How many keys the items of a call with a cache have, before and after it, and the same kept for the next call. The device
// reads and clamps the tables, as fill_items does.
#pragma once

#include <Halide.h>

#include "stages/gpu_items.h"

namespace attnc {

struct FillCacheInputs {
    Halide::ImageParam cache_lengths;       // (n): of slots; of items where paged
    Halide::Func cache_slots, key_lengths;  // (b)
    Halide::Expr given;                     // ATTNC_GIVEN_*: tables that are read
    Halide::Expr seq;                       // most keys that an item brings
    Halide::Expr max_keys, slots;
};

class FillCacheGpu {
public:
    Halide::Var b{"b"};
    Halide::Expr slot, held, count;  // of item b

    explicit FillCacheGpu(const FillCacheInputs& in) {
        using namespace Halide;
        const auto is_given = [&](int table) { return (in.given & table) != 0; };
        slot = clamp(select(is_given(ATTNC_GIVEN_CACHE_SLOTS), in.cache_slots(b), b), 0, in.slots - 1);
        Expr place =
            clamp(select(is_given(ATTNC_GIVEN_PAGED), b, slot), 0, in.cache_lengths.dim(0).extent() - 1);
        held = clamp(element_of(in.cache_lengths, {place}), 0, in.max_keys);
        Expr brought = select(is_given(ATTNC_GIVEN_KEY_LENGTHS), in.key_lengths(b), in.seq);
        count = held + clamp(brought, 0, min(in.seq, in.max_keys - held));
    }
};

// lengths (n) and first_held (n) of the slots that items have; all others stay.
struct KeepLengthsGpu {
    Halide::RDom items, ring_items;  // the same items, the second where the slots are rings

    KeepLengthsGpu(const Halide::Func& lengths, const Halide::Func& first_held,
                   const Halide::ImageParam& counts, const Halide::ImageParam& cache_slots,
                   const Halide::Expr& slot_count, const Halide::Expr& capacity)
        : items(0, counts.dim(0).extent(), "items"), ring_items(0, counts.dim(0).extent(), "items") {
        using namespace Halide;
        ring_items.where(capacity > 0);
        const auto slot_of = [&](const RDom& item) {
            return clamp(element_of(cache_slots, {item}), 0, slot_count - 1);
        };
        const Var n("n");
        lengths(n) = undef<int32_t>();
        lengths(slot_of(items)) = element_of(counts, {items});
        first_held(n) = undef<int32_t>();
        Expr slot = slot_of(ring_items);
        first_held(slot) = max(first_held(slot), element_of(counts, {ring_items}) - capacity);
    }
};

}  // namespace attnc
