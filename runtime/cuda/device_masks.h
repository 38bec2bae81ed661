// What attention's kernels take for scores and masks, of some items and heads of a wave.
#pragma once

#include "runtime/arithmetic.h"
#include "runtime/cuda/device_wave.h"

namespace attnc::cuda {

// Items and heads of a launch; items count from the wave's first.
struct Slice {
    int64_t item, items, head, heads;
};

inline Slice whole_wave(const DeviceWave& w) { return {0, w.items, 0, w.layer.config.num_heads}; }

// Calls launch(slice) for parts of a slice whose heads' K and V a kernel can be given.
template <typename Launch>
attnc_status for_heads(const DeviceWave& w, const Slice& all, const Launch& launch) {
    Slice s = all;
    for (s.head = all.head; s.head < all.head + all.heads; s.head += s.heads) {
        s.heads = least(w.plan.launch_heads, all.head + all.heads - s.head);
        ATTNC_TRY(launch(s));
    }
    return ATTNC_OK;
}

// Calls launch(slice) for all items and heads, as many at a time as buffers with an element for each pair of query and key
// can have. Heads of a slice have whole heads of K and V, or share one.
template <typename Launch>
attnc_status for_slices(const DeviceWave& w, const Launch& launch) {
    const int64_t heads = w.layer.config.num_heads, group = w.layer.group();
    const int64_t most_heads = least(w.plan.pair_heads, w.plan.launch_heads);
    Slice s = {};
    for (s.item = 0; s.item < w.items; s.item += s.items) {
        s.items = least(w.plan.pair_items, w.items - s.item);
        for (s.head = 0; s.head < heads; s.head += s.heads) {
            const int64_t left = most_heads < group ? group - s.head % group : heads - s.head;
            s.heads = least(most_heads, left);
            ATTNC_TRY(launch(s));
        }
    }
    return ATTNC_OK;
}

// Keys that queries are put against: the call's, or one that is appended to those of every item.
struct Keys {
    const ItemTable& table;
    const float *k, *v;
    int64_t rows, k_row, v_row;  // and how far apart those are, in elements
    int64_t k_plane, v_plane;    // heads
    int64_t seq;                 // of an item at most
    int32_t flags;               // ATTNC_MASK_*
    const int32_t* key_runs;     // of the wave's items, so many for each, where the library has them
    int64_t runs;
};
Keys call_keys(const DeviceWave& wave);
Keys appended_key(const DeviceWave& wave, int64_t index);
Keys score_keys(const DeviceWave& wave);  // for the scores that are asked for

Buffer<2> item_buffer(const DeviceWave& wave, const ItemTable& table, const Slice& slice);
Buffer<3> value_buffer(const DeviceWave& wave, const Keys& keys, const Slice& slice);
Buffer<2> runs_buffer(const DeviceWave& wave, const Keys& keys, const Slice& slice);

class ScoreArguments {
public:
    ScoreArguments(const DeviceWave& wave, const Keys& keys, const Slice& slice);
    void set(DeviceCall& call) {
        call.set(ATTNC_DEVICE_ARGUMENT_Q, q_);
        call.set(ATTNC_DEVICE_ARGUMENT_K, k_);
        call.set(ATTNC_DEVICE_ARGUMENT_ITEMS, items_);
        call.set(ATTNC_DEVICE_ARGUMENT_SEQ_Q, seq_q_);
        call.set(ATTNC_DEVICE_ARGUMENT_SEQ_KV, seq_kv_);
        call.set(ATTNC_DEVICE_ARGUMENT_QK_SCALE, qk_scale_);
        call.set(ATTNC_DEVICE_ARGUMENT_KEY_RUNS, key_runs_);
    }

private:
    Buffer<3> q_, k_;
    Buffer<2> items_, key_runs_;
    int32_t seq_q_, seq_kv_;
    float qk_scale_;
};

class MaskArguments {
public:
    MaskArguments(const DeviceWave& wave, const Keys& keys, const Slice& slice);
    void set(DeviceCall& call) {
        call.set(ATTNC_DEVICE_ARGUMENT_KEY_BIAS, key_bias_);
        call.set(ATTNC_DEVICE_ARGUMENT_BIAS, bias_);
        call.set(ATTNC_DEVICE_ARGUMENT_KEEP_MASK, keep_);
        call.set(ATTNC_DEVICE_ARGUMENT_DROP_MASK, drop_);
        call.set(ATTNC_DEVICE_ARGUMENT_KEY_BLOCKS, key_blocks_);
        call.set(ATTNC_DEVICE_ARGUMENT_MASK_FLAGS, flags_);
        call.set(ATTNC_DEVICE_ARGUMENT_SOFTCAP, softcap_);
        call.set(ATTNC_DEVICE_ARGUMENT_ALIBI_SLOPES, alibi_slopes_);
    }

private:
    Buffer<2> key_bias_;
    Buffer<4> bias_, keep_, drop_, key_blocks_;
    Buffer<1> alibi_slopes_;
    int32_t flags_;
    float softcap_;
};

}  // namespace attnc::cuda
