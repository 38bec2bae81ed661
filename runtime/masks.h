// Masks and biases of a call, as the kernels take them.
#pragma once

#include "runtime/call.h"
#include "runtime/stage.h"

namespace attnc {

// Joins everything that is given per key into one number for each key of an item: -inf where a key is
// dropped.
WorkList key_addend_work(const Wave& wave);

// The four mask arguments of a kernel for `rows` queries from `row` of head `head`, and `keys` keys from
// `key`.
class MaskArguments {
public:
    struct Range {
        int64_t row, rows, key, keys;
    };
    MaskArguments(const Wave& wave, const Item& item, int64_t head, const Range& range);
    // None read, for a call without masks of a kernel that takes them.
    explicit MaskArguments(const Range& range);

    void set(KernelCall& call) {
        call.set(ATTNC_ARGUMENT_KEY_BIAS, key_bias_);
        call.set(ATTNC_ARGUMENT_BIAS, bias_);
        call.set(ATTNC_ARGUMENT_KEEP_MASK, keep_);
        call.set(ATTNC_ARGUMENT_DROP_MASK, drop_);
        call.set(ATTNC_ARGUMENT_MASK_FLAGS, flags_);
    }

private:
    struct Source {
        const void* data;
        int64_t query_stride, key_stride;
    };
    static Source source_of(const MaskView& view, bool used, const Item& item, int64_t head,
                            const Range& range, int64_t size);
    static Source key_source(const Wave& wave, const Item& item, const Range& range);
    MaskArguments(const Source& key_bias, const Source& bias, const Source& keep, const Source& drop,
                  const Range& range, int32_t flags);

    Buffer<1> key_bias_;
    Buffer<2> bias_, keep_, drop_;
    int32_t flags_;
};

}  // namespace attnc
