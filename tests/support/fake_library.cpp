#include "tests/support/fake_library.h"

#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>

#include "runtime/halide_buffer.h"

extern "C" {
void* attnc_abi1_malloc(void* user_context, size_t bytes);
void attnc_abi1_free(void* user_context, void* memory);
int attnc_abi1_error_out_of_memory(void* user_context);
int attnc_abi1_error_host_is_null(void* user_context, const char* func);
int attnc_abi1_error_constraint_violated(void* user_context, const char* var, int val,
                                         const char* constrained_var, int constrained_val);
int attnc_abi1_error_bad_type(void* user_context, const char* func, uint32_t given, uint32_t wanted);
int attnc_abi1_error_buffer_allocation_too_large(void* user_context, const char* buffer, uint64_t size,
                                                 uint64_t most);
}

namespace attnc::test {
namespace {

std::atomic<FakeFailure> g_failure[ATTNC_KERNEL_COUNT];

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int64_t kScratch = 1000;  // that every kernel takes, twice

// A buffer that a kernel takes, checked against what its contract says of it.
class View {
public:
    int64_t extent(int i) const { return buffer_->dim[i].extent; }
    int64_t stride(int i) const { return extent(i) == 1 ? 0 : buffer_->dim[i].stride; }
    uint64_t address() const { return reinterpret_cast<uint64_t>(buffer_->host); }
    template <typename T>
    T* at(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0, int64_t e = 0) const {
        const int64_t index[] = {a, b, c, d, e};
        int64_t offset = 0;
        for (int i = 0; i < buffer_->dimensions; ++i) offset += index[i] * stride(i);
        return reinterpret_cast<T*>(buffer_->host) + offset;
    }
    float& f(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0, int64_t e = 0) const {
        return *at<float>(a, b, c, d, e);
    }

private:
    friend class Call;
    const HalideBuffer* buffer_ = nullptr;
};

// The arguments of a call, in the order that tables name them; the first failure is kept.
class Call {
public:
    Call(int kernel, void** argv, const std::vector<int64_t>& order)
        : context_(*static_cast<void**>(argv[0])) {
        for (size_t i = 0; i < order.size(); ++i) slots_[order[i]] = argv[i];
        FakeCounts& counts = fake_counts();
        ++counts.calls[kernel];
        const int64_t now = ++counts.in_flight;
        int64_t most = counts.most_in_flight;
        while (now > most && !counts.most_in_flight.compare_exchange_weak(most, now)) {
        }
        constexpr uint32_t kDenormalsAreZero = 0x8040, kMaskAll = 0x1f80;
        const uint32_t word = _mm_getcsr();
        if ((word & kDenormalsAreZero) != kDenormalsAreZero || (word & kMaskAll) != kMaskAll) {
            ++counts.wrong_control_words;
        }
    }
    ~Call() { --fake_counts().in_flight; }

    // Scratch in the order that the arena finds hardest: the first block goes first.
    void use_scratch() {
        void* first = attnc_abi1_malloc(context_, kScratch);
        void* second = attnc_abi1_malloc(context_, kScratch);
        if (first == nullptr || second == nullptr) keep(attnc_abi1_error_out_of_memory(context_));
        if (first != nullptr) std::fill_n(static_cast<unsigned char*>(first), kScratch, 0xee);
        if (second != nullptr) std::fill_n(static_cast<unsigned char*>(second), kScratch, 0xee);
        attnc_abi1_free(context_, first);
        attnc_abi1_free(context_, second);
    }

    View buffer(int argument, const char* name, int rank, HalideType type = kFloat32,
                bool dense_inner = true) {
        View view;
        view.buffer_ = static_cast<const HalideBuffer*>(slots_[argument]);
        const HalideBuffer& b = *view.buffer_;
        if (b.host == nullptr) keep(attnc_abi1_error_host_is_null(context_, name));
        if (std::bit_cast<uint32_t>(b.type) != std::bit_cast<uint32_t>(type)) {
            keep(attnc_abi1_error_bad_type(context_, name, std::bit_cast<uint32_t>(b.type),
                                           std::bit_cast<uint32_t>(type)));
        }
        want(name, b.dimensions, "rank", rank);
        int64_t last = 0;
        for (int i = 0; i < std::min(rank, b.dimensions); ++i) {
            want(name, b.dim[i].min, "min", 0);
            if (b.dim[i].extent < 1) want(name, b.dim[i].extent, "an extent of at least 1", 1);
            if (b.dim[i].stride < 0) want(name, b.dim[i].stride, "a stride of at least 0", 0);
            last += (b.dim[i].extent - 1) * int64_t{b.dim[i].stride};
            const int64_t span = int64_t{b.dim[i].extent} * b.dim[i].stride * (type.bits / 8);
            if (b.dim[i].extent > 1 && span > INT32_MAX) {
                keep(attnc_abi1_error_buffer_allocation_too_large(context_, name, static_cast<uint64_t>(span),
                                                                  INT32_MAX));
            }
        }
        if ((last + 1) * (type.bits / 8) > INT32_MAX) {
            keep(attnc_abi1_error_buffer_allocation_too_large(context_, name, static_cast<uint64_t>(last),
                                                              INT32_MAX));
        }
        if (dense_inner && b.dimensions > 0 && b.dim[0].extent > 1) want(name, b.dim[0].stride, "stride", 1);
        return view;
    }
    void want(const char* name, int64_t got, const char* what, int64_t wanted) {
        if (got != wanted) {
            keep(attnc_abi1_error_constraint_violated(context_, name, static_cast<int>(got), what,
                                                      static_cast<int>(wanted)));
        }
    }
    int32_t integer(int argument) const { return *static_cast<const int32_t*>(slots_[argument]); }
    double wide_real(int argument) const { return *static_cast<const double*>(slots_[argument]); }
    float real(int argument) const { return *static_cast<const float*>(slots_[argument]); }
    uint64_t address(int argument) const { return *static_cast<const uint64_t*>(slots_[argument]); }
    int32_t code() const { return code_; }

private:
    void keep(int code) {
        if (code_ == 0) code_ = code;
    }
    void* context_;
    void* slots_[ATTNC_ARGUMENT_COUNT] = {};
    int32_t code_ = 0;
};

// The user context comes first, the rest backwards, so that only the table's order can be right.
std::vector<int64_t> order_of(std::vector<int64_t> arguments) {
    arguments.push_back(ATTNC_ARGUMENT_USER_CONTEXT);
    std::reverse(arguments.begin(), arguments.end());
    return arguments;
}

const std::vector<int64_t>& arguments_of(int kernel) {
    static const auto* orders = [] {
        auto* all = new std::vector<std::vector<int64_t>>(ATTNC_KERNEL_COUNT);
        const std::vector<int64_t> project = {ATTNC_ARGUMENT_INPUT, ATTNC_ARGUMENT_WEIGHTS,
                                              ATTNC_ARGUMENT_BIAS_VECTOR};
        const std::vector<int64_t> scores = {ATTNC_ARGUMENT_Q, ATTNC_ARGUMENT_K, ATTNC_ARGUMENT_QK_SCALE,
                                             ATTNC_ARGUMENT_FIRST_KEY, ATTNC_ARGUMENT_LAST_KEY};
        const std::vector<int64_t> masks = {
            ATTNC_ARGUMENT_KEY_BIAS,    ATTNC_ARGUMENT_BIAS,       ATTNC_ARGUMENT_KEEP_MASK,
            ATTNC_ARGUMENT_DROP_MASK,   ATTNC_ARGUMENT_MASK_FLAGS, ATTNC_ARGUMENT_SOFTCAP,
            ATTNC_ARGUMENT_ALIBI_SLOPE, ATTNC_ARGUMENT_OWN_KEY,    ATTNC_ARGUMENT_KEY_BLOCKS};
        const std::vector<int64_t> attend = {ATTNC_ARGUMENT_V, ATTNC_ARGUMENT_CONTEXT,
                                             ATTNC_ARGUMENT_ROW_STATS};
        const std::vector<int64_t> ahead = {ATTNC_ARGUMENT_AHEAD_Q, ATTNC_ARGUMENT_AHEAD_K,
                                            ATTNC_ARGUMENT_AHEAD_V, ATTNC_ARGUMENT_AHEAD_CONTEXT};
        const auto set = [&](int id, std::initializer_list<std::vector<int64_t>> parts) {
            std::vector<int64_t> joined;
            for (const auto& part : parts) joined.insert(joined.end(), part.begin(), part.end());
            (*all)[static_cast<size_t>(id)] = order_of(joined);
        };
        set(ATTNC_KERNEL_PROJECT_HEADS, {project, {ATTNC_ARGUMENT_Y}});
        set(ATTNC_KERNEL_PROJECT_OUT, {project, {ATTNC_ARGUMENT_OUT}});
        set(ATTNC_KERNEL_PROJECT_HEADS_TAIL, {project, {ATTNC_ARGUMENT_Y}});
        set(ATTNC_KERNEL_PROJECT_OUT_TAIL, {project, {ATTNC_ARGUMENT_OUT}});
        set(ATTNC_KERNEL_ATTEND, {scores, attend, ahead});
        set(ATTNC_KERNEL_ATTEND_NARROW, {scores, attend, ahead});
        set(ATTNC_KERNEL_ATTEND_SINGLE, {scores, attend, ahead});
        set(ATTNC_KERNEL_ATTEND_MASKED, {scores, attend, ahead, masks});
        set(ATTNC_KERNEL_ATTEND_GUARDED, {scores, attend, ahead, masks});
        set(ATTNC_KERNEL_ATTEND_MERGE,
            {{ATTNC_ARGUMENT_CONTEXT_A, ATTNC_ARGUMENT_ROW_STATS_A, ATTNC_ARGUMENT_CONTEXT_B,
              ATTNC_ARGUMENT_ROW_STATS_B, ATTNC_ARGUMENT_CONTEXT, ATTNC_ARGUMENT_ROW_STATS}});
        set(ATTNC_KERNEL_ATTEND_LSE, {{ATTNC_ARGUMENT_ROW_STATS_IN, ATTNC_ARGUMENT_LSE}});
        set(ATTNC_KERNEL_ATTEND_PROBS, {scores, masks, {ATTNC_ARGUMENT_ROW_STATS_IN, ATTNC_ARGUMENT_PROBS}});
        set(ATTNC_KERNEL_ATTEND_SCORES, {scores, masks, {ATTNC_ARGUMENT_SCORES}});
        set(ATTNC_KERNEL_SPLIT_HEADS, {{ATTNC_ARGUMENT_INPUT, ATTNC_ARGUMENT_Y}});
        set(ATTNC_KERNEL_MERGE_HEADS, {{ATTNC_ARGUMENT_INPUT, ATTNC_ARGUMENT_Y}});
        std::vector<int64_t> group_masks = masks;
        std::replace(group_masks.begin(), group_masks.end(), int64_t{ATTNC_ARGUMENT_ALIBI_SLOPE},
                     int64_t{ATTNC_ARGUMENT_ALIBI_SLOPES});
        set(ATTNC_KERNEL_ATTEND_DECODE,
            {scores,
             attend,
             group_masks,
             {ATTNC_ARGUMENT_KEY_ROWS, ATTNC_ARGUMENT_KEYS, ATTNC_ARGUMENT_ASK_AHEAD}});
        const std::vector<int64_t> tables = {ATTNC_ARGUMENT_COS_TABLE, ATTNC_ARGUMENT_SIN_TABLE};
        set(ATTNC_KERNEL_NORM_HEADS,
            {{ATTNC_ARGUMENT_INPUT, ATTNC_ARGUMENT_NORM_WEIGHT, ATTNC_ARGUMENT_EPSILON, ATTNC_ARGUMENT_Y}});
        set(ATTNC_KERNEL_ROTATE_HEADS, {tables, {ATTNC_ARGUMENT_Y}});
        set(ATTNC_KERNEL_ROTARY_ANGLES,
            {tables, {ATTNC_ARGUMENT_POSITIONS, ATTNC_ARGUMENT_FREQUENCIES, ATTNC_ARGUMENT_MAGNITUDE}});
        return all;
    }();
    return (*orders)[static_cast<size_t>(kernel)];
}

// Refuses if the test asked for it.
bool refuses(int kernel, void** argv, int32_t* code) {
    const FakeFailure how = g_failure[kernel].exchange(FakeFailure::kNone);
    if (how == FakeFailure::kNone) return false;
    *code = -7;
    if (how == FakeFailure::kHook) {
        *code = attnc_abi1_error_constraint_violated(*static_cast<void**>(argv[0]), "q.extent.0", 17,
                                                     "the padded head", 16);
    }
    return true;
}

int32_t project(int kernel, void** argv) {
    Call call(kernel, argv, arguments_of(kernel));
    call.use_scratch();
    const bool heads = kernel == ATTNC_KERNEL_PROJECT_HEADS || kernel == ATTNC_KERNEL_PROJECT_HEADS_TAIL;
    const View x = call.buffer(ATTNC_ARGUMENT_INPUT, "x", 2);
    const View w = call.buffer(ATTNC_ARGUMENT_WEIGHTS, "weights", 3);
    const View bias = call.buffer(ATTNC_ARGUMENT_BIAS_VECTOR, "bias_vector", 2);
    const View y = heads ? call.buffer(ATTNC_ARGUMENT_Y, "y", 5) : call.buffer(ATTNC_ARGUMENT_OUT, "out", 2);
    const int64_t inner = x.extent(0), rows = x.extent(1), panel = w.extent(0), panels = w.extent(2);
    call.want("weights", w.extent(1), "k of x", inner);
    call.want("bias_vector", bias.extent(0), "n of weights", panel);
    call.want("bias_vector", bias.extent(1), "p of weights", panels);
    if (heads) {
        call.want("y", y.extent(2), "m of x", rows);
        call.want("y", y.extent(0) * y.extent(1), "n of weights", panel);
        call.want("y", y.extent(3) * y.extent(4), "p of weights", panels);
        fake_counts().rows_projected += rows * panels;
    } else {
        call.want("out", y.extent(1), "m of x", rows);
        call.want("out", (y.extent(0) + panel - 1) / panel, "p of weights", panels);
    }
    if (call.code() != 0) return call.code();
    for (int64_t p = 0; p < panels; ++p) {
        for (int64_t n = 0; n < panel; ++n) {
            if (!heads && p * panel + n >= y.extent(0)) continue;
            for (int64_t m = 0; m < rows; ++m) {
                double sum = static_cast<double>(bias.f(n, p));
                for (int64_t k = 0; k < inner; ++k) {
                    sum += static_cast<double>(x.f(k, m)) * static_cast<double>(w.f(n, k, p));
                }
                const int64_t width = y.extent(0), c = y.extent(heads ? 3 : 0);
                float& to = heads ? y.f(n % width, n / width, m, p % c, p / c) : y.f(p * panel + n, m);
                to = static_cast<float>(sum);
            }
        }
    }
    return 0;
}

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
    Scores(Call& call, bool masked)
        : q_(call.buffer(ATTNC_ARGUMENT_Q, "q", 2)),
          k_(call.buffer(ATTNC_ARGUMENT_K, "k", 2)),
          scale_(static_cast<double>(call.real(ATTNC_ARGUMENT_QK_SCALE))),
          first_(call.integer(ATTNC_ARGUMENT_FIRST_KEY)),
          last_(call.integer(ATTNC_ARGUMENT_LAST_KEY)) {
        call.want("k", k_.extent(0), "d of q", q_.extent(0));
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

std::array<std::atomic<uint64_t>, 4> g_foretold;  // by the call before: q, k, v, context

// Holds what the call before foretold against what this one got, and keeps what this one foretells.
void look_ahead(Call& call, const View& v, const View& context) {
    const std::array<uint64_t, 4> got = {call.buffer(ATTNC_ARGUMENT_Q, "q", 2).address(),
                                         call.buffer(ATTNC_ARGUMENT_K, "k", 2).address(), v.address(),
                                         context.address()};
    constexpr std::array kAhead = {ATTNC_ARGUMENT_AHEAD_Q, ATTNC_ARGUMENT_AHEAD_K, ATTNC_ARGUMENT_AHEAD_V,
                                   ATTNC_ARGUMENT_AHEAD_CONTEXT};
    bool all = true, wrong = false;
    for (size_t i = 0; i < got.size(); ++i) {
        const uint64_t before = g_foretold[i].exchange(call.address(kAhead[i]));
        all = all && before == got[i];
        wrong = wrong || (before != 0 && before != got[i]);
    }
    fake_counts().foretold += all ? 1 : 0;
    fake_counts().mistold += wrong ? 1 : 0;
}

int32_t attend(int kernel, void** argv) {
    Call call(kernel, argv, arguments_of(kernel));
    call.use_scratch();
    const Scores scores(call, kernel == ATTNC_KERNEL_ATTEND_MASKED || kernel == ATTNC_KERNEL_ATTEND_GUARDED);
    const View v = call.buffer(ATTNC_ARGUMENT_V, "v", 2);
    const View context = call.buffer(ATTNC_ARGUMENT_CONTEXT, "context", 2);
    const StatsView stats(call, ATTNC_ARGUMENT_ROW_STATS, "row_stats", scores.rows());
    call.want("v", v.extent(1), "j of k", scores.keys());
    call.want("context", context.extent(0), "d of v", v.extent(0));
    call.want("context", context.extent(1), "i of q", scores.rows());
    if (call.code() != 0) return call.code();
    fake_counts().pairs_attended += scores.pairs();
    look_ahead(call, v, context);
    const bool guarded = kernel == ATTNC_KERNEL_ATTEND_GUARDED;
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
    Call call(kernel, argv, arguments_of(kernel));
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
    Call call(kernel, argv, arguments_of(kernel));
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
    Call call(kernel, argv, arguments_of(kernel));
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
    Call call(kernel, argv, arguments_of(kernel));
    call.use_scratch();
    const Scores scores(call, true);
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
    Call call(kernel, argv, arguments_of(kernel));
    call.use_scratch();
    const Scores scores(call, true);
    const View to = call.buffer(ATTNC_ARGUMENT_SCORES, "scores", 2);
    call.want("scores", to.extent(0), "j of k", scores.keys());
    call.want("scores", to.extent(1), "i of q", scores.rows());
    if (call.code() != 0) return call.code();
    for (int64_t i = 0; i < scores.rows(); ++i) {
        for (int64_t j = 0; j < scores.keys(); ++j) to.f(j, i) = static_cast<float>(scores.score(i, j));
    }
    return 0;
}

int32_t copy_heads(int kernel, void** argv) {
    Call call(kernel, argv, arguments_of(kernel));
    const View x = call.buffer(ATTNC_ARGUMENT_INPUT, "x", 3);
    const View y = call.buffer(ATTNC_ARGUMENT_Y, "y", 3);
    call.want("y", y.extent(1), "m of x", x.extent(1));
    call.want("y", y.extent(2), "h of x", x.extent(2));
    if (call.code() != 0) return call.code();
    for (int64_t h = 0; h < y.extent(2); ++h) {
        for (int64_t m = 0; m < y.extent(1); ++m) {
            for (int64_t d = 0; d < y.extent(0); ++d) y.f(d, m, h) = d < x.extent(0) ? x.f(d, m, h) : 0;
        }
    }
    return 0;
}

int32_t norm_heads(int kernel, void** argv) {
    Call call(kernel, argv, arguments_of(kernel));
    const View x = call.buffer(ATTNC_ARGUMENT_INPUT, "x", 3);
    const View weight = call.buffer(ATTNC_ARGUMENT_NORM_WEIGHT, "norm_weight", 1);
    const View y = call.buffer(ATTNC_ARGUMENT_Y, "y", 3);
    call.want("x", x.extent(0) % ATTNC_HEAD_ALIGN, "rest of a padded head", 0);
    call.want("norm_weight", weight.extent(0), "d of x", x.extent(0));
    for (int i = 0; i < 3; ++i) call.want("y", y.extent(i), "extent of x", x.extent(i));
    if (call.code() != 0) return call.code();
    for (int64_t h = 0; h < y.extent(2); ++h) {
        for (int64_t m = 0; m < y.extent(1); ++m) {
            double squares = static_cast<double>(call.real(ATTNC_ARGUMENT_EPSILON));
            for (int64_t d = 0; d < x.extent(0); ++d)
                squares += static_cast<double>(x.f(d, m, h)) * static_cast<double>(x.f(d, m, h));
            for (int64_t d = 0; d < x.extent(0); ++d) {
                const double value = static_cast<double>(x.f(d, m, h)) / std::sqrt(squares);
                y.f(d, m, h) = static_cast<float>(value * static_cast<double>(weight.f(d)));
            }
        }
    }
    return 0;
}

template <bool pairs>
int32_t rotate_heads(int kernel, void** argv) {
    Call call(kernel, argv, arguments_of(kernel));
    const View cos = call.buffer(ATTNC_ARGUMENT_COS_TABLE, "cos_table", 2);
    const View sin = call.buffer(ATTNC_ARGUMENT_SIN_TABLE, "sin_table", 2);
    const View y = call.buffer(ATTNC_ARGUMENT_Y, "y", 3);
    const int64_t turned = cos.extent(0);
    call.want("sin_table", sin.extent(0), "r of cos_table", turned);
    for (const View* table : {&cos, &sin}) call.want("a table", table->extent(1), "m of y", y.extent(1));
    if (2 * turned > y.extent(0)) call.want("y", y.extent(0), "two features a pair", 2 * turned);
    if (call.code() != 0) return call.code();
    for (int64_t h = 0; h < y.extent(2); ++h) {
        for (int64_t m = 0; m < y.extent(1); ++m) {
            for (int64_t r = 0; r < turned; ++r) {
                float& first = y.f(pairs ? 2 * r : r, m, h);
                float& second = y.f(pairs ? 2 * r + 1 : r + turned, m, h);
                const auto a = static_cast<double>(first), b = static_cast<double>(second);
                const auto c = static_cast<double>(cos.f(r, m)), s = static_cast<double>(sin.f(r, m));
                first = static_cast<float>(a * c - b * s);
                second = static_cast<float>(b * c + a * s);
            }
        }
    }
    return 0;
}

int32_t rotary_angles(int kernel, void** argv) {
    Call call(kernel, argv, arguments_of(kernel));
    call.use_scratch();
    const View positions = call.buffer(ATTNC_ARGUMENT_POSITIONS, "positions", 1, kInt32);
    const View frequencies = call.buffer(ATTNC_ARGUMENT_FREQUENCIES, "frequencies", 1, kUint64);
    const View cos = call.buffer(ATTNC_ARGUMENT_COS_TABLE, "cos_table", 2);
    const View sin = call.buffer(ATTNC_ARGUMENT_SIN_TABLE, "sin_table", 2);
    for (const View* table : {&cos, &sin}) {
        call.want("a table", table->extent(0), "r of frequencies", frequencies.extent(0));
        call.want("a table", table->extent(1), "m of positions", positions.extent(0));
    }
    if (call.code() != 0) return call.code();
    const double magnitude = call.wide_real(ATTNC_ARGUMENT_MAGNITUDE);
    for (int64_t m = 0; m < positions.extent(0); ++m) {
        ++fake_counts().rows_angled;
        for (int64_t r = 0; r < frequencies.extent(0); ++r) {
            const auto position = static_cast<uint64_t>(int64_t{*positions.at<int32_t>(m)});
            const auto turns = static_cast<int64_t>(position * *frequencies.at<uint64_t>(r));
            const double angle = static_cast<double>(turns) * (2 * std::numbers::pi * 0x1p-64);
            cos.f(r, m) = static_cast<float>(std::cos(angle) * magnitude);
            sin.f(r, m) = static_cast<float>(std::sin(angle) * magnitude);
        }
    }
    return 0;
}

template <int kernel, int32_t (*body)(int, void**)>
int32_t entry(void** argv) {
    int32_t code = 0;
    return refuses(kernel, argv, &code) ? code : body(kernel, argv);
}

attnc_kernel_argv body_of(const Config& config, int kernel) {
    switch (kernel) {
        case ATTNC_KERNEL_PROJECT_HEADS:
            return entry<ATTNC_KERNEL_PROJECT_HEADS, project>;
        case ATTNC_KERNEL_PROJECT_OUT:
            return entry<ATTNC_KERNEL_PROJECT_OUT, project>;
        case ATTNC_KERNEL_PROJECT_HEADS_TAIL:
            return entry<ATTNC_KERNEL_PROJECT_HEADS_TAIL, project>;
        case ATTNC_KERNEL_PROJECT_OUT_TAIL:
            return entry<ATTNC_KERNEL_PROJECT_OUT_TAIL, project>;
        case ATTNC_KERNEL_ATTEND:
            return entry<ATTNC_KERNEL_ATTEND, attend>;
        case ATTNC_KERNEL_ATTEND_NARROW:
            return entry<ATTNC_KERNEL_ATTEND_NARROW, attend>;
        case ATTNC_KERNEL_ATTEND_SINGLE:
            return entry<ATTNC_KERNEL_ATTEND_SINGLE, attend>;
        case ATTNC_KERNEL_ATTEND_MASKED:
            return entry<ATTNC_KERNEL_ATTEND_MASKED, attend>;
        case ATTNC_KERNEL_ATTEND_GUARDED:
            return entry<ATTNC_KERNEL_ATTEND_GUARDED, attend>;
        case ATTNC_KERNEL_ATTEND_MERGE:
            return entry<ATTNC_KERNEL_ATTEND_MERGE, merge>;
        case ATTNC_KERNEL_ATTEND_LSE:
            return entry<ATTNC_KERNEL_ATTEND_LSE, log_sum>;
        case ATTNC_KERNEL_ATTEND_PROBS:
            return entry<ATTNC_KERNEL_ATTEND_PROBS, probs>;
        case ATTNC_KERNEL_ATTEND_SCORES:
            return entry<ATTNC_KERNEL_ATTEND_SCORES, show_scores>;
        case ATTNC_KERNEL_SPLIT_HEADS:
            return entry<ATTNC_KERNEL_SPLIT_HEADS, copy_heads>;
        case ATTNC_KERNEL_MERGE_HEADS:
            return entry<ATTNC_KERNEL_MERGE_HEADS, copy_heads>;
        case ATTNC_KERNEL_NORM_HEADS:
            return entry<ATTNC_KERNEL_NORM_HEADS, norm_heads>;
        case ATTNC_KERNEL_ROTATE_HEADS:
            return config.rotary == Rotary::kPairs ? entry<ATTNC_KERNEL_ROTATE_HEADS, rotate_heads<true>>
                                                   : entry<ATTNC_KERNEL_ROTATE_HEADS, rotate_heads<false>>;
        case ATTNC_KERNEL_ROTARY_ANGLES:
            return entry<ATTNC_KERNEL_ROTARY_ANGLES, rotary_angles>;
        case ATTNC_KERNEL_ATTEND_DECODE:
            return entry<ATTNC_KERNEL_ATTEND_DECODE, decode>;
        default:
            throw std::logic_error(std::string("no scalar form of kernel ") + kernel_name(kernel));
    }
}

attnc_kernel_entry entry_of(const Config& config, int kernel) {
    const std::vector<int64_t>& order = arguments_of(kernel);
    return {body_of(config, kernel), order.data(), static_cast<int64_t>(order.size()), 2 * (64 + 1024)};
}

attnc_target_entry make_target(const Config& config, const FakeLayout& layout, const char* name,
                               int64_t features) {
    attnc_target_entry target = {};
    target.name = name;
    target.cpu_features = features;
    target.layout = {layout.panel != 0 ? layout.panel : padded_head(config.head_dim),
                     layout.out_panel,
                     layout.tile_rows,
                     layout.tail_rows,
                     layout.tile_rows,
                     layout.tail_rows,
                     layout.tile_kv,
                     layout.tile_q,
                     layout.tile_q_narrow,
                     layout.tile_q_single,
                     layout.split_kv};
    for (const int kernel : kernels_of(config)) {
        const bool left_out =
            (kernel == ATTNC_KERNEL_ATTEND_NARROW && layout.tile_q_narrow == 0) ||
            (kernel == ATTNC_KERNEL_ATTEND_SINGLE && layout.tile_q_single == 0) ||
            ((kernel == ATTNC_KERNEL_PROJECT_HEADS_TAIL || kernel == ATTNC_KERNEL_PROJECT_OUT_TAIL) &&
             layout.tail_rows == 0);
        if (!left_out) target.kernels[kernel] = entry_of(config, kernel);
    }
    return target;
}

}  // namespace

FakeCounts& fake_counts() {
    static FakeCounts counts{};
    return counts;
}

void FakeCounts::reset() {
    for (auto& count : calls) count = 0;
    rows_projected = rows_angled = pairs_attended = in_flight = most_in_flight = wrong_control_words = 0;
    foretold = mistold = asked_ahead = 0;
    for (auto& address : g_foretold) address = 0;
}

void fail_next_call(int kernel, FakeFailure how) { g_failure[kernel] = how; }

FakeLibrary::FakeLibrary(const Config& config, const FakeLayout& layout) : problem_(to_string(config)) {
    // No CPU has the first one's features.
    targets_ = {make_target(config, layout, "x86-64-linux-impossible", int64_t{1} << 60),
                make_target(config, layout, "x86-64-linux", 0)};
    library_.abi_version = ATTNC_ABI_VERSION;
    library_.name = "fake";
    library_.problem = problem_.c_str();
    library_.config = {config.d_model,  config.num_heads,     config.num_kv_heads,
                       config.head_dim, config.v_head_dim,    config.k_dim,
                       config.v_dim,    config_flags(config), config.page_size};
    library_.target_count = static_cast<int64_t>(targets_.size());
    library_.targets = targets_.data();
    library_.manifest = "{}";
    library_.manifest_bytes = 2;
    if (!layout.device) return;
    device_ = std::make_unique<FakeDevice>(config, layout.device_layout);
    library_.device = &device_->entry();
}

}  // namespace attnc::test
