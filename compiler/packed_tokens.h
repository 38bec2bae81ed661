// A padded call as a packed batch: the valid rows of its items one after another.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/attnc.h"
#include "support/reference.h"

namespace attnc {

// Keeps the memory of a packed call. Tokens of the padded one have rank 3 or 4, with a query, a key and a value.
class PackedCall {
public:
    explicit PackedCall(const attnc_inputs& padded);
    PackedCall(const PackedCall&) = delete;
    PackedCall& operator=(const PackedCall&) = delete;

    const attnc_inputs& inputs() const { return inputs_; }
    int64_t query_rows() const { return query_starts_.back(); }

    // `out` of the packed call, [rows, features] or [heads, rows, features], as the padded call has it.
    void unpack(const attnc_tensor& out, const attnc_tensor& padded) const;

private:
    attnc_tensor pack(const attnc_tensor& tokens, const std::vector<int64_t>& starts);

    std::vector<int64_t> query_starts_, key_starts_;
    std::vector<std::vector<float>> memory_;
    attnc_inputs inputs_;
};

}  // namespace attnc
