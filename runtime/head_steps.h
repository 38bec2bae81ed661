// What is done to heads of q and k after they are projected or split, while they are in cache: RMS normalisation, then
// rotation. Each row by itself.
#pragma once

#include "runtime/rotary.h"

namespace attnc {

struct HeadSteps {
    const float* norm_weight;  // null: not normalised
    AngleRows angles;

    bool any() const { return norm_weight != nullptr || angles.data != nullptr; }
};

// Rows of heads in the workspace, qk_width features each.
struct HeadBlock {
    float* data;
    int64_t rows, heads;
    int64_t head_stride;
};

// In place. `first_row` is the first row of angles. False when a kernel refused, which is then named in `refused`.
bool run_head_steps(const attnc_layer& layer, const HeadSteps& steps, const HeadBlock& block,
                    int64_t first_row, attnc_task& task, const char** refused);

}  // namespace attnc
