// Attention of a whole batch as GPU kernels take it: operands, calls of the twins, and what is right in float64.
#pragma once

#include <HalideBuffer.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace attnc::test {

using Floats = Halide::Runtime::Buffer<float>;
using Bytes = Halide::Runtime::Buffer<uint8_t>;
using Ints = Halide::Runtime::Buffer<int32_t>;

inline constexpr int kNoBound = 1 << 29;  // an interval without an end

struct GpuItem {
    int queries = 0, rows = 0;   // those that count, and those that are written
    int keys = 0, key_rows = 0;  // those that count, and rows in k and v
    int first = -kNoBound, last = kNoBound, own = 0;
};

struct AttentionSpec {
    int head_dim = 64, v_head_dim = 64, heads = 2, kv_heads = 2;
    std::vector<GpuItem> items;
    int mask_flags = 0;   // ATTNC_MASK_*
    float amplitude = 1;  // of q: 4 makes weights uneven
    float softcap = 5;
    bool heads_share_masks = false;  // one mask for all heads, by strides of 0
    bool blocks_apart = true;        // false: the block mask drops nothing
    bool sinks = false;              // each head has a sink
    std::string text() const;
};

// Operands of a spec, in host memory.
struct AttentionOperands {
    explicit AttentionOperands(const AttentionSpec& of);

    AttentionSpec spec;
    int rows, key_rows;  // of all items
    int seq_q, seq_kv;   // most rows and keys of an item
    float qk_scale;
    Floats q, k, v;  // (d, m, h); rows that don't count are NaN
    Ints items;      // (c, b)
    Floats key_bias, bias;
    Bytes keep_mask, drop_mask, key_blocks;
    Floats alibi_slopes, sinks;

    // Row of a query of an item in q, and of a key in k.
    int q_row(int item, int query) const { return items(0, item) + query; }
    int k_row(int item, int key) const { return items(3, item) + key; }
};

struct AttentionResults {
    Floats context;    // (d, h, m)
    Floats row_stats;  // (m, h, c)
};

// A kernel as a function of operands; the status of the call must be 0.
using AttendKernel = std::function<int(halide_buffer_t*, halide_buffer_t*, halide_buffer_t*, int32_t, int32_t,
                                       float, halide_buffer_t*, halide_buffer_t*, halide_buffer_t*)>;
AttentionResults call_attend(const AttendKernel& kernel, AttentionOperands& in);
using MaskedKernel = std::function<int(halide_buffer_t*, halide_buffer_t*, halide_buffer_t*, int32_t, int32_t,
                                       float, halide_buffer_t*, halide_buffer_t*, halide_buffer_t*,
                                       halide_buffer_t*, halide_buffer_t*, int32_t, halide_buffer_t*, float,
                                       halide_buffer_t*, halide_buffer_t*, halide_buffer_t*)>;
AttentionResults call_masked(const MaskedKernel& kernel, AttentionOperands& in);
// The same without masks of blocks, in splits of keys: contexts (d, h, m, split), row_stats (m, h, c, split).
using DecodeKernel =
    std::function<int(halide_buffer_t*, halide_buffer_t*, halide_buffer_t*, int32_t, int32_t, float,
                      halide_buffer_t*, halide_buffer_t*, halide_buffer_t*, halide_buffer_t*, int32_t,
                      halide_buffer_t*, float, halide_buffer_t*, halide_buffer_t*, halide_buffer_t*)>;
AttentionResults call_decode(const DecodeKernel& kernel, AttentionOperands& in, int split_kv);

// One query of one head in float64: scores as softmax takes them (-infinity: dropped), and what follows.
struct ExactRow {
    std::vector<double> scores, context;
    double largest = 0, sum = 0;  // of exp(score - largest); 0: sees no key
    double magnitude = 0;         // the largest S of docs/numerics.md
    double values = 0;            // largest |v| of a key that is seen
};
ExactRow exact_row(const AttentionOperands& in, int item, int head, int query);

// Blocks that are joined, of so many keys at most.
struct JoinedBlocks {
    int keys, blocks;
};
// Of the default schedule, for so many keys.
JoinedBlocks blocks_of(const AttentionSpec& spec, int seq_kv);
// Empty, or the first element that is outside of its bound.
std::string context_fault(const AttentionOperands& in, const AttentionResults& got,
                          const JoinedBlocks& joined);

// What every kernel is tried on: more than two blocks of keys, odd sizes, grouped heads, lengths of 0, diagonals, windows.
std::vector<AttentionSpec> plain_specs(int head_dim, int v_head_dim);
// The same with masks, biases and steps of scores.
std::vector<AttentionSpec> masked_specs(int head_dim, int v_head_dim);

}  // namespace attnc::test
