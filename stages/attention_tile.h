// Sizes that the definitions of the two-pass attention depend on.
#pragma once

#include <cstdint>

namespace attnc {

// Queries lie in the lanes of vectors, 16 to a vector, keys in rows.
constexpr int kQueryLanes = 16;

// Keys and queries of one element of a block mask.
constexpr int kGranule = 16;

struct AttentionTile {
    int rows = 64;         // queries of a tile
    int q_vectors = 4;     // vectors of queries: rows <= 16 * q_vectors
    int key_rows = 6;      // keys whose scores leave the registers together
    int tail_rows = 2;     // the same at the edges of what is visible; divides key_rows
    int context_rows = 8;  // queries whose contexts are summed together; divides rows
};

}  // namespace attnc
