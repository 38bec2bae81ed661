// A layer as forward sees it: its numbers and its packed weights, all in one allocation, never changed after
// creation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/attnc.h"
#include "runtime/kernel_abi.h"

namespace attnc {

// How the columns of wq, wk or wv lie in panels, and so how heads come out of project_heads. A head is padded
// to `width` features; panels narrower than a head lie side by side in it, wider ones hold several heads.
struct HeadPanels {
    int64_t width;            // padded features of a head
    int64_t columns;          // of one head in one panel: min(panel, width)
    int64_t heads_per_panel;  // 1 where the panel is narrower
    int64_t panels_per_head;  // 1 where the panel is wider
    int64_t groups;           // of panels_per_head panels, each giving heads_per_panel heads
    int64_t planes() const { return heads_per_panel * groups; }  // heads, those of padding too
    int64_t panels() const { return panels_per_head * groups; }
};
HeadPanels head_panels(int64_t heads, int64_t width, int64_t panel);

// Weights and bias as the kernels take them: weights (n, k, p), bias (n, p).
struct PackedWeights {
    const float* panels;
    const float* bias;
    int64_t inner;  // k
    int64_t panel;  // n
    int64_t count;  // p
    int64_t panel_bytes() const { return inner * panel * static_cast<int64_t>(sizeof(float)); }
};

// How a layer rotates heads of q and k: by frequencies, or by a table of the caller's.
struct LayerRotary {
    int64_t pairs;  // of features that are rotated; 0: none
    int64_t
        stride;  // of cosines, and of sines, in a row of angles: pairs rounded up to half of ATTNC_HEAD_ALIGN
    double magnitude;       // multiplies cosines and sines
    const uint64_t* turns;  // [pairs], of one unit of position, in units of 2^-64
    const float* table;     // [table_rows][2 * stride]; null: frequencies
    int64_t table_rows;
};

int64_t padded_features(int64_t features);  // of a head: rounded up to ATTNC_HEAD_ALIGN

}  // namespace attnc

struct attnc_layer {
    attnc_allocator allocator;
    size_t bytes;  // of the allocation, which begins with this struct

    const attnc_library* library;
    const attnc_target_entry* target;  // of a CPU; null: the layer is on a device
    const attnc_device_entry* device;  // null: it runs on the CPU
    attnc_config config;
    attnc_layout layout;          // on a device tile_kv alone
    attnc_empty_rows empty_rows;  // zero where every row has an appended key or a sink
    float qk_scale;               // multiplies q k
    float softcap;                // of the scores; 0: none
    attnc_window window;          // which of the next two count
    int64_t window_left, window_right;
    int64_t scratch_bytes;  // the most that a call of a kernel takes
    int64_t max_rows;       // tokens of a batch item at most, so that no span of a kernel reaches 2 GiB

    int64_t qk_width, v_width;  // padded features of a head
    attnc::HeadPanels q_heads, k_heads, v_heads;
    attnc::PackedWeights wq, wk, wv, wo;

    int64_t appended;           // keys appended to those of a call
    const float* appended_k;    // [num_kv_heads][appended][qk_width]
    const float* appended_v;    // [num_kv_heads][appended][v_width]
    const float* sinks;         // [num_heads]; null: none
    const float* alibi_slopes;  // [num_heads]; null: none

    // Heads of q and k become x * norm / sqrt(sum of squares + norm_epsilon): head_dim is in both already.
    const float *q_norm, *k_norm;  // [qk_width]; null: not normalised
    float norm_epsilon;
    attnc::LayerRotary rotary;

    // Lengths, first rows and positions are the device's: what a call of a layer on one has there, nobody reads here.
    bool reads_numbers() const { return device == nullptr; }
    bool rotates() const { return rotary.pairs != 0; }
    bool changes_heads() const { return rotates() || q_norm != nullptr; }
    bool has(int64_t flag) const { return (config.flags & flag) != 0; }
    const attnc_kernel_entry& kernel(int id) const { return target->kernels[id]; }
};
