// Masks and biases of a call, as the kernels take them.
#pragma once

#include "runtime/call.h"
#include "runtime/key_blocks.h"
#include "runtime/stage.h"

namespace attnc {

// Joins everything that is given per key into one number for each key of an item: -inf where a key is
// dropped.
WorkList key_addend_work(const Wave& wave);

// Where a mask begins for some queries and keys.
struct MaskSource {
    const void* data;
    int64_t head_stride, query_stride, key_stride;
};
// `size`: bytes of an element.
MaskSource mask_source(const MaskView& view, const Item& item, int64_t head, int64_t row, int64_t key,
                       int64_t size);
// The numbers per key, where the call has some (MaskUse::key_addend).
MaskSource key_addend_source(const Wave& wave, const Item& item, int64_t key);

// What a kernel takes for the steps between scaled scores and softmax, for `rows` queries from `row` of head `head`, and
// `keys` keys from `key` or the appended ones. Those have no place in masks, nor a distance for ALiBi, but a soft cap.
class MaskArguments {
public:
    struct Range {
        int64_t row, rows, key, keys;
        bool appended;
        KeyBlockMap blocks = {};
    };
    MaskArguments(const Wave& wave, const Item& item, int64_t head, const Range& range);

    // ATTNC_MASK_* of a call's keys or of the appended ones; 0: attend without masks does the same.
    static int32_t flags_of(const Wave& wave, bool appended);

    void keep_flags(int32_t flags) { flags_ &= flags; }  // of the steps that are taken at all

    void set(KernelCall& call) {
        call.set(ATTNC_ARGUMENT_KEY_BIAS, key_bias_);
        call.set(ATTNC_ARGUMENT_BIAS, bias_);
        call.set(ATTNC_ARGUMENT_KEEP_MASK, keep_);
        call.set(ATTNC_ARGUMENT_DROP_MASK, drop_);
        call.set(ATTNC_ARGUMENT_KEY_BLOCKS, key_blocks_);
        call.set(ATTNC_ARGUMENT_MASK_FLAGS, flags_);
        call.set(ATTNC_ARGUMENT_SOFTCAP, softcap_);
        call.set(ATTNC_ARGUMENT_ALIBI_SLOPE, alibi_slope_);
        call.set(ATTNC_ARGUMENT_OWN_KEY, own_key_);
    }

private:
    friend class GroupMaskArguments;
    static MaskSource source_of(const MaskView& view, bool used, const Item& item, int64_t head,
                                const Range& range, int64_t size);
    static MaskSource key_source(const Wave& wave, const Item& item, const Range& range);
    MaskArguments(const MaskSource& key_bias, const MaskSource& bias, const MaskSource& keep,
                  const MaskSource& drop, const Range& range, int32_t flags);

    Buffer<1> key_bias_;
    Buffer<2> bias_, keep_, drop_, key_blocks_;
    int32_t flags_;
    float softcap_ = 1, alibi_slope_ = 0;
    int32_t own_key_ = 0;
};

// The same of attend_decode, for `heads` heads from `head`.
class GroupMaskArguments {
public:
    // `drop` stands for the call's drop mask: (key, query, head), dense; null: the call's own.
    GroupMaskArguments(const Wave& wave, const Item& item, int64_t head, int64_t heads,
                       const MaskArguments::Range& range, const uint8_t* drop);

    void set(KernelCall& call) {
        call.set(ATTNC_ARGUMENT_KEY_BIAS, key_bias_);
        call.set(ATTNC_ARGUMENT_BIAS, bias_);
        call.set(ATTNC_ARGUMENT_KEEP_MASK, keep_);
        call.set(ATTNC_ARGUMENT_DROP_MASK, drop_);
        call.set(ATTNC_ARGUMENT_MASK_FLAGS, flags_);
        call.set(ATTNC_ARGUMENT_SOFTCAP, softcap_);
        call.set(ATTNC_ARGUMENT_ALIBI_SLOPES, alibi_slopes_);
        call.set(ATTNC_ARGUMENT_OWN_KEY, own_key_);
    }

private:
    GroupMaskArguments(const Wave& wave, const Item& item, int64_t head, int64_t heads,
                       const MaskArguments::Range& range, const MaskSource& key_bias, const MaskSource& bias,
                       const MaskSource& keep, const MaskSource& drop);

    Buffer<1> key_bias_;
    Buffer<3> bias_, keep_, drop_;
    Buffer<1> alibi_slopes_;
    int32_t flags_, own_key_;
    float softcap_;
};

}  // namespace attnc
