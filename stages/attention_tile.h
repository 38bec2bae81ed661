// Sizes that the definitions of the two-pass attention depend on.
#pragma once

#include <cstdint>

namespace attnc {

// Queries lie in the lanes of vectors, 16 to a vector, keys in rows.
constexpr int kQueryLanes = 16;

// Keys and queries of one element of a block mask.
constexpr int kGranule = 16;

// Keys whose bytes of a keep or drop mask are one word.
constexpr int kWordKeys = 4;

// Visible keys of a tile of queries, and the steps that its scores take. Filled once per tile; with masks, once for
// each run of its keys too, where the loops are over runs: one, or the columns of the block mask.
enum TileBound {
    kFirstKey,  // keys [first, end) are visible to some query of the tile
    kEndKey,
    kLeftFirst,  // steps of tail_rows keys [first, end) with the test for visibility, left of the full ones
    kLeftEnd,
    kFullFirst,  // steps of key_rows keys [first, end) that every query of the tile sees
    kFullEnd,
    kRightFirst,  // steps of tail_rows keys, right of them
    kRightEnd,
    kTileBounds
};

// Keys that some of context_rows queries see. Filled once for each group of so many.
enum GroupBound {
    kGroupFirst,  // keys [first, left end): one by one, up to a multiple of in_line
    kGroupLeftEnd,
    kGroupFullFirst,  // steps of in_line keys
    kGroupFullEnd,
    kGroupRightFirst,  // keys [first, end) right of them
    kGroupEnd,
    kGroupBounds
};

struct AttentionTile {
    int rows = 64;         // queries of a tile
    int q_vectors = 4;     // vectors of queries: rows <= 16 * q_vectors
    int key_rows = 6;      // keys whose scores leave the registers together
    int tail_rows = 2;     // the same at the edges of what is visible; divides key_rows
    int context_rows = 8;  // queries whose contexts are summed together; divides rows
    int in_line = 1;       // features of scores, and keys of contexts, that stand in line; divides kGranule
};

}  // namespace attnc
