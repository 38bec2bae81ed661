// Positions of rows, and the cosines and sines that rotate them: made once for each row of a wave, before projections.
#pragma once

#include "runtime/stage.h"

namespace attnc {

// Rows of angles: cosines of all pairs, then sines, each part LayerRotary::stride floats long. null: nothing is rotated.
struct AngleRows {
    const float* data;
    int64_t stride;

    int64_t row_stride() const { return 2 * stride; }
    const float* cos(int64_t row) const { return data + row * row_stride(); }
    const float* sin(int64_t row) const { return cos(row) + stride; }
};

// The position of an item's first row of this call, where the call gives no position for each row.
int64_t first_position(const Request& request, int64_t item);

// Of a row of the item, which has one.
int64_t position_of(const Request& request, bool keys, int64_t item, int64_t row);

// Whether a wave's keys are rotated by its queries' angles: the same rows at the same positions.
bool keys_share_angles(const Wave& wave);

// Where the angles of a wave's rows of queries, or of keys, are; rows are numbered as the wave's are.
AngleRows angles_of(const Wave& wave, bool keys);

// Writes the angles of `count` rows at `positions`. False when the kernel refused.
bool make_angles(const attnc_layer& layer, const int32_t* positions, int64_t count, float* to,
                 attnc_task& task);

// A wave's angles; nothing for a layer without a rotary embedding.
WorkList query_angles_work(const Wave& wave);
WorkList key_angles_work(const Wave& wave);

}  // namespace attnc
