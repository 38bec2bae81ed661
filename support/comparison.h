// Comparison of results with right values under a tolerance, for tests and for checks that the command runs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "support/case_file.h"
#include "support/reference.h"

namespace attnc {

// The element that is furthest outside what it is allowed, or, if none is, the one that uses most of it.
struct Comparison {
    int64_t count = 0;    // of elements
    int64_t outside = 0;  // of those that are not as they must be
    int64_t index = -1;   // of the worst element
    double got = 0, want = 0, allowed = 0;

    bool ok() const { return outside == 0; }
    std::string text() const;  // "17 of 100 outside; worst at 5: got ..., want ..., allowed ..."
};

// NaN is right where NaN is wanted and nowhere else, infinities must be equal; elsewhere |got - want| <=
// allowed(n).
Comparison compare(std::span<const double> got, std::span<const double> want,
                   const std::function<double(int64_t)>& allowed);
Comparison compare(std::span<const double> got, const Expected& want);

// Keys that a library attends together, from its layout: in a block, and in a split where an item has few queries.
struct KeyBlocks {
    KeyBlocks(int64_t tile) : tile_kv(tile), split_kv(tile) {}  // of a library without a cache
    KeyBlocks(int64_t tile, int64_t split) : tile_kv(tile), split_kv(split) {}
    int64_t tile_kv, split_kv;
};

// Bounds on the errors of each row of the attention, [batch, num_heads, seq_q].
struct RowBounds {
    std::vector<double> context, probs, lse;
};
RowBounds row_bounds(const Config& config, const Reference& want, const KeyBlocks& blocks);

// A float32 result against the float64 one under the bounds of tolerance.h. Only what `got` holds is compared: empty vectors are skipped.
struct LayerComparison {
    Comparison out, context, probs, probs_averaged, lse, scores;
    bool ok() const {
        return out.ok() && context.ok() && probs.ok() && probs_averaged.ok() && lse.ok() && scores.ok();
    }
    std::string text() const;  // of the parts that are outside
};
LayerComparison compare_layer(const Config& config, const Reference& got, const Reference& want,
                              const KeyBlocks& blocks);

}  // namespace attnc
