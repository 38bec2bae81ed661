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

// kept (n): a number of each slot that items have; all others stay.
struct KeepLengthsGpu {
    Halide::RDom items;

    KeepLengthsGpu(const Halide::Func& kept, const Halide::ImageParam& counts,
                   const Halide::ImageParam& cache_slots, const Halide::Expr& slot_count,
                   const Halide::Expr& capacity)
        : items(0, counts.dim(0).extent(), "items") {
        using namespace Halide;
        const Var n("n");
        kept(n) = undef<int32_t>();
        Expr slot = clamp(element_of(cache_slots, {items}), 0, slot_count - 1);
        Expr count = element_of(counts, {items});
        kept(slot) = select(capacity > 0, max(kept(slot), count - capacity), count);
    }
};

}  // namespace attnc
