#include "runtime/cuda/device_masks.h"

#include "runtime/cuda/device_key_masks.h"
#include "runtime/key_blocks.h"
#include "runtime/plan.h"

namespace attnc::cuda {
namespace {

// Of the items and heads of a slice of a wave; a mask that isn't read is any memory, all elements in one place.
struct MaskSizes {
    int64_t keys, queries;
};
Buffer<4> mask_buffer(const DeviceWave& w, const MaskView& view, bool used, HalideType type, const Slice& s,
                      const MaskSizes& sizes) {
    if (!used) {
        return Buffer<4>(on_device(w.layer.anything()), type,
                         {{sizes.keys, 0}, {sizes.queries, 0}, {s.heads, 0}, {s.items, 0}});
    }
    const int64_t first = (s.item * view.batch_stride + s.head * view.head_stride) * (type.bits / 8);
    return Buffer<4>(on_device(static_cast<const unsigned char*>(view.data) + first), type,
                     {{sizes.keys, view.key_stride},
                      {sizes.queries, view.query_stride},
                      {s.heads, view.head_stride},
                      {s.items, view.batch_stride}});
}

Buffer<2> key_mask_buffer(const DeviceWave& w, const MaskView& view, bool used, const Slice& s,
                          int64_t keys) {
    if (!used) return Buffer<2>(on_device(w.layer.anything()), kFloat32, {{keys, 0}, {s.items, 0}});
    return Buffer<2>(on_device(static_cast<const float*>(view.data) + s.item * view.batch_stride), kFloat32,
                     {{keys, view.key_stride}, {s.items, view.batch_stride}});
}

// The number that is added per key: made of the call's masks, or the caller's own.
MaskView key_bias_of(const DeviceWave& w) {
    if (w.plan.made_key_bias.present) return made_key_bias(w);
    const MaskView* in_place = use_masks(w.request).in_place;
    return in_place != nullptr ? w.of_wave(*in_place, kFloat) : MaskView{};
}

MaskView key_blocks_of(const DeviceWave& w) {
    return w.plan.made_key_blocks.present ? made_key_blocks(w) : w.of_wave(w.request.block_keep_mask.view, 1);
}

// The first head of K and V that some heads have, and how many.
int64_t kv_head(const DeviceWave& w, const Slice& s) { return s.head / w.layer.group(); }
int64_t kv_heads(const DeviceWave& w, const Slice& s) { return most(s.heads / w.layer.group(), 1); }

}  // namespace

Keys call_keys(const DeviceWave& w) {
    const int64_t qk = w.layer.qk_width, v = w.layer.v_width, rows = most(w.keys.rows(), 1);
    const CacheRows at = w.plan.cached ? cache_rows(w) : CacheRows{.k = w.k, .v = w.v, .rows = rows};
    return {.table = w.plan.call,
            .k = at.k,
            .v = at.v,
            .rows = at.rows,
            .k_row = qk,
            .v_row = v,
            .k_plane = at.rows * qk,
            .v_plane = at.rows * v,
            .seq = most(w.request.seq_kv, 1),
            .flags = w.plan.mask_flags,
            .key_runs = w.at<int32_t>(w.plan.key_runs),
            .runs = w.plan.runs};
}

Keys appended_key(const DeviceWave& w, int64_t index) {
    const int64_t qk = w.layer.qk_width, v = w.layer.v_width, appended = w.layer.appended;
    const int32_t flags = w.layer.softcap != 0 ? ATTNC_MASK_SOFTCAP : 0;
    // Each item has a row of its own, all in one place.
    return {.table = w.plan.appended,
            .k = w.layer.appended_k + index * qk,
            .v = w.layer.appended_v + index * v,
            .rows = w.items,
            .k_row = 0,
            .v_row = 0,
            .k_plane = appended * qk,
            .v_plane = appended * v,
            .seq = 1,
            .flags = flags,
            .key_runs = w.at<int32_t>(w.plan.appended_runs),
            .runs = least(w.plan.runs, 1)};
}

Keys score_keys(const DeviceWave& w) {
    const Keys keys = call_keys(w);
    const int32_t steps = w.request.scores_stage == ATTNC_SCORES_SCALED       ? 0
                          : w.request.scores_stage == ATTNC_SCORES_SOFTCAPPED ? ATTNC_MASK_SOFTCAP
                                                                              : ~0;
    return {.table = w.plan.opens ? w.plan.open : w.plan.call,
            .k = keys.k,
            .v = keys.v,
            .rows = keys.rows,
            .k_row = keys.k_row,
            .v_row = keys.v_row,
            .k_plane = keys.k_plane,
            .v_plane = keys.v_plane,
            .seq = keys.seq,
            .flags = keys.flags & steps,
            .key_runs = keys.key_runs,
            .runs = keys.runs};
}

Buffer<2> item_buffer(const DeviceWave& w, const ItemTable& table, const Slice& s) {
    return Buffer<2>(on_device(w.at<int32_t>(table.items) + s.item * ATTNC_ITEM_COLUMNS), kInt32,
                     {{ATTNC_ITEM_COLUMNS, 1}, {s.items, ATTNC_ITEM_COLUMNS}});
}

Buffer<3> value_buffer(const DeviceWave& w, const Keys& keys, const Slice& s) {
    return Buffer<3>(on_device(keys.v + kv_head(w, s) * keys.v_plane), kFloat32,
                     {{w.layer.v_width, 1}, {keys.rows, keys.v_row}, {kv_heads(w, s), keys.v_plane}});
}

Buffer<2> runs_buffer(const DeviceWave& w, const Keys& keys, const Slice& s) {
    if (keys.runs == 0) return Buffer<2>(on_device(w.layer.anything()), kInt32, {{1, 1}, {s.items, 0}});
    return Buffer<2>(on_device(keys.key_runs + s.item * keys.runs), kInt32,
                     {{keys.runs, 1}, {s.items, keys.runs}});
}

ScoreArguments::ScoreArguments(const DeviceWave& w, const Keys& keys, const Slice& s)
    : q_(on_device(w.q + s.head * w.queries.rows() * w.layer.qk_width), kFloat32,
         {{w.layer.qk_width, 1},
          {w.queries.rows(), w.layer.qk_width},
          {s.heads, w.queries.rows() * w.layer.qk_width}}),
      k_(on_device(keys.k + kv_head(w, s) * keys.k_plane), kFloat32,
         {{w.layer.qk_width, 1}, {keys.rows, keys.k_row}, {kv_heads(w, s), keys.k_plane}}),
      items_(on_device(w.at<int32_t>(keys.table.items) + s.item * ATTNC_ITEM_COLUMNS), kInt32,
             {{ATTNC_ITEM_COLUMNS, 1}, {s.items, ATTNC_ITEM_COLUMNS}}),
      key_runs_(runs_buffer(w, keys, s)),
      seq_q_(static_cast<int32_t>(w.request.seq_q)),
      seq_kv_(static_cast<int32_t>(keys.seq)),
      qk_scale_(w.layer.qk_scale) {}

MaskArguments::MaskArguments(const DeviceWave& w, const Keys& keys, const Slice& s)
    : key_bias_(key_mask_buffer(w, key_bias_of(w), (keys.flags & ATTNC_MASK_KEY_BIAS) != 0, s, keys.seq)),
      bias_(mask_buffer(w, w.of_wave(w.request.bias, kFloat), (keys.flags & ATTNC_MASK_BIAS) != 0, kFloat32,
                        s, {keys.seq, w.request.seq_q})),
      keep_(mask_buffer(w, w.of_wave(w.request.keep_mask, 1), (keys.flags & ATTNC_MASK_KEEP) != 0, kUint8, s,
                        {keys.seq, w.request.seq_q})),
      drop_(mask_buffer(w, w.of_wave(w.request.drop_mask, 1), (keys.flags & ATTNC_MASK_DROP) != 0, kUint8, s,
                        {keys.seq, w.request.seq_q})),
      key_blocks_(mask_buffer(w, key_blocks_of(w), (keys.flags & ATTNC_MASK_BLOCKS) != 0, kUint8, s,
                              {divide_up(keys.seq, kGranule), divide_up(w.request.seq_q, kGranule)})),
      alibi_slopes_(
          on_device(w.layer.alibi_slopes != nullptr ? w.layer.alibi_slopes + s.head
                                                    : static_cast<const float*>(w.layer.anything())),
          kFloat32, {{s.heads, w.layer.alibi_slopes != nullptr ? 1 : 0}}),
      flags_(keys.flags),
      softcap_(w.layer.softcap != 0 ? w.layer.softcap : 1) {}

}  // namespace attnc::cuda
