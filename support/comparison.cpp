#include "support/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "runtime/kernel_abi.h"
#include "support/tolerance.h"

namespace attnc {
namespace {

// How much of what is allowed a difference uses; more than 1 is outside.
double used(double got, double want, double allowed) {
    constexpr double kOutside = std::numeric_limits<double>::infinity();
    if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : kOutside;
    if (std::isinf(want) || std::isinf(got)) return got == want ? 0 : kOutside;
    const double difference = std::fabs(got - want);
    if (difference == 0) return 0;
    return difference <= allowed ? difference / allowed : std::max(difference / allowed, 1.0 + 0x1p-40);
}

// What the errors of all heads' contexts come to in one output, and the output projection's own.
double out_bound(const Config& config, const Reference& want, const RowBounds& bounds, int64_t index) {
    const int64_t feature = index % want.out_features;
    const int64_t token = index / want.out_features;
    const auto of_head = [&](int64_t head) {
        return bounds.context[static_cast<size_t>((token / want.seq_q * want.num_heads + head) * want.seq_q +
                                                  token % want.seq_q)];
    };
    if (!config.out_proj) return of_head(feature / want.v_head_dim);
    double inherited = 0;
    for (int64_t head = 0; head < want.num_heads; ++head) {
        inherited += of_head(head) * want.wo_sum[static_cast<size_t>(head * want.out_features + feature)];
    }
    return output_error_bound(config.num_heads * config.v_head_dim, inherited, 1.0,
                              want.out_error[static_cast<size_t>(index)]);
}

}  // namespace

std::string Comparison::text() const {
    char line[200];
    std::snprintf(line, sizeof(line),
                  "%lld of %lld outside; worst at %lld: got %.9g, want %.9g, allowed %.3g",
                  static_cast<long long>(outside), static_cast<long long>(count),
                  static_cast<long long>(index), got, want, allowed);
    return line;
}

Comparison compare(std::span<const double> got, std::span<const double> want,
                   const std::function<double(int64_t)>& allowed) {
    Comparison result;
    result.count = static_cast<int64_t>(want.size());
    if (got.size() != want.size()) {
        result.outside = std::max<int64_t>(1, std::abs(static_cast<int64_t>(got.size()) - result.count));
        return result;
    }
    double worst = -1;
    for (size_t n = 0; n < want.size(); ++n) {
        const double tolerance = allowed(static_cast<int64_t>(n));
        const double part = used(got[n], want[n], tolerance);
        if (part > 1) ++result.outside;
        if (part > worst) {
            worst = part;
            result.index = static_cast<int64_t>(n);
            result.got = got[n];
            result.want = want[n];
            result.allowed = tolerance;
        }
    }
    return result;
}

Comparison compare(std::span<const double> got, const Expected& want) {
    return compare(got, want.values, [&](int64_t n) {
        return want.atol + want.rtol * std::fabs(want.values[static_cast<size_t>(n)]);
    });
}

std::string LayerComparison::text() const {
    std::string all;
    for (const auto& [name, part] : {std::pair("out", &out), std::pair("context", &context),
                                     std::pair("probs", &probs), std::pair("probs_averaged", &probs_averaged),
                                     std::pair("lse", &lse), std::pair("scores", &scores)}) {
        if (!part->ok()) all += std::string(all.empty() ? "" : "\n") + name + ": " + part->text();
    }
    return all;
}

RowBounds row_bounds(const Config& config, const Reference& want, const KeyBlocks& blocks) {
    const int64_t appended = want.appended;
    const int64_t seq_kv = want.keys - appended;
    AttentionTerms terms;
    terms.head_dim = config.head_dim;
    terms.score_steps = want.score_steps;
    RowBounds bounds;
    for (size_t row = 0; row < want.lse.size(); ++row) {
        const size_t item = row / static_cast<size_t>(want.num_heads * want.seq_q);
        const int64_t queries = item < want.queries.size() ? want.queries[item] : want.seq_q;
        const bool few = config.cache && queries <= ATTNC_DECODE_QUERIES;
        const int64_t block = few ? blocks.split_kv : blocks.tile_kv;
        terms.keys = std::max(std::min(seq_kv, block), appended);
        terms.blocks = std::max<int64_t>(
            1, (seq_kv + block - 1) / block + (appended > 0 ? 1 : 0) + (config.sink ? 1 : 0));
        terms.scores = want.score_size[row];
        terms.values = want.value_size[row];
        terms.score_error = want.score_error[row];
        terms.value_error = want.value_error[row];
        bounds.context.push_back(attention_error_bound(terms));
        bounds.probs.push_back(probs_error_bound(terms));
        bounds.lse.push_back(lse_error_bound(terms));
    }
    return bounds;
}

LayerComparison compare_layer(const Config& config, const Reference& got, const Reference& want,
                              const KeyBlocks& blocks) {
    const RowBounds bounds = row_bounds(config, want, blocks);
    LayerComparison result;
    const auto by_row = [](const std::vector<double>& rows, int64_t width) {
        return [&rows, width](int64_t n) { return rows[static_cast<size_t>(n / width)]; };
    };
    if (!got.context.empty())
        result.context = compare(got.context, want.context, by_row(bounds.context, want.v_head_dim));
    if (!got.lse.empty()) result.lse = compare(got.lse, want.lse, by_row(bounds.lse, 1));
    if (!got.probs.empty()) result.probs = compare(got.probs, want.probs, by_row(bounds.probs, want.keys));
    if (!got.probs_averaged.empty()) {
        result.probs_averaged = compare(got.probs_averaged, want.probs_averaged, [&](int64_t n) {
            const int64_t token = n / want.keys;
            double sum = 0;
            for (int64_t head = 0; head < want.num_heads; ++head) {
                sum += bounds.probs[static_cast<size_t>(
                    (token / want.seq_q * want.num_heads + head) * want.seq_q + token % want.seq_q)];
            }
            const auto heads = static_cast<double>(want.num_heads);
            return sum / heads + kSecondOrder * kUnitRoundoff * (heads + 1);
        });
    }
    if (!got.scores.empty()) {
        result.scores = compare(got.scores, want.scores, [&](int64_t n) {
            const auto at = static_cast<size_t>(n);
            return score_error_bound(config.head_dim, want.score_steps, want.scores_size[at],
                                     want.scores_error[at]);
        });
    }
    if (!got.out.empty()) {
        result.out =
            compare(got.out, want.out, [&](int64_t n) { return out_bound(config, want, bounds, n); });
    }
    return result;
}

}  // namespace attnc
