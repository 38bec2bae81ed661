// Masks of a wave in the forms that attention takes: all that is given per key as one number to add, and blocks of any size as
// granules.
#include "runtime/cuda/device_key_masks.h"

#include "runtime/arithmetic.h"
#include "runtime/key_blocks.h"

namespace attnc::cuda {
namespace {

// One that isn't read is any memory.
Buffer<2> per_key(const DeviceWave& w, const MaskView& view, bool read, HalideType type, int64_t item,
                  int64_t items) {
    const int64_t keys = w.request.seq_kv, size = type.bits / 8;
    if (!read) return Buffer<2>(on_device(w.layer.anything()), type, {{keys, 0}, {items, 0}});
    const auto* first = static_cast<const unsigned char*>(w.of_wave(view, size).data);
    return Buffer<2>(on_device(first + item * view.batch_stride * size), type,
                     {{keys, view.key_stride}, {items, view.batch_stride}});
}

attnc_status fill_key_bias(const DeviceWave& w, int64_t item, int64_t items) {
    const Request& r = w.request;
    const MaskView to = made_key_bias(w);
    int32_t given = 0;
    const auto input = [&](const MaskView& view, int32_t flag, HalideType type) {
        const bool read = view.present && view.per_key;
        if (read) given |= flag;
        return per_key(w, view, read, type, item, items);
    };
    Buffer<2> bias = input(r.bias, ATTNC_GIVEN_BIAS, kFloat32);
    Buffer<2> key_bias_in = input(r.key_bias, ATTNC_GIVEN_KEY_BIAS, kFloat32);
    Buffer<2> keep = input(r.keep_mask, ATTNC_GIVEN_KEEP_MASK, kUint8);
    Buffer<2> key_keep = input(r.key_keep_mask, ATTNC_GIVEN_KEY_KEEP_MASK, kUint8);
    Buffer<2> drop = input(r.drop_mask, ATTNC_GIVEN_DROP_MASK, kUint8);
    Buffer<2> key_drop = input(r.key_drop_mask, ATTNC_GIVEN_KEY_DROP_MASK, kUint8);
    Buffer<2> key_bias(on_device(static_cast<const float*>(to.data) + item * to.batch_stride), kFloat32,
                       {{r.seq_kv, 1}, {items, to.batch_stride}});
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_BIAS, bias);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_BIAS_IN, key_bias_in);
    call.set(ATTNC_DEVICE_ARGUMENT_KEEP_MASK, keep);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_KEEP_MASK, key_keep);
    call.set(ATTNC_DEVICE_ARGUMENT_DROP_MASK, drop);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_DROP_MASK, key_drop);
    call.set(ATTNC_DEVICE_ARGUMENT_GIVEN, given);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_BIAS, key_bias);
    return w.run(ATTNC_DEVICE_KERNEL_FILL_KEY_BIAS, call);
}

struct BlockSlice {
    int64_t item, items, head, heads;
};

attnc_status fill_key_blocks(const DeviceWave& w, const BlockSlice& s) {
    const Request& r = w.request;
    const BlockMask& mask = r.block_keep_mask;
    const MaskView from = w.of_wave(mask.view, 1), to = made_key_blocks(w);
    const auto buffer = [&](const MaskView& view, int64_t keys, int64_t queries) {
        const int64_t first = s.item * view.batch_stride + s.head * view.head_stride;
        return Buffer<4>(on_device(static_cast<const unsigned char*>(view.data) + first), kUint8,
                         {{keys, view.key_stride},
                          {queries, view.query_stride},
                          {s.heads, view.head_stride},
                          {s.items, view.batch_stride}});
    };
    // A block that is larger than an item's queries, or keys, is one of all of them.
    const int64_t all_queries = divide_up(r.seq_q, kGranule) * kGranule;
    const int64_t all_keys = divide_up(r.seq_kv, kGranule) * kGranule;
    const int64_t rows = least(mask.block_q, all_queries), columns = least(mask.block_kv, all_keys);
    const auto block_q = static_cast<int32_t>(rows), block_kv = static_cast<int32_t>(columns);
    Buffer<4> block_keep_mask = buffer(from, divide_up(r.seq_kv, columns), divide_up(r.seq_q, rows));
    Buffer<4> key_blocks = buffer(to, all_keys / kGranule, all_queries / kGranule);
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_BLOCK_KEEP_MASK, block_keep_mask);
    call.set(ATTNC_DEVICE_ARGUMENT_BLOCK_Q, block_q);
    call.set(ATTNC_DEVICE_ARGUMENT_BLOCK_KV, block_kv);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_BLOCKS, key_blocks);
    return w.run(ATTNC_DEVICE_KERNEL_FILL_KEY_BLOCKS, call);
}

// What is the same for all items, or heads, is made once.
attnc_status fill_all_key_bias(const DeviceWave& w) {
    const int64_t all = w.plan.made_key_bias.batch_stride != 0 ? w.items : 1, step = w.plan.pair_items;
    for (int64_t item = 0; item < all; item += step)
        ATTNC_TRY(fill_key_bias(w, item, least(step, all - item)));
    return ATTNC_OK;
}

attnc_status fill_all_key_blocks(const DeviceWave& w) {
    const MaskView& made = w.plan.made_key_blocks;
    const int64_t all_items = made.batch_stride != 0 ? w.items : 1;
    const int64_t all_heads = made.head_stride != 0 ? w.layer.config.num_heads : 1;
    BlockSlice s = {};
    for (s.item = 0; s.item < all_items; s.item += s.items) {
        s.items = least(w.plan.pair_items, all_items - s.item);
        for (s.head = 0; s.head < all_heads; s.head += s.heads) {
            s.heads = least(w.plan.pair_heads, all_heads - s.head);
            ATTNC_TRY(fill_key_blocks(w, s));
        }
    }
    return ATTNC_OK;
}

}  // namespace

attnc_status make_masks(const DeviceWave& w) {
    if (w.plan.made_key_bias.present) ATTNC_TRY(fill_all_key_bias(w));
    return w.plan.made_key_blocks.present ? fill_all_key_blocks(w) : ATTNC_OK;
}

}  // namespace attnc::cuda
