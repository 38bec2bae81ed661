// Parts of the float64 reference: what happens to heads of q and k between projection and scores. RMS normalisation
// (Zhang and Sennrich 2019) over the features of a head, then rotary position embedding (Su et al. 2021).
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/attnc.h"
#include "stages/config.h"
#include "support/reference_rows.h"

namespace attnc {

// Each head of `rows` becomes x / sqrt(mean(x^2) + epsilon) * weight; its error bounds follow.
void norm_heads(Rows& rows, int64_t head_dim, const attnc_tensor& weight, double epsilon);

// How a layer rotates: which features go together, and the angle of a pair for each unit of position, or the caller's
// table of cosines and sines.
struct Rotation {
    int64_t head_dim = 0, dim = 0;
    Rotary layout = Rotary::kNone;
    double magnitude = 1;
    std::vector<long double> frequencies;  // [dim / 2]; empty: the table
    attnc_tensor cos{}, sin{};             // F32 [positions, dim / 2]

    // Features of pair i.
    int64_t first(int64_t i) const { return layout == Rotary::kPairs ? 2 * i : i; }
    int64_t second(int64_t i) const { return layout == Rotary::kPairs ? 2 * i + 1 : i + dim / 2; }
};
Rotation rotation_of(const Config& config, const attnc_weights& weights, const attnc_rotary& options);

// Rotates each head of row n by the angles of positions[n]; error bounds follow. Features past `dim` stay.
void rotate_heads(Rows& rows, const Rotation& rotation, const std::vector<int64_t>& positions);

}  // namespace attnc
