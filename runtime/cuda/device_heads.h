// Heads between tokens and attention, each function a launch, or one for each item: split, normalised, rotated, merged.
#pragma once

#include "runtime/cuda/device_wave.h"

namespace attnc::cuda {

struct Heads {
    int64_t heads, features, width;  // features of a head, and with its padding
};

// Planes of rows for each head, changed where they lie.
struct HeadPlanes {
    const float* data;
    int64_t rows, heads, width;
    Buffer<3> buffer() const {
        return Buffer<3>(on_device(data), kFloat32, {{width, 1}, {rows, width}, {heads, rows * width}});
    }
};

// Cosines, then sines, of all rows of a side.
struct Angles {
    float* data;
    int64_t pairs, rows;
    Buffer<2> cosines() const { return Buffer<2>(on_device(data), kFloat32, {{pairs, 1}, {rows, pairs}}); }
    Buffer<2> sines() const {
        return Buffer<2>(on_device(data + pairs * rows), kFloat32, {{pairs, 1}, {rows, pairs}});
    }
};

// Rows of heads in any order, to be merged.
struct MergedHeads {
    const float* data;
    Heads heads;
    int64_t head_stride, row_stride;
};

attnc_status split_heads(const DeviceWave& wave, const TokenRows& tokens, const TokenView& view,
                         const Heads& heads, float* to);
attnc_status merge_heads(const DeviceWave& wave, const TokenRows& tokens, const MergedHeads& from,
                         const OutView& out);
attnc_status norm_planes(const DeviceWave& wave, const HeadPlanes& planes, const float* norm);
// By the positions of rows, or counted from `first_row` behind the item's offset.
attnc_status make_angles(const DeviceWave& wave, const TokenRows& tokens, const RowNumbers& positions,
                         int64_t first_row, const Angles& angles);
attnc_status rotate_planes(const DeviceWave& wave, const HeadPlanes& planes, const Angles& angles);

}  // namespace attnc::cuda
