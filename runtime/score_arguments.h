// What every kernel takes that scores some queries of a head against some keys.
#pragma once

#include "runtime/attend.h"
#include "runtime/call.h"

namespace attnc {

// q, k, the scale, and which keys a query sees. Refers to the layer of `wave`.
class ScoreArguments {
public:
    ScoreArguments(const Wave& wave, const QueryRange& range, const HeadRows& keys, int64_t key_count,
                   const KernelInterval& seen)
        : ScoreArguments(wave.layer, query_rows(wave, range), range.rows, keys, key_count, seen) {}

    void set(KernelCall& call) {
        call.set(ATTNC_ARGUMENT_Q, q_);
        call.set(ATTNC_ARGUMENT_K, k_);
        call.set(ATTNC_ARGUMENT_QK_SCALE, layer_.qk_scale);
        call.set(ATTNC_ARGUMENT_FIRST_KEY, seen_.first_key);
        call.set(ATTNC_ARGUMENT_LAST_KEY, seen_.last_key);
    }

private:
    ScoreArguments(const attnc_layer& layer, const HeadRows& queries, int64_t query_count,
                   const HeadRows& keys, int64_t key_count, const KernelInterval& seen)
        : layer_(layer),
          q_(queries.data, kFloat32, {{layer.qk_width, 1}, {query_count, queries.row_stride}}),
          k_(keys.data, kFloat32, {{layer.qk_width, 1}, {key_count, keys.row_stride}}),
          seen_(seen) {}

    const attnc_layer& layer_;
    Buffer<2> q_, k_;
    KernelInterval seen_;
};

}  // namespace attnc
