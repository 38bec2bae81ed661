#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "tests/support/fake_call.h"
#include "tests/support/fake_kernels.h"
#include "tests/support/fake_library.h"

namespace attnc::test::fake {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The steps of a score after its scaling, in float32 after each as in real kernels.
struct ScoreSteps {
    int32_t flags = 0;
    double softcap = 1;

    // What the steps take for one score; read where the flags say so.
    struct Values {
        float slope_times_distance, bias, key_bias;
        uint8_t keep, drop;
    };
    bool has(int32_t flag) const { return (flags & flag) != 0; }
    // -inf where the key is dropped.
    double after(float score, const Values& values) const {
        constexpr float kLowest = std::numeric_limits<float>::lowest();
        if (has(ATTNC_MASK_SOFTCAP))
            score = static_cast<float>(softcap * std::tanh(static_cast<double>(score) / softcap));
        if (has(ATTNC_MASK_ALIBI) && score != kMinusInfinity)
            score = std::max(score - values.slope_times_distance, kLowest);
        for (const float added :
             {has(ATTNC_MASK_BIAS) ? values.bias : 0.0F, has(ATTNC_MASK_KEY_BIAS) ? values.key_bias : 0.0F}) {
            if (added == kMinusInfinity) return static_cast<double>(kMinusInfinity);
            const bool was_finite = score != kMinusInfinity;
            score += added;
            if (was_finite && score == kMinusInfinity) score = kLowest;
        }
        const bool dropped =
            (has(ATTNC_MASK_KEEP) && values.keep == 0) || (has(ATTNC_MASK_DROP) && values.drop != 0);
        return static_cast<double>(dropped ? kMinusInfinity : score);
    }
};

// Scores and masks of one row at a time.
class Scores {
public:
    Scores(Call& call, bool masked, bool any_strides)
        : q_(call.buffer(ATTNC_ARGUMENT_Q, "q", 2)),
          k_(call.buffer(ATTNC_ARGUMENT_K, "k", 2)),
          scale_(static_cast<double>(call.real(ATTNC_ARGUMENT_QK_SCALE))),
          first_(call.integer(ATTNC_ARGUMENT_FIRST_KEY)),
          last_(call.integer(ATTNC_ARGUMENT_LAST_KEY)) {
        call.want("k", k_.extent(0), "d of q", q_.extent(0));
        if (!any_strides) call.want("k", k_.side_by_side(), "side by side", true);
        if (!masked) return;
        steps_ = {call.integer(ATTNC_ARGUMENT_MASK_FLAGS),
                  static_cast<double>(call.real(ATTNC_ARGUMENT_SOFTCAP))};
        alibi_slope_ = call.real(ATTNC_ARGUMENT_ALIBI_SLOPE);
        own_key_ = call.integer(ATTNC_ARGUMENT_OWN_KEY);
        key_bias_ = call.buffer(ATTNC_ARGUMENT_KEY_BIAS, "key_bias", 1, kFloat32, false);
        bias_ = call.buffer(ATTNC_ARGUMENT_BIAS, "bias", 2, kFloat32, false);
        keep_ = call.buffer(ATTNC_ARGUMENT_KEEP_MASK, "keep_mask", 2, kUint8, false);
        drop_ = call.buffer(ATTNC_ARGUMENT_DROP_MASK, "drop_mask", 2, kUint8, false);
        key_blocks_ = call.buffer(ATTNC_ARGUMENT_KEY_BLOCKS, "key_blocks", 2, kUint8, false);
        call.want("key_blocks", key_blocks_.extent(0), "jb", (keys() + 15) / 16);
        call.want("key_blocks", key_blocks_.extent(1), "ib", (rows() + 15) / 16);
        call.want("key_bias", key_bias_.extent(0), "j", keys());
        for (const View* view : {&bias_, &keep_, &drop_}) {
            call.want("mask", view->extent(0), "j", keys());
            call.want("mask", view->extent(1), "i", rows());
        }
    }
    int64_t rows() const { return q_.extent(1); }
    int64_t keys() const { return k_.extent(1); }

    // Pairs of granules that are not dropped.
    int64_t pairs() const {
        int64_t count = 0;
        for (int64_t i = 0; i < rows(); ++i) {
            for (int64_t j = 0; j < keys(); ++j) count += in_dropped_block(i, j) ? 0 : 1;
        }
        return count;
    }

    // -inf where the key is dropped.
    double score(int64_t i, int64_t j) const {
        if (j < i + int64_t{first_} || j >= i + int64_t{last_}) return static_cast<double>(kMinusInfinity);
        if (in_dropped_block(i, j)) return static_cast<double>(kMinusInfinity);
        double dot = 0;
        for (int64_t d = 0; d < q_.extent(0); ++d) {
            dot += static_cast<double>(q_.f(d, i)) * static_cast<double>(k_.f(d, j));
        }
        ScoreSteps::Values values = {};
        values.slope_times_distance = alibi_slope_ * static_cast<float>(std::abs(i + own_key_ - j));
        if (steps_.has(ATTNC_MASK_BIAS)) values.bias = bias_.f(j, i);
        if (steps_.has(ATTNC_MASK_KEY_BIAS)) values.key_bias = key_bias_.f(j);
        if (steps_.has(ATTNC_MASK_KEEP)) values.keep = *keep_.at<uint8_t>(j, i);
        if (steps_.has(ATTNC_MASK_DROP)) values.drop = *drop_.at<uint8_t>(j, i);
        return steps_.after(static_cast<float>(dot * scale_), values);
    }

private:
    bool in_dropped_block(int64_t i, int64_t j) const {
        return steps_.has(ATTNC_MASK_BLOCKS) && *key_blocks_.at<uint8_t>(j / 16, i / 16) == 0;
    }

    View q_, k_, key_bias_, bias_, keep_, drop_, key_blocks_;
    ScoreSteps steps_;
    double scale_;
    float alibi_slope_ = 0;
    int32_t first_, last_, own_key_ = 0;
};

// row_stats of a kernel, as far as `rows` go.
class StatsView {
public:
    StatsView(Call& call, int argument, const char* name, int64_t rows)
        : view_(call.buffer(argument, name, 2)) {
        call.want(name, view_.extent(0), "i", rows);
        call.want(name, view_.extent(1), "the statistics", 2);
    }
    bool is_empty(int64_t i) const { return view_.f(i, 1) == 0; }
    double largest(int64_t i) const { return static_cast<double>(view_.f(i, 0)); }
    double sum(int64_t i) const { return static_cast<double>(view_.f(i, 1)); }
    const float* memory() const { return view_.at<float>(0); }
    // The largest score of an empty row is of no meaning: NaN shows who uses it all the same.
    void set(int64_t i, double largest, double sum) const {
        view_.f(i, 0) = sum == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(largest);
        view_.f(i, 1) = static_cast<float>(sum);
    }

private:
    View view_;
};

std::array<std::atomic<uint64_t>, 6>
    g_foretold;  // by the call before: q, k, its bytes, v, its bytes, context

// Holds what the call before foretold against what this one got, and keeps what this one foretells.
void look_ahead(Call& call, const View& v, const View& context) {
    const View k = call.buffer(ATTNC_ARGUMENT_K, "k", 2);
    const auto bytes = [](const View& rows) { return static_cast<uint64_t>(rows.stride(1)) * sizeof(float); };
    const std::array<uint64_t, 6> got = {call.buffer(ATTNC_ARGUMENT_Q, "q", 2).address(),
                                         k.address(),
                                         bytes(k),
                                         v.address(),
                                         bytes(v),
                                         context.address()};
    constexpr std::array kAhead = {ATTNC_ARGUMENT_AHEAD_Q,       ATTNC_ARGUMENT_AHEAD_K,
                                   ATTNC_ARGUMENT_AHEAD_K_BYTES, ATTNC_ARGUMENT_AHEAD_V,
                                   ATTNC_ARGUMENT_AHEAD_V_BYTES, ATTNC_ARGUMENT_AHEAD_CONTEXT};
    bool all = true, wrong = false;
    for (size_t i = 0; i < got.size(); ++i) {
        const uint64_t before = g_foretold[i].exchange(call.address(kAhead[i]));
        all = all && before == got[i];
        wrong = wrong || (before != 0 && before != got[i]);
    }
    fake_counts().foretold += all ? 1 : 0;
    fake_counts().mistold += wrong ? 1 : 0;
}

}  // namespace

int32_t attend(int kernel, void** argv) {
    Call call(kernel, argv);
    call.use_scratch();
    const bool guarded = kernel == ATTNC_KERNEL_ATTEND_GUARDED;
    const bool any_strides = guarded || kernel == ATTNC_KERNEL_ATTEND_SINGLE;
    const Scores scores(call, guarded || kernel == ATTNC_KERNEL_ATTEND_MASKED, any_strides);
    const View v = call.buffer(ATTNC_ARGUMENT_V, "v", 2);
    if (!any_strides) call.want("v", v.side_by_side(), "side by side", true);
    const View context = call.buffer(ATTNC_ARGUMENT_CONTEXT, "context", 2);
    const StatsView stats(call, ATTNC_ARGUMENT_ROW_STATS, "row_stats", scores.rows());
    call.want("v", v.extent(1), "j of k", scores.keys());
    call.want("context", context.extent(0), "d of v", v.extent(0));
    call.want("context", context.extent(1), "i of q", scores.rows());
    if (call.code() != 0) return call.code();
    fake_counts().pairs_attended += scores.pairs();
    look_ahead(call, v, context);
    std::vector<double> row(static_cast<size_t>(scores.keys()));
    for (int64_t i = 0; i < scores.rows(); ++i) {
        double most = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t j = 0; j < scores.keys(); ++j) {
            row[static_cast<size_t>(j)] = scores.score(i, j);
            most = std::max(most, row[static_cast<size_t>(j)]);
        }
        for (double& s : row) {
            s = s == -std::numeric_limits<double>::infinity() ? 0 : std::exp(s - most);
            sum += s;
        }
        for (int64_t d = 0; d < v.extent(0); ++d) {
            double total = 0;
            for (int64_t j = 0; j < scores.keys(); ++j) {
                const double p = row[static_cast<size_t>(j)];
                if (guarded && p == 0) continue;
                total += p * static_cast<double>(v.f(d, j));
            }
            context.f(d, i) = sum == 0 ? static_cast<float>(total) : static_cast<float>(total / sum);
        }
        stats.set(i, most, sum);
    }
    return 0;
}

// Few queries of the heads of a group over keys somewhere in a pool.
int32_t decode(int kernel, void** argv) {
    Call call(kernel, argv);
    call.use_scratch();
    const View q = call.buffer(ATTNC_ARGUMENT_Q, "q", 3);
    const View k = call.buffer(ATTNC_ARGUMENT_K, "k", 2), v = call.buffer(ATTNC_ARGUMENT_V, "v", 2);
    const View key_rows = call.buffer(ATTNC_ARGUMENT_KEY_ROWS, "key_rows", 1, kInt32);
    const View key_bias = call.buffer(ATTNC_ARGUMENT_KEY_BIAS, "key_bias", 1, kFloat32, false);
    const View bias = call.buffer(ATTNC_ARGUMENT_BIAS, "bias", 3, kFloat32, false);
    const View keep = call.buffer(ATTNC_ARGUMENT_KEEP_MASK, "keep_mask", 3, kUint8, false);
    const View drop = call.buffer(ATTNC_ARGUMENT_DROP_MASK, "drop_mask", 3, kUint8, false);
    const View slopes = call.buffer(ATTNC_ARGUMENT_ALIBI_SLOPES, "alibi_slopes", 1);
    const View context = call.buffer(ATTNC_ARGUMENT_CONTEXT, "context", 3);
    const View stats = call.buffer(ATTNC_ARGUMENT_ROW_STATS, "row_stats", 3);
    const int64_t rows = q.extent(1), heads = q.extent(2), keys = call.integer(ATTNC_ARGUMENT_KEYS);
    call.want("k", k.extent(0), "d of q", q.extent(0));
    call.want("v", v.extent(1), "rows of k", k.extent(1));
    call.want("key_rows", key_rows.extent(0), "runs of keys", (keys + ATTNC_RUN_KEYS - 1) / ATTNC_RUN_KEYS);
    call.want("key_bias", key_bias.extent(0), "j", keys);
    call.want("alibi_slopes", slopes.extent(0), "g", heads);
    for (const View* mask : {&bias, &keep, &drop}) {
        call.want("mask", mask->extent(0), "j", keys);
        call.want("mask", mask->extent(1), "i", rows);
        call.want("mask", mask->extent(2), "g", heads);
    }
    call.want("context", context.extent(0), "d of v", v.extent(0));
    call.want("context", context.extent(1), "i of q", rows);
    call.want("context", context.extent(2), "g of q", heads);
    call.want("row_stats", stats.extent(0), "i of q", rows);
    call.want("row_stats", stats.extent(1), "g of q", heads);
    call.want("row_stats", stats.extent(2), "the statistics", 2);
    if (rows * heads > ATTNC_DECODE_ROWS) call.want("q", rows * heads, "rows", ATTNC_DECODE_ROWS);
    if (call.code() != 0) return call.code();
    fake_counts().pairs_attended += rows * heads * keys;
    fake_counts().asked_ahead += call.integer(ATTNC_ARGUMENT_ASK_AHEAD) != 0 ? 1 : 0;
    const ScoreSteps steps = {call.integer(ATTNC_ARGUMENT_MASK_FLAGS),
                              static_cast<double>(call.real(ATTNC_ARGUMENT_SOFTCAP))};
    const int64_t first = call.integer(ATTNC_ARGUMENT_FIRST_KEY),
                  last = call.integer(ATTNC_ARGUMENT_LAST_KEY);
    const int64_t own_key = call.integer(ATTNC_ARGUMENT_OWN_KEY);
    const auto scale = static_cast<double>(call.real(ATTNC_ARGUMENT_QK_SCALE));
    const auto row_of = [&](int64_t j) {
        return *key_rows.at<int32_t>(j / ATTNC_RUN_KEYS) + j % ATTNC_RUN_KEYS;
    };
    const auto score = [&](int64_t i, int64_t g, int64_t j) {
        if (j < i + first || j >= i + last) return static_cast<double>(kMinusInfinity);
        double dot = 0;
        for (int64_t d = 0; d < q.extent(0); ++d)
            dot += static_cast<double>(q.f(d, i, g)) * static_cast<double>(k.f(d, row_of(j)));
        ScoreSteps::Values values = {};
        if (steps.has(ATTNC_MASK_ALIBI))
            values.slope_times_distance = slopes.f(g) * static_cast<float>(std::abs(i + own_key - j));
        if (steps.has(ATTNC_MASK_BIAS)) values.bias = bias.f(j, i, g);
        if (steps.has(ATTNC_MASK_KEY_BIAS)) values.key_bias = key_bias.f(j);
        if (steps.has(ATTNC_MASK_KEEP)) values.keep = *keep.at<uint8_t>(j, i, g);
        if (steps.has(ATTNC_MASK_DROP)) values.drop = *drop.at<uint8_t>(j, i, g);
        return steps.after(static_cast<float>(dot * scale), values);
    };
    constexpr double kDropped = -std::numeric_limits<double>::infinity();
    std::vector<double> row(static_cast<size_t>(keys));
    for (int64_t n = 0; n < rows * heads; ++n) {
        const int64_t i = n % rows, g = n / rows;
        double most = kDropped, sum = 0;
        for (int64_t j = 0; j < keys; ++j) {
            row[static_cast<size_t>(j)] = score(i, g, j);
            most = std::max(most, row[static_cast<size_t>(j)]);
        }
        for (const double s : row) sum += s == kDropped ? 0 : std::exp(s - most);
        for (int64_t d = 0; d < v.extent(0); ++d) {
            double total = 0;
            for (int64_t j = 0; j < keys; ++j) {
                const double s = row[static_cast<size_t>(j)];
                if (s != kDropped) total += std::exp(s - most) * static_cast<double>(v.f(d, row_of(j)));
            }
            context.f(d, i, g) = static_cast<float>(sum == 0 ? 0 : total / sum);
        }
        stats.f(i, g, 0) = sum == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(most);
        stats.f(i, g, 1) = static_cast<float>(sum);
    }
    return 0;
}

int32_t merge(int kernel, void** argv) {
    Call call(kernel, argv);
    const View a = call.buffer(ATTNC_ARGUMENT_CONTEXT_A, "context_a", 2);
    const View b = call.buffer(ATTNC_ARGUMENT_CONTEXT_B, "context_b", 2);
    const View to = call.buffer(ATTNC_ARGUMENT_CONTEXT, "context", 2);
    const StatsView stats_a(call, ATTNC_ARGUMENT_ROW_STATS_A, "row_stats_a", to.extent(1));
    const StatsView stats_b(call, ATTNC_ARGUMENT_ROW_STATS_B, "row_stats_b", to.extent(1));
    const StatsView stats(call, ATTNC_ARGUMENT_ROW_STATS, "row_stats", to.extent(1));
    for (const View* view : {&a, &b}) {
        call.want("context_a and context_b", view->extent(0), "d", to.extent(0));
        call.want("context_a and context_b", view->extent(1), "i", to.extent(1));
    }
    if (stats.memory() == stats_a.memory() || stats.memory() == stats_b.memory()) {
        call.want("row_stats", 1, "memory of its own", 0);
    }
    if (call.code() != 0) return call.code();
    for (int64_t i = 0; i < to.extent(1); ++i) {
        if (stats_a.is_empty(i) || stats_b.is_empty(i)) {
            const bool first = stats_b.is_empty(i);
            for (int64_t d = 0; d < to.extent(0); ++d) to.f(d, i) = first ? a.f(d, i) : b.f(d, i);
            const StatsView& from = first ? stats_a : stats_b;
            stats.set(i, from.largest(i), from.sum(i));
            continue;
        }
        const double most = std::max(stats_a.largest(i), stats_b.largest(i));
        const double wa = stats_a.sum(i) * std::exp(stats_a.largest(i) - most);
        const double wb = stats_b.sum(i) * std::exp(stats_b.largest(i) - most);
        for (int64_t d = 0; d < to.extent(0); ++d) {
            const double ca = static_cast<double>(a.f(d, i)), cb = static_cast<double>(b.f(d, i));
            to.f(d, i) = static_cast<float>((wa * ca + wb * cb) / (wa + wb));
        }
        stats.set(i, most, wa + wb);
    }
    return 0;
}

int32_t log_sum(int kernel, void** argv) {
    Call call(kernel, argv);
    const View lse = call.buffer(ATTNC_ARGUMENT_LSE, "lse", 1);
    const StatsView stats(call, ATTNC_ARGUMENT_ROW_STATS_IN, "row_stats_in", lse.extent(0));
    if (call.code() != 0) return call.code();
    for (int64_t i = 0; i < lse.extent(0); ++i) {
        lse.f(i) = stats.is_empty(i) ? kMinusInfinity
                                     : static_cast<float>(stats.largest(i) + std::log(stats.sum(i)));
    }
    return 0;
}

int32_t probs(int kernel, void** argv) {
    Call call(kernel, argv);
    call.use_scratch();
    const Scores scores(call, true, false);
    const StatsView stats(call, ATTNC_ARGUMENT_ROW_STATS_IN, "row_stats_in", scores.rows());
    const View to = call.buffer(ATTNC_ARGUMENT_PROBS, "probs", 2);
    call.want("probs", to.extent(0), "j of k", scores.keys());
    call.want("probs", to.extent(1), "i of q", scores.rows());
    if (call.code() != 0) return call.code();
    for (int64_t i = 0; i < scores.rows(); ++i) {
        for (int64_t j = 0; j < scores.keys(); ++j) {
            const double s = scores.score(i, j);
            const bool none = s == -std::numeric_limits<double>::infinity() || stats.is_empty(i);
            to.f(j, i) = none ? 0.0F : static_cast<float>(std::exp(s - stats.largest(i)) / stats.sum(i));
        }
    }
    return 0;
}

int32_t show_scores(int kernel, void** argv) {
    Call call(kernel, argv);
    call.use_scratch();
    const Scores scores(call, true, false);
    const View to = call.buffer(ATTNC_ARGUMENT_SCORES, "scores", 2);
    call.want("scores", to.extent(0), "j of k", scores.keys());
    call.want("scores", to.extent(1), "i of q", scores.rows());
    if (call.code() != 0) return call.code();
    for (int64_t i = 0; i < scores.rows(); ++i) {
        for (int64_t j = 0; j < scores.keys(); ++j) to.f(j, i) = static_cast<float>(scores.score(i, j));
    }
    return 0;
}

void forget_foretold() {
    for (auto& address : g_foretold) address = 0;
}

}  // namespace attnc::test::fake
