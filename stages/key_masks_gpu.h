// Masks of a call in the forms that attention on a device takes: everything per key as one number to add, and blocks of any size
// as granules of 16 keys x 16 queries.
#pragma once

#include <Halide.h>

#include "runtime/device_abi.h"
#include "stages/attention_tile.h"
#include "stages/dropping.h"

namespace attnc {

struct FillKeyBiasInputs {
    Halide::Func bias, key_bias;            // (j, b): added, -infinity drops
    Halide::Func keep_mask, key_keep_mask;  // (j, b): 0 drops
    Halide::Func drop_mask, key_drop_mask;  // (j, b): any other drops
    Halide::Expr given;                     // ATTNC_GIVEN_*: those that are read
};

class FillKeyBiasGpu {
public:
    Halide::Var j{"j"}, b{"b"};

    explicit FillKeyBiasGpu(const FillKeyBiasInputs& in) : in_(in) {}

    // What key j of item b adds to each score.
    Halide::Expr addend() const {
        using Halide::Expr;
        Expr biases = add_to_score(addend_of(in_.bias, ATTNC_GIVEN_BIAS),
                                   addend_of(in_.key_bias, ATTNC_GIVEN_KEY_BIAS));
        Expr dropped = (is_given(ATTNC_GIVEN_KEEP_MASK) && in_.keep_mask(j, b) == 0) ||
                       (is_given(ATTNC_GIVEN_KEY_KEEP_MASK) && in_.key_keep_mask(j, b) == 0) ||
                       (is_given(ATTNC_GIVEN_DROP_MASK) && in_.drop_mask(j, b) != 0) ||
                       (is_given(ATTNC_GIVEN_KEY_DROP_MASK) && in_.key_drop_mask(j, b) != 0);
        return drop_where(dropped, biases);
    }

private:
    Halide::Expr is_given(int mask) const { return (in_.given & mask) != 0; }
    Halide::Expr addend_of(const Halide::Func& bias, int mask) const {
        return Halide::select(is_given(mask), bias(j, b), 0.0f);
    }

    FillKeyBiasInputs in_;
};

struct FillKeyBlocksInputs {
    Halide::Func block_keep_mask;           // (kb, qb, h, b)
    Halide::Expr key_blocks, query_blocks;  // its extents
    Halide::Expr block_q, block_kv;         // queries and keys of a block, multiples of a granule's
};

class FillKeyBlocksGpu {
public:
    Halide::Var jb{"jb"}, ib{"ib"}, h{"h"}, b{"b"};

    explicit FillKeyBlocksGpu(const FillKeyBlocksInputs& in) : in_(in) {}

    // What the mask says of granule (jb, ib): 0 drops it.
    Halide::Expr granule() const {
        return in_.block_keep_mask(block_of(jb, in_.block_kv, in_.key_blocks),
                                   block_of(ib, in_.block_q, in_.query_blocks), h, b);
    }

private:
    // Halide doesn't see that a granule's block is one of the mask's.
    static Halide::Expr block_of(const Halide::Expr& granule, const Halide::Expr& size,
                                 const Halide::Expr& blocks) {
        return Halide::clamp(granule / Halide::max(size / kGranule, 1), 0, blocks - 1);
    }

    FillKeyBlocksInputs in_;
};

}  // namespace attnc
