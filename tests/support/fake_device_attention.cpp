// Attention of a fake device in plain C++.
#include <cmath>
#include <limits>

#include "runtime/attnc.h"
#include "tests/support/fake_device_parts.h"

namespace attnc::test {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The row of an item's key: by the table of runs, where the library has a cache.
class KeyRows {
public:
    KeyRows(const DeviceView& runs, const DeviceView& items) : runs_(runs), items_(items) {}
    int64_t operator()(int64_t b, int64_t j) const {
        if (runs_.data == nullptr) return items_.i(ATTNC_ITEM_KEY_ROW, b) + j;
        return runs_.i(j / ATTNC_RUN_KEYS, b) + j % ATTNC_RUN_KEYS;
    }

private:
    DeviceView runs_, items_;
};

// Scores of a launch.
class DeviceScores {
public:
    DeviceScores(const DeviceArguments& a, int kernel)
        : q(VIEW(Q)),
          k(VIEW(K)),
          items(VIEW(ITEMS)),
          rows_(VIEW(KEY_RUNS), VIEW(ITEMS)),
          scale_(REAL(QK_SCALE)) {
        if (kernel == ATTNC_DEVICE_KERNEL_ATTEND) return;
        flags_ = INTEGER(MASK_FLAGS);
        softcap_ = REAL(SOFTCAP);
        slopes_ = VIEW(ALIBI_SLOPES), key_bias_ = VIEW(KEY_BIAS), bias_ = VIEW(BIAS);
        keep_ = VIEW(KEEP_MASK), drop_ = VIEW(DROP_MASK);
        if (kernel != ATTNC_DEVICE_KERNEL_ATTEND_DECODE) blocks_ = VIEW(KEY_BLOCKS);
    }
    int64_t column(int c, int64_t b) const { return items.i(c, b); }
    int64_t kv_head(int64_t h) const { return h / (q.extent(2) / k.extent(2)); }
    int64_t key_row(int64_t b, int64_t j) const { return rows_(b, j); }
    // Of query i and key j of item b, -infinity where it is dropped.
    float operator()(int64_t b, int64_t h, int64_t i, int64_t j) const {
        const int64_t row = column(ATTNC_ITEM_QUERY_ROW, b) + i;
        if (j >= column(ATTNC_ITEM_KEYS, b) || j < i + column(ATTNC_ITEM_FIRST, b) ||
            j >= i + column(ATTNC_ITEM_LAST, b)) {
            return kMinusInfinity;
        }
        const int64_t key = key_row(b, j);
        double score = 0;
        for (int64_t d = 0; d < q.extent(0); ++d)
            score += static_cast<double>(q.f(d, row, h)) * static_cast<double>(k.f(d, key, kv_head(h)));
        score *= static_cast<double>(scale_);
        if (has(ATTNC_MASK_SOFTCAP)) {
            const auto cap = static_cast<double>(softcap_);
            score = cap * std::tanh(score / cap);
        }
        if (has(ATTNC_MASK_ALIBI)) {
            const int64_t distance = std::abs(i + column(ATTNC_ITEM_OWN_KEY, b) - j);
            score -= static_cast<double>(slopes_.f(h)) * static_cast<double>(distance);
        }
        if (has(ATTNC_MASK_BIAS)) score += static_cast<double>(bias_.f(j, i, h, b));
        if (has(ATTNC_MASK_KEY_BIAS)) score += static_cast<double>(key_bias_.f(j, b));
        const bool dropped = (has(ATTNC_MASK_KEEP) && keep_.at<uint8_t>(j, i, h, b) == 0) ||
                             (has(ATTNC_MASK_DROP) && drop_.at<uint8_t>(j, i, h, b) != 0) ||
                             (has(ATTNC_MASK_BLOCKS) && blocks_.at<uint8_t>(j / 16, i / 16, h, b) == 0);
        return dropped ? kMinusInfinity : static_cast<float>(score);
    }

    DeviceView q, k, items;

private:
    bool has(int flag) const { return (flags_ & flag) != 0; }
    KeyRows rows_;
    float scale_, softcap_ = 1;
    int32_t flags_ = 0;
    DeviceView slopes_, key_bias_, bias_, keep_, drop_, blocks_;
};

// A row's attention over keys first .. end; guarded: what is dropped isn't multiplied.
struct RowResult {
    std::vector<double> context;
    float largest = kMinusInfinity;
    double sum = 0;
};
RowResult attend_row(const DeviceScores& scores, const DeviceView& v, int64_t b, int64_t h, int64_t i,
                     int64_t first, int64_t end, bool guarded) {
    RowResult row;
    row.context.assign(static_cast<size_t>(v.extent(0)), 0);
    end = std::min(end, scores.column(ATTNC_ITEM_KEYS, b));
    std::vector<float> all;
    for (int64_t j = first; j < end; ++j) {
        all.push_back(scores(b, h, i, j));
        if (!(all.back() <= row.largest)) row.largest = all.back();
    }
    if (row.largest == kMinusInfinity) return row;
    for (int64_t block = first; block < end; block += kFakeDeviceTile) {
        const int64_t last = std::min(block + kFakeDeviceTile, end);
        const auto seen = [&](int64_t j) { return all[static_cast<size_t>(j - first)] != kMinusInfinity; };
        bool any = false;
        for (int64_t j = block; j < last; ++j) any = any || seen(j);
        for (int64_t j = block; any && j < last; ++j) {
            const double weight =
                seen(j) ? std::exp(static_cast<double>(all[static_cast<size_t>(j - first)] - row.largest))
                        : 0;
            row.sum += weight;
            if (guarded && !seen(j)) continue;
            const int64_t key = scores.key_row(b, j);
            for (int64_t d = 0; d < v.extent(0); ++d)
                row.context[static_cast<size_t>(d)] +=
                    weight * static_cast<double>(v.f(d, key, scores.kv_head(h)));
        }
    }
    for (double& value : row.context) value /= row.sum;
    return row;
}

void store_row(const RowResult& row, const DeviceView& context, const DeviceView& stats, int64_t h, int64_t m,
               int64_t split) {
    for (int64_t d = 0; d < context.extent(0); ++d)
        context.f(d, h, m, split) = static_cast<float>(row.context[static_cast<size_t>(d)]);
    stats.f(m, h, 0, split) = row.largest;
    stats.f(m, h, 1, split) = static_cast<float>(row.sum);
}

// row(b, h, i, m): all rows of items that are written; i is -1 where they don't count.
template <typename Row>
void for_rows(const DeviceView& items, int64_t heads, const Row& row) {
    for (int64_t b = 0; b < items.extent(1); ++b) {
        for (int64_t h = 0; h < heads; ++h) {
            for (int64_t i = 0; i < items.i(ATTNC_ITEM_ROWS, b); ++i)
                row(b, h, i < items.i(ATTNC_ITEM_QUERIES, b) ? i : -1, items.i(ATTNC_ITEM_QUERY_ROW, b) + i);
        }
    }
}

// value(b, h, i, j), with `outside` in rows that don't count.
template <typename Value>
void write_pairs(const DeviceView& to, const DeviceView& items, float outside, const Value& value) {
    for (int64_t b = 0; b < to.extent(3); ++b) {
        for (int64_t h = 0; h < to.extent(2); ++h) {
            for (int64_t i = 0; i < to.extent(1); ++i) {
                for (int64_t j = 0; j < to.extent(0); ++j)
                    to.f(j, i, h, b) = i < items.i(ATTNC_ITEM_QUERIES, b) ? value(b, h, i, j) : outside;
            }
        }
    }
}

}  // namespace

void attend(const DeviceArguments& a, int kernel) {
    const DeviceScores scores(a, kernel);
    const DeviceView v = VIEW(V), context = VIEW(CONTEXT), stats = VIEW(ROW_STATS);
    const bool guarded = kernel != ATTNC_DEVICE_KERNEL_ATTEND && kernel != ATTNC_DEVICE_KERNEL_ATTEND_MASKED;
    const bool decodes = kernel == ATTNC_DEVICE_KERNEL_ATTEND_DECODE;
    const bool again = kernel == ATTNC_DEVICE_KERNEL_ATTEND_GUARDED;
    const DeviceView suspects = again ? VIEW(SUSPECTS) : DeviceView();
    const int64_t splits = decodes ? context.extent(3) : 1;
    const int64_t keys = decodes ? kFakeDeviceSplit : std::numeric_limits<int32_t>::max();
    for_rows(scores.items, scores.q.extent(2), [&](int64_t b, int64_t h, int64_t i, int64_t m) {
        if (again && suspects.i(h, b) == 0) return;
        if (again && i == 0) ++fake_device_counts().heads_done_again;
        RowResult none;
        none.context.assign(static_cast<size_t>(v.extent(0)), 0);
        for (int64_t s = 0; s < splits; ++s) {
            store_row(i < 0 ? none : attend_row(scores, v, b, h, i, s * keys, (s + 1) * keys, guarded),
                      context, stats, h, m, s);
        }
    });
}

void attend_suspects(const DeviceArguments& a) {
    const DeviceView context = VIEW(CONTEXT), items = VIEW(ITEMS), suspects = VIEW(SUSPECTS);
    for (int64_t b = 0; b < items.extent(1); ++b) {
        for (int64_t h = 0; h < context.extent(1); ++h) suspects.i(h, b) = 0;
    }
    for_rows(items, context.extent(1), [&](int64_t b, int64_t h, int64_t i, int64_t m) {
        for (int64_t d = 0; i >= 0 && d < context.extent(0); ++d) {
            if (!std::isfinite(context.f(d, h, m))) suspects.i(h, b) = 1;
        }
    });
}

void attend_merge(const DeviceArguments& a) {
    const DeviceView from = VIEW(CONTEXTS), stats_in = VIEW(ROW_STATS_IN), sinks = VIEW(SINKS);
    const DeviceView to = VIEW(CONTEXT), stats = VIEW(ROW_STATS);
    for (int64_t m = 0; m < to.extent(2); ++m) {
        for (int64_t h = 0; h < to.extent(1); ++h) {
            float sink = kMinusInfinity;
            if (a.option()) sink = sinks.f(h);
            float largest = sink;
            for (int64_t s = 0; s < from.extent(3); ++s) {
                if (stats_in.f(m, h, 1, s) != 0 && !(stats_in.f(m, h, 0, s) <= largest))
                    largest = stats_in.f(m, h, 0, s);
            }
            RowResult row;
            row.context.assign(static_cast<size_t>(to.extent(0)), 0);
            row.largest = largest;
            const auto weight = [&](float score) { return std::exp(static_cast<double>(score - largest)); };
            if (sink != kMinusInfinity) row.sum += weight(sink);
            for (int64_t s = 0; s < from.extent(3); ++s) {
                if (stats_in.f(m, h, 1, s) == 0) continue;
                const double w = weight(stats_in.f(m, h, 0, s)) * static_cast<double>(stats_in.f(m, h, 1, s));
                row.sum += w;
                for (int64_t d = 0; d < to.extent(0); ++d)
                    row.context[static_cast<size_t>(d)] += w * static_cast<double>(from.f(d, h, m, s));
            }
            for (double& value : row.context) value = row.sum != 0 ? value / row.sum : 0;
            store_row(row, to, stats, h, m, 0);
        }
    }
}

void fill_empty(const DeviceArguments& a) {
    const DeviceView stats = VIEW(ROW_STATS_IN), v = VIEW(V), items = VIEW(ITEMS), context = VIEW(CONTEXT);
    const int64_t heads = context.extent(1), group = heads / v.extent(2);
    const KeyRows rows(VIEW(KEY_RUNS), items);
    for_rows(items, heads, [&](int64_t b, int64_t h, int64_t i, int64_t m) {
        if (i < 0 || stats.f(m, h, 1) != 0) return;
        const int64_t keys = items.i(ATTNC_ITEM_KEYS, b);
        for (int64_t d = 0; d < context.extent(0); ++d) {
            double value = std::numeric_limits<double>::quiet_NaN();
            if (INTEGER(EMPTY_ROWS) == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES) {
                value = 0;
                for (int64_t j = 0; j < keys; ++j)
                    value += static_cast<double>(v.f(d, rows(b, j), h / group));
                if (keys > 0) value /= static_cast<double>(keys);
            }
            context.f(d, h, m) = static_cast<float>(value);
        }
    });
}

void attend_lse(const DeviceArguments& a) {
    const DeviceView stats = VIEW(ROW_STATS_IN), items = VIEW(ITEMS), lse = VIEW(LSE);
    for (int64_t b = 0; b < lse.extent(2); ++b) {
        for (int64_t h = 0; h < lse.extent(1); ++h) {
            for (int64_t i = 0; i < lse.extent(0); ++i) {
                const int64_t m = items.i(ATTNC_ITEM_QUERY_ROW, b) + i;
                const bool counts = i < items.i(ATTNC_ITEM_QUERIES, b);
                const float sum = counts ? stats.f(m, h, 1) : 0.0F;
                lse.f(i, h, b) = sum == 0 ? kMinusInfinity : stats.f(m, h, 0) + std::log(sum);
            }
        }
    }
}

void attend_probs(const DeviceArguments& a) {
    const DeviceScores scores(a, ATTNC_DEVICE_KERNEL_ATTEND_PROBS);
    const DeviceView stats = VIEW(ROW_STATS_IN);
    const int32_t policy = INTEGER(EMPTY_ROWS);
    write_pairs(VIEW(PROBS), scores.items, 0, [&](int64_t b, int64_t h, int64_t i, int64_t j) {
        const int64_t m = scores.column(ATTNC_ITEM_QUERY_ROW, b) + i,
                      keys = scores.column(ATTNC_ITEM_KEYS, b);
        if (stats.f(m, h, 1) == 0) {
            if (policy == ATTNC_EMPTY_ROWS_NAN) return std::numeric_limits<float>::quiet_NaN();
            return policy == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES && j < keys ? 1 / static_cast<float>(keys)
                                                                         : 0.0F;
        }
        return std::exp(scores(b, h, i, j) - stats.f(m, h, 0)) / stats.f(m, h, 1);
    });
}

void attend_scores(const DeviceArguments& a) {
    const DeviceScores scores(a, ATTNC_DEVICE_KERNEL_ATTEND_SCORES);
    write_pairs(VIEW(SCORES), scores.items, 0,
                [&](int64_t b, int64_t h, int64_t i, int64_t j) { return scores(b, h, i, j); });
}

void average_probs(const DeviceArguments& a) {
    const DeviceView probs = VIEW(PROBS), averaged = VIEW(AVERAGED);
    for (int64_t b = 0; b < averaged.extent(2); ++b) {
        for (int64_t i = 0; i < averaged.extent(1); ++i) {
            for (int64_t j = 0; j < averaged.extent(0); ++j) {
                double sum = 0;
                for (int64_t h = 0; h < probs.extent(2); ++h) sum += static_cast<double>(probs.f(j, i, h, b));
                averaged.f(j, i, b) = static_cast<float>(sum / static_cast<double>(probs.extent(2)));
            }
        }
    }
}

}  // namespace attnc::test
