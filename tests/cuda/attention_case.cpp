#include "tests/cuda/attention_case.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernel_abi.h"
#include "schedules/cuda_params.h"
#include "support/random.h"
#include "support/tolerance.h"
#include "tests/cuda/opencl.h"

namespace attnc::test {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kColumns = 8, kGranule = 16;

// OpenCL's exp2 is within 3 ulp, six roundings; docs/numerics.md counts five.
constexpr double kMoreOfPower = 1 * kSecondOrder * kUnitRoundoff;

// Bytes that are 0 for one pair in `of`.
Bytes random_bytes(const std::vector<int>& extents, uint64_t seed, uint64_t of) {
    Bytes made(extents);
    for (size_t n = 0; n < made.number_of_elements(); ++n)
        made.data()[n] = mixed_bits(seed, n) % of != 0 ? 1 : 0;
    return made;
}

// Where heads share a mask, the first one's for all of them.
template <typename T>
void share_heads(Halide::Runtime::Buffer<T>& mask, const AttentionSpec& spec) {
    if (spec.heads_share_masks) mask.raw_buffer()->dim[2].stride = 0;
}

}  // namespace

std::string AttentionSpec::text() const {
    std::string list;
    for (const GpuItem& item : items) {
        list += fmt::format(" {}/{}q {}/{}k [{},{})", item.queries, item.rows, item.keys, item.key_rows,
                            item.first, item.last);
    }
    return fmt::format("hd{} vhd{} h{} kv{} flags {} amplitude {}:{}", head_dim, v_head_dim, heads, kv_heads,
                       mask_flags, amplitude, list);
}

AttentionOperands::AttentionOperands(const AttentionSpec& of)
    : spec(of), rows(0), key_rows(0), seq_q(1), seq_kv(1) {
    const int count = static_cast<int>(spec.items.size());
    items = Ints(std::vector<int>{kColumns, count});
    for (int b = 0; b < count; ++b) {
        const GpuItem& item = spec.items[static_cast<size_t>(b)];
        const int columns[kColumns] = {rows,      item.queries, item.rows, key_rows,
                                       item.keys, item.first,   item.last, item.own};
        for (int c = 0; c < kColumns; ++c) items(c, b) = columns[c];
        rows += item.rows;
        key_rows += item.key_rows;
        seq_q = std::max(seq_q, item.rows);
        seq_kv = std::max(seq_kv, item.keys);
    }
    qk_scale = 1 / std::sqrt(static_cast<float>(spec.head_dim));
    q = random_floats({spec.head_dim, rows, spec.heads}, 1, spec.amplitude);
    k = random_floats({spec.head_dim, key_rows, spec.kv_heads}, 2, 1);
    v = random_floats({spec.v_head_dim, key_rows, spec.kv_heads}, 3, 1);
    for (int b = 0; b < count; ++b) {
        const GpuItem& item = spec.items[static_cast<size_t>(b)];
        for (int key = item.keys; key < item.key_rows; ++key) {
            for (int h = 0; h < spec.kv_heads; ++h) {
                for (int d = 0; d < spec.head_dim; ++d) k(d, k_row(b, key), h) = kNan;
                for (int d = 0; d < spec.v_head_dim; ++d) v(d, k_row(b, key), h) = kNan;
            }
        }
        for (int query = item.queries; query < item.rows; ++query) {
            for (int h = 0; h < spec.heads; ++h) {
                for (int d = 0; d < spec.head_dim; ++d) q(d, q_row(b, query), h) = kNan;
            }
        }
    }
    key_bias = random_floats({seq_kv, count}, 4, 1);
    bias = random_floats({seq_kv, seq_q, spec.heads, count}, 5, 2);
    keep_mask = random_bytes({seq_kv, seq_q, spec.heads, count}, 6, 3);
    drop_mask = random_bytes({seq_kv, seq_q, spec.heads, count}, 7, 4);
    for (size_t n = 0; n < drop_mask.number_of_elements(); ++n)
        drop_mask.data()[n] = drop_mask.data()[n] == 0 ? 1 : 0;
    const int row_granules = (seq_q + kGranule - 1) / kGranule,
              key_granules = (seq_kv + kGranule - 1) / kGranule;
    key_blocks =
        random_bytes({key_granules, row_granules, spec.heads, count}, 8, spec.blocks_apart ? 2 : 1000);
    // Rows that a mask leaves nothing, and -infinity among the biases.
    for (int j = 0; j < seq_kv; ++j) keep_mask(j, seq_q / 2, spec.heads - 1, count - 1) = 0;
    for (int j = 0; j < seq_kv; j += 5) bias(j, 0, 0, 0) = -kInfinity;
    for (int j = 0; j < seq_kv; ++j) bias(j, seq_q - 1, 0, 0) = -kInfinity;
    if (seq_kv > 2) key_bias(1, 0) = -kInfinity;
    alibi_slopes = random_floats({spec.heads}, 9, 0.5F);
    sinks = random_floats({spec.heads}, 10, 4);
    share_heads(bias, spec);
    share_heads(keep_mask, spec);
    share_heads(drop_mask, spec);
    share_heads(key_blocks, spec);
    for (halide_buffer_t* operand :
         {q.raw_buffer(), k.raw_buffer(), v.raw_buffer(), items.raw_buffer(), key_bias.raw_buffer(),
          bias.raw_buffer(), keep_mask.raw_buffer(), drop_mask.raw_buffer(), key_blocks.raw_buffer(),
          alibi_slopes.raw_buffer(), sinks.raw_buffer()}) {
        operand->set_host_dirty();
    }
}

AttentionResults call_attend(const AttendKernel& kernel, AttentionOperands& in) {
    const AttentionSpec& spec = in.spec;
    AttentionResults out = {
        .context = filled<float, Halide::Runtime::AnyDims>({spec.v_head_dim, spec.heads, in.rows}, kNan),
        .row_stats = filled<float, Halide::Runtime::AnyDims>({in.rows, spec.heads, 2}, kNan)};
    EXPECT_EQ(
        kernel(in.q, in.k, in.items, in.seq_q, in.seq_kv, in.qk_scale, in.v, out.context, out.row_stats), 0);
    EXPECT_EQ(out.context.copy_to_host(), 0);
    EXPECT_EQ(out.row_stats.copy_to_host(), 0);
    return out;
}

AttentionResults call_masked(const MaskedKernel& kernel, AttentionOperands& in) {
    const AttentionSpec& spec = in.spec;
    AttentionResults out = {
        .context = filled<float, Halide::Runtime::AnyDims>({spec.v_head_dim, spec.heads, in.rows}, kNan),
        .row_stats = filled<float, Halide::Runtime::AnyDims>({in.rows, spec.heads, 2}, kNan)};
    EXPECT_EQ(kernel(in.q, in.k, in.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias, in.bias,
                     in.keep_mask, in.drop_mask, in.key_blocks, spec.mask_flags, in.v, spec.softcap,
                     in.alibi_slopes, out.context, out.row_stats),
              0);
    EXPECT_EQ(out.context.copy_to_host(), 0);
    EXPECT_EQ(out.row_stats.copy_to_host(), 0);
    return out;
}

AttentionResults call_decode(const DecodeKernel& kernel, AttentionOperands& in, int split_kv) {
    const AttentionSpec& spec = in.spec;
    const int splits = std::max(1, (in.seq_kv + split_kv - 1) / split_kv);
    AttentionResults out = {
        .context =
            filled<float, Halide::Runtime::AnyDims>({spec.v_head_dim, spec.heads, in.rows, splits}, kNan),
        .row_stats = filled<float, Halide::Runtime::AnyDims>({in.rows, spec.heads, 2, splits}, kNan)};
    EXPECT_EQ(kernel(in.q, in.k, in.items, in.seq_q, in.seq_kv, in.qk_scale, in.key_bias, in.bias,
                     in.keep_mask, in.drop_mask, spec.mask_flags, in.v, spec.softcap, in.alibi_slopes,
                     out.context, out.row_stats),
              0);
    EXPECT_EQ(out.context.copy_to_host(), 0);
    EXPECT_EQ(out.row_stats.copy_to_host(), 0);
    return out;
}

ExactRow exact_row(const AttentionOperands& in, int item, int head, int query) {
    const AttentionSpec& spec = in.spec;
    const GpuItem& own = spec.items[static_cast<size_t>(item)];
    const int kv_head = head / (spec.heads / spec.kv_heads), flags = spec.mask_flags;
    ExactRow row;
    std::vector<double> magnitudes;
    for (int j = 0; j < own.keys; ++j) {
        double score = 0, magnitude = 0;
        for (int d = 0; d < spec.head_dim; ++d) {
            const double term = double{in.q(d, in.q_row(item, query), head)} *
                                double{in.k(d, in.k_row(item, j), kv_head)} * double{in.qk_scale};
            score += term;
            magnitude += std::fabs(term);
        }
        if ((flags & ATTNC_MASK_SOFTCAP) != 0) score = spec.softcap * std::tanh(score / spec.softcap);
        if ((flags & ATTNC_MASK_ALIBI) != 0) {
            const double alibi = double{in.alibi_slopes(head)} * std::abs(query + own.own - j);
            score -= alibi;
            magnitude += std::fabs(alibi);
        }
        const auto add = [&](double bias) {
            score += bias;
            if (!std::isinf(bias)) magnitude += std::fabs(bias);
        };
        if ((flags & ATTNC_MASK_BIAS) != 0) add(in.bias(j, query, head, item));
        if ((flags & ATTNC_MASK_KEY_BIAS) != 0) add(in.key_bias(j, item));
        const bool dropped = j < query + own.first || j >= query + own.last ||
                             ((flags & ATTNC_MASK_KEEP) != 0 && in.keep_mask(j, query, head, item) == 0) ||
                             ((flags & ATTNC_MASK_DROP) != 0 && in.drop_mask(j, query, head, item) != 0) ||
                             ((flags & ATTNC_MASK_BLOCKS) != 0 &&
                              in.key_blocks(j / kGranule, query / kGranule, head, item) == 0);
        row.scores.push_back(dropped ? -std::numeric_limits<double>::infinity() : score);
        magnitudes.push_back(magnitude);
    }
    row.context.assign(static_cast<size_t>(spec.v_head_dim), 0.0);
    row.largest = -std::numeric_limits<double>::infinity();
    for (const double score : row.scores) row.largest = std::max(row.largest, score);
    if (spec.sinks) {
        const double sink = in.sinks(head);
        row.largest = std::max(row.largest, sink);
        row.sum = std::exp(sink - row.largest);
        row.magnitude = std::fabs(sink);
    }
    for (int j = 0; j < own.keys; ++j) {
        const double score = row.scores[static_cast<size_t>(j)];
        if (std::isinf(score)) continue;
        const double weight = std::exp(score - row.largest);
        row.sum += weight;
        row.magnitude = std::max(row.magnitude, magnitudes[static_cast<size_t>(j)]);
        for (int d = 0; d < spec.v_head_dim; ++d) {
            const double value = in.v(d, in.k_row(item, j), kv_head);
            row.context[static_cast<size_t>(d)] += weight * value;
            row.values = std::max(row.values, std::fabs(value));
        }
    }
    for (double& value : row.context) value = row.sum > 0 ? value / row.sum : 0;
    return row;
}

JoinedBlocks blocks_of(const AttentionSpec& spec, int seq_kv) {
    Config config;
    config.d_model = spec.head_dim;
    config.num_heads = 1;
    config.v_head_dim = spec.v_head_dim;
    const int keys = static_cast<int>(default_cuda_schedule(complete(config)).layout.tile_kv);
    return {.keys = keys, .blocks = (seq_kv + keys - 1) / keys};
}

std::string context_fault(const AttentionOperands& in, const AttentionResults& got,
                          const JoinedBlocks& joined) {
    const AttentionSpec& spec = in.spec;
    for (int b = 0; b < static_cast<int>(spec.items.size()); ++b) {
        const GpuItem& item = spec.items[static_cast<size_t>(b)];
        for (int h = 0; h < spec.heads; ++h) {
            for (int i = 0; i < item.rows; ++i) {
                const int m = in.q_row(b, i);
                const std::string place = fmt::format("item {} head {} query {}", b, h, i);
                const ExactRow want = i < item.queries ? exact_row(in, b, h, i) : ExactRow{};
                const AttentionTerms terms = {
                    .head_dim = spec.head_dim,
                    .score_steps = score_steps((spec.mask_flags & ATTNC_MASK_SOFTCAP) != 0,
                                               (spec.mask_flags & ATTNC_MASK_ALIBI) != 0),
                    .keys = std::min(joined.keys, std::max(item.keys, 1)),
                    .blocks = joined.blocks,
                    .scores = want.magnitude,
                    .values = want.values};
                const double more = kMoreOfPower * (1 + joined.blocks);
                const double bound = attention_error_bound(terms) + more * want.values;
                for (int d = 0; d < spec.v_head_dim; ++d) {
                    const double wanted = want.sum > 0 ? want.context[static_cast<size_t>(d)] : 0;
                    const double value = got.context(d, h, m);
                    if (!(std::fabs(value - wanted) <= (want.sum > 0 ? bound : 0))) {
                        return fmt::format("{}: {} feature {}: got {}, wanted {} within {}", spec.text(),
                                           place, d, value, wanted, bound);
                    }
                }
                if (spec.sinks && i >= item.queries) continue;  // whose statistics nobody reads
                const double sum = got.row_stats(m, h, 1);
                if (want.sum == 0) {
                    if (sum != 0)
                        return fmt::format("{}: {} sees no key, and its sum is {}", spec.text(), place, sum);
                    continue;
                }
                const double lse = double{got.row_stats(m, h, 0)} + std::log(sum);
                const double wanted = want.largest + std::log(want.sum),
                             of_lse = lse_error_bound(terms) + more;
                if (!(sum >= 1) || !(std::fabs(lse - wanted) <= of_lse)) {
                    return fmt::format("{}: {} lse: got {}, wanted {} within {}; sum {}", spec.text(), place,
                                       lse, wanted, of_lse, sum);
                }
            }
        }
    }
    return "";
}

std::vector<AttentionSpec> plain_specs(int head_dim, int v_head_dim) {
    const AttentionSpec base = {.head_dim = head_dim, .v_head_dim = v_head_dim, .items = {}};
    std::vector<AttentionSpec> specs;
    const auto add = [&](std::vector<GpuItem> items, int heads, int kv_heads, float amplitude) {
        AttentionSpec spec = base;
        spec.items = std::move(items);
        spec.heads = heads;
        spec.kv_heads = kv_heads;
        spec.amplitude = amplitude;
        specs.push_back(spec);
    };
    // One of each: a single key; whole tiles and blocks; more than two blocks with a ragged end; lengths, with items of no
    // query and of no key; diagonals of both corners and beside them; windows that drop whole blocks.
    add({{.queries = 1, .rows = 1, .keys = 1, .key_rows = 1}}, 2, 2, 1);
    add({{.queries = 64, .rows = 64, .keys = 256, .key_rows = 256}}, 1, 1, 1);
    add({{.queries = 50, .rows = 50, .keys = 333, .key_rows = 333}}, 2, 1, 8);
    add({{.queries = 5, .rows = 9, .keys = 300, .key_rows = 310},
         {.queries = 0, .rows = 3, .keys = 7, .key_rows = 7},
         {.queries = 33, .rows = 33, .keys = 0, .key_rows = 2},
         {.queries = 40, .rows = 41, .keys = 129, .key_rows = 150}},
        4, 2, 4);
    add({{.queries = 129, .rows = 129, .keys = 129, .key_rows = 129, .last = 1},
         {.queries = 70, .rows = 70, .keys = 200, .key_rows = 200, .last = 131},
         {.queries = 70, .rows = 70, .keys = 300, .key_rows = 300, .last = -20}},
        1, 1, 2);
    add({{.queries = 65, .rows = 65, .keys = 400, .key_rows = 400, .first = 200, .last = 241}}, 2, 2, 2);
    return specs;
}

std::vector<AttentionSpec> masked_specs(int head_dim, int v_head_dim) {
    const std::vector<int> flags = {ATTNC_MASK_KEY_BIAS | ATTNC_MASK_KEEP,
                                    ATTNC_MASK_BIAS,
                                    ATTNC_MASK_DROP | ATTNC_MASK_SOFTCAP,
                                    ATTNC_MASK_ALIBI | ATTNC_MASK_BLOCKS,
                                    ATTNC_MASK_SOFTCAP | ATTNC_MASK_ALIBI | ATTNC_MASK_BIAS |
                                        ATTNC_MASK_KEY_BIAS | ATTNC_MASK_KEEP | ATTNC_MASK_DROP |
                                        ATTNC_MASK_BLOCKS,
                                    0};
    std::vector<AttentionSpec> specs = plain_specs(head_dim, v_head_dim);
    for (size_t n = 0; n < specs.size(); ++n) {
        specs[n].mask_flags = flags[(n + 3) % flags.size()];
        specs[n].heads_share_masks = n % 2 == 1;
        for (GpuItem& item : specs[n].items) item.own = item.keys - item.queries;
    }
    return specs;
}

}  // namespace attnc::test
