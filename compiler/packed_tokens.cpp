#include "compiler/packed_tokens.h"

#include <algorithm>

#include "support/reference_rows.h"

namespace attnc {

namespace {

// Where each item's rows begin, and where the last one's end. Without lengths all rows count.
std::vector<int64_t> starts_of(const attnc_tensor& lengths, int64_t batch, int64_t rows) {
    std::vector<int64_t> starts = {0};
    for (int64_t item = 0; item < batch; ++item)
        starts.push_back(starts.back() + (is_given(lengths) ? integer(lengths, {item}) : rows));
    return starts;
}

// Element of padded tokens, by head; heads of rank 3 are one.
float* at(const attnc_tensor& t, int64_t item, int64_t head, int64_t row, int64_t feature) {
    const int64_t offset = t.rank == 3
                               ? item * t.stride[0] + row * t.stride[1] + feature
                               : item * t.stride[0] + head * t.stride[1] + row * t.stride[2] + feature;
    return static_cast<float*>(t.data) + offset;
}
float* packed_at(const attnc_tensor& t, int64_t head, int64_t row, int64_t feature) {
    return static_cast<float*>(t.data) +
           (t.rank == 2 ? row * t.stride[0] : head * t.stride[0] + row * t.stride[1]) + feature;
}

}  // namespace

PackedCall::PackedCall(const attnc_inputs& padded) : inputs_(padded) {
    const int64_t batch = padded.query.extent[0];
    query_starts_ = starts_of(padded.query_lengths, batch, sequence_of(padded.query));
    key_starts_ = starts_of(padded.key_lengths, batch, sequence_of(padded.key));
    inputs_.query = pack(padded.query, query_starts_);
    inputs_.key = pack(padded.key, key_starts_);
    inputs_.value = pack(padded.value, key_starts_);
    inputs_.query_lengths = inputs_.key_lengths = {};
    inputs_.query_cu_seqlens = attnc_tensor_1d(ATTNC_I64, query_starts_.data(), batch + 1);
    inputs_.key_cu_seqlens = attnc_tensor_1d(ATTNC_I64, key_starts_.data(), batch + 1);
}

attnc_tensor PackedCall::pack(const attnc_tensor& tokens, const std::vector<int64_t>& starts) {
    const int64_t rows = starts.back();
    const int64_t heads = tokens.rank == 3 ? 1 : tokens.extent[1];
    const int64_t features = tokens.extent[tokens.rank - 1];
    std::vector<float>& values = memory_.emplace_back(static_cast<size_t>(heads * rows * features));
    values.reserve(1);  // a pointer that is not null
    const attnc_tensor packed = tokens.rank == 3
                                    ? attnc_tensor_2d(ATTNC_F32, values.data(), rows, features)
                                    : attnc_tensor_3d(ATTNC_F32, values.data(), heads, rows, features);
    for (size_t item = 0; item + 1 < starts.size(); ++item) {
        for (int64_t row = starts[item]; row < starts[item + 1]; ++row) {
            for (int64_t head = 0; head < heads; ++head) {
                const float* from = at(tokens, static_cast<int64_t>(item), head, row - starts[item], 0);
                std::copy_n(from, features, packed_at(packed, head, row, 0));
            }
        }
    }
    return packed;
}

void PackedCall::unpack(const attnc_tensor& out, const attnc_tensor& padded) const {
    const int64_t heads = padded.rank == 3 ? 1 : padded.extent[1];
    const int64_t features = padded.extent[padded.rank - 1];
    for (size_t item = 0; item + 1 < query_starts_.size(); ++item) {
        for (int64_t row = query_starts_[item]; row < query_starts_[item + 1]; ++row) {
            for (int64_t head = 0; head < heads; ++head) {
                std::copy_n(packed_at(out, head, row, 0), features,
                            at(padded, static_cast<int64_t>(item), head, row - query_starts_[item], 0));
            }
        }
    }
}

}  // namespace attnc
