// attnc for C++20: a thin header over the C API of attnc.h, which says what each input and output means.
//
//     attnc::ThreadPool pool(2);
//     attnc::Layer layer(minilm_attention(), {.wq = {wq, {384, 384}}, ...});
//     attnc::Session session(layer, {.max_batch = 32, .max_seq = 256}, pool);
//     session.forward({.query = x, .key_lengths = n, .query_lengths = n}, {.out = y});
//
// Every failure is an attnc::Error. Views never own memory: what they show must outlive the call (for
// weights: the layer's constructor). Extents are in C order, outermost first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "attnc.h"

namespace attnc {

// What a function of the C API refused: status() is its number, what() its sentence.
class Error : public std::runtime_error {
public:
    Error(attnc_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
    attnc_status status() const { return status_; }

private:
    attnc_status status_;
};

namespace detail {

inline void check(attnc_status status, const attnc_error& error) {
    if (status != ATTNC_OK) throw Error(status, error.text);
}

template <typename T>
constexpr attnc_dtype dtype_of() {
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<U, float>) {
        return ATTNC_F32;
    } else if constexpr (std::is_same_v<U, double>) {
        return ATTNC_F64;
    } else if constexpr (std::is_same_v<U, int32_t>) {
        return ATTNC_I32;
    } else if constexpr (std::is_same_v<U, int64_t>) {
        return ATTNC_I64;
    } else {
        static_assert(std::is_same_v<U, uint8_t> || (std::is_same_v<U, bool> && sizeof(bool) == 1),
                      "attnc takes float, int32_t, int64_t, and uint8_t or bool for masks");
        return ATTNC_U8;
    }
}

// A view of a span; refuses one whose elements do not all lie inside the span.
template <typename T>
attnc_tensor make_view(std::span<T> data, std::initializer_list<int64_t> extents,
                       std::initializer_list<int64_t> strides) {
    if (extents.size() == 0 || extents.size() > ATTNC_MAX_RANK) {
        throw Error(ATTNC_BAD_RANK, "a view has rank " + std::to_string(extents.size()) + ", wanted 1 to " +
                                        std::to_string(ATTNC_MAX_RANK));
    }
    if (strides.size() != 0 && strides.size() != extents.size()) {
        throw Error(ATTNC_BAD_STRIDE, "a view has " + std::to_string(strides.size()) + " strides for " +
                                          std::to_string(extents.size()) + " extents");
    }
    attnc_tensor t{};
    t.data = const_cast<std::remove_cv_t<T>*>(data.data());
    t.dtype = dtype_of<T>();
    t.rank = static_cast<int32_t>(extents.size());
    int64_t dense = 1, last = 0;
    bool empty = false, fits = true;
    for (size_t i = extents.size(); i-- > 0;) {
        const int64_t extent = extents.begin()[i];
        const int64_t stride = strides.size() != 0 ? strides.begin()[i] : dense;
        if (extent < 0) throw Error(ATTNC_BAD_EXTENT, "a view has an extent of " + std::to_string(extent));
        if (stride < 0) throw Error(ATTNC_BAD_STRIDE, "a view has a stride of " + std::to_string(stride));
        t.extent[i] = extent;
        t.stride[i] = stride;
        if (extent == 0) {
            empty = true;
        } else {
            int64_t step = 0;
            fits = fits && !__builtin_mul_overflow(extent - 1, stride, &step) &&
                   !__builtin_add_overflow(last, step, &last) &&
                   !__builtin_mul_overflow(dense, extent, &dense);
        }
    }
    const auto size = static_cast<int64_t>(data.size());
    if (!empty && (!fits || last >= size)) {
        throw Error(ATTNC_BAD_EXTENT, "a view needs more elements than its span of " + std::to_string(size));
    }
    if (strides.size() == 0 && !empty && dense != size) {
        throw Error(ATTNC_BAD_EXTENT, "a view of " + std::to_string(dense) +
                                          " elements does not match its span of " + std::to_string(size));
    }
    return t;
}

template <typename Range, typename T>
concept SpanOf = std::ranges::contiguous_range<Range> && std::convertible_to<Range&&, std::span<T>>;

}  // namespace detail

// A view of memory: extents and, if it isn't dense, strides in elements. Default-constructed: not given.
template <typename T>
class View {
public:
    View() = default;
    // Dense; the span has exactly as many elements as the extents say.
    View(std::span<T> data, std::initializer_list<int64_t> extents)
        : c_(detail::make_view(data, extents, {})) {}
    View(std::span<T> data, std::initializer_list<int64_t> extents, std::initializer_list<int64_t> strides)
        : c_(detail::make_view(data, extents, strides)) {}
    // A whole vector, array or span as a tensor of rank 1.
    template <detail::SpanOf<T> Range>
    View(Range&& data)  // NOLINT(google-explicit-constructor): biases and lengths read best as they are
        : View(std::span<T>(std::forward<Range>(data)), {static_cast<int64_t>(std::ranges::size(data))}) {}
    // What is writable can be read.
    template <typename U>
    requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>) View(const View<U>& other)
        : c_(other.c()) {}  // NOLINT(google-explicit-constructor)
    // Sizes without memory, for Layer::workspace.
    static View sizes(std::initializer_list<int64_t> extents) {
        View view;
        int64_t stride = 1;
        if (extents.size() == 0 || extents.size() > ATTNC_MAX_RANK) {
            throw Error(ATTNC_BAD_RANK, "a view has rank " + std::to_string(extents.size()) +
                                            ", wanted 1 to " + std::to_string(ATTNC_MAX_RANK));
        }
        view.c_.dtype = detail::dtype_of<T>();
        view.c_.rank = static_cast<int32_t>(extents.size());
        for (size_t i = extents.size(); i-- > 0;) {
            view.c_.extent[i] = extents.begin()[i];
            view.c_.stride[i] = stride;
            if (__builtin_mul_overflow(stride, extents.begin()[i], &stride)) {
                throw Error(ATTNC_TOO_LARGE, "the size of a view overflows");
            }
        }
        return view;
    }

    // The same memory with two dimensions exchanged: [seq, batch, ...] as [batch, seq, ...].
    View transposed(int dimension, int other) const {
        return View(attnc_tensor_transpose(c_, dimension, other), "transposed");
    }
    // Without one dimension, at an index: of [batch, seq, 3, heads, head_dim] the queries, keys or values.
    View selected(int dimension, int64_t index) const {
        return View(attnc_tensor_select(c_, dimension, index), "selected");
    }

    const attnc_tensor& c() const { return c_; }
    bool given() const { return c_.rank != 0; }

private:
    View(const attnc_tensor& c, const char* what) : c_(c) {
        if (c.rank < 0)
            throw Error(ATTNC_BAD_RANK, std::string("a view has no such dimension or index to be ") + what);
    }
    attnc_tensor c_{};
};

using Tensor = View<const float>;   // f32, read
using MutableTensor = View<float>;  // f32, written

// Masks name their polarity in their type, so that neither can stand where the other is meant. One byte an
// element.
template <typename Kind>
class Mask {
public:
    Mask() = default;
    Mask(std::span<const uint8_t> data, std::initializer_list<int64_t> extents,
         std::initializer_list<int64_t> strides = {})
        : c_(detail::make_view(data, extents, strides)) {}
    Mask(std::span<const bool> data, std::initializer_list<int64_t> extents,
         std::initializer_list<int64_t> strides = {})
        : c_(detail::make_view(data, extents, strides)) {}
    const attnc_tensor& c() const { return c_; }

private:
    attnc_tensor c_{};
};
using keep_mask = Mask<struct KeepMaskKind>;         // non-zero: the query attends the key; rank 4
using drop_mask = Mask<struct DropMaskKind>;         // non-zero: the key is ignored; rank 4
using key_keep_mask = Mask<struct KeyKeepMaskKind>;  // the same for a key of an item: [batch, seq_kv]
using key_drop_mask = Mask<struct KeyDropMaskKind>;
using block_keep_mask =
    Mask<struct BlockKeepMaskKind>;  // keep_mask of blocks of block_q queries and block_kv keys

// One number per item of the batch, 32 or 64 bits wide.
class Lengths {
public:
    Lengths() = default;
    template <detail::SpanOf<const int32_t> Range>
    Lengths(Range&& data) : c_(View<const int32_t>(data).c()) {}  // NOLINT(google-explicit-constructor)
    template <detail::SpanOf<const int64_t> Range>
    Lengths(Range&& data) : c_(View<const int64_t>(data).c()) {}  // NOLINT(google-explicit-constructor)
    const attnc_tensor& c() const { return c_; }

private:
    attnc_tensor c_{};
};

// One number per row of each item, 32 or 64 bits wide: [batch, seq], of packed tokens [rows].
class Positions {
public:
    Positions() = default;
    Positions(std::span<const int32_t> data, std::initializer_list<int64_t> extents,
              std::initializer_list<int64_t> strides = {})
        : c_(detail::make_view(data, extents, strides)) {}
    Positions(std::span<const int64_t> data, std::initializer_list<int64_t> extents,
              std::initializer_list<int64_t> strides = {})
        : c_(detail::make_view(data, extents, strides)) {}
    const attnc_tensor& c() const { return c_; }

private:
    attnc_tensor c_{};
};

// Radians for each unit of position, in float or double.
class Frequencies {
public:
    Frequencies() = default;
    template <detail::SpanOf<const float> Range>
    Frequencies(Range&& data) : c_(View<const float>(data).c()) {}  // NOLINT(google-explicit-constructor)
    template <detail::SpanOf<const double> Range>
    Frequencies(Range&& data) : c_(View<const double>(data).c()) {}  // NOLINT(google-explicit-constructor)
    const attnc_tensor& c() const { return c_; }

private:
    attnc_tensor c_{};
};

enum class Causal {
    kNotGiven = ATTNC_CAUSAL_NOT_GIVEN,
    kNone = ATTNC_CAUSAL_NONE,
    kTopLeft = ATTNC_CAUSAL_TOP_LEFT,
    kBottomRight = ATTNC_CAUSAL_BOTTOM_RIGHT,
    kOffset = ATTNC_CAUSAL_OFFSET,
};

enum class EmptyRows {
    kZero = ATTNC_EMPTY_ROWS_ZERO,
    kMeanOfValues = ATTNC_EMPTY_ROWS_MEAN_OF_VALUES,
    kNan = ATTNC_EMPTY_ROWS_NAN,
};

enum class CacheKind {
    kSlots = ATTNC_CACHE_SLOTS,
    kRing = ATTNC_CACHE_RING,
    kPaged = ATTNC_CACHE_PAGED,
};

enum class CacheUse {
    kAppend = ATTNC_CACHE_APPEND,
    kRead = ATTNC_CACHE_READ,
};

struct Weights {
    Tensor wq, wk, wv, wo;                // [out_features, in_features]
    Tensor bq, bk, bv, bo;                // [out_features]
    Tensor in_proj_weight, in_proj_bias;  // instead of wq, wk, wv and bq, bk, bv
    Tensor bias_k, bias_v;
    Tensor sink;                     // [num_heads]
    Tensor alibi_slopes;             // [num_heads]
    Tensor q_norm, k_norm;           // [head_dim]
    Frequencies rotary_frequencies;  // [rotary.dim / 2], instead of rotary.base
    Tensor rotary_cos, rotary_sin;   // [positions, rotary.dim / 2], instead of frequencies

    attnc_weights c() const {
        attnc_weights w = ATTNC_WEIGHTS_INIT;
        w.wq = wq.c(), w.wk = wk.c(), w.wv = wv.c(), w.wo = wo.c();
        w.bq = bq.c(), w.bk = bk.c(), w.bv = bv.c(), w.bo = bo.c();
        w.in_proj_weight = in_proj_weight.c(), w.in_proj_bias = in_proj_bias.c();
        w.bias_k = bias_k.c(), w.bias_v = bias_v.c();
        w.sink = sink.c(), w.alibi_slopes = alibi_slopes.c();
        w.q_norm = q_norm.c(), w.k_norm = k_norm.c();
        w.rotary_frequencies = rotary_frequencies.c();
        w.rotary_cos = rotary_cos.c(), w.rotary_sin = rotary_sin.c();
        return w;
    }
};

struct LayerOptions {
    std::string target;  // empty: the best one that this machine runs; "cuda": a device
    const attnc_allocator* allocator = nullptr;  // copied; null: malloc and free
    EmptyRows empty_rows = EmptyRows::kZero;
    float qk_scale = 0;  // 0: 1/sqrt(head_dim)
    // Keys that a query sees to the left and to the right of its own on the diagonal; none: all.
    std::optional<int64_t> window_left = std::nullopt;
    std::optional<int64_t> window_right = std::nullopt;
    float softcap = 0;          // 0: none
    float qk_norm_epsilon = 0;  // 0: 1e-6
    attnc_rotary rotary = {};
};

struct Inputs {
    Tensor query, key, value;
    attnc::keep_mask keep_mask;
    attnc::drop_mask drop_mask;
    Tensor bias;
    attnc::key_keep_mask key_keep_mask;
    attnc::key_drop_mask key_drop_mask;
    Tensor key_bias;
    attnc::block_keep_mask block_keep_mask;
    int64_t block_q = 0, block_kv = 0;  // multiples of 16; with block_keep_mask only
    Lengths key_lengths, query_lengths;
    Causal causal = Causal::kNotGiven;
    Lengths causal_offsets;
    Lengths query_cu_seqlens, key_cu_seqlens;  // [batch + 1]: packed tokens
    Lengths position_offsets;                  // [batch]: of row 0; a cache: not given, behind its keys
    Positions query_positions, key_positions;  // instead of counting from the offset
    attnc_cache* cache = nullptr;              // Cache::c()
    CacheUse cache_use = CacheUse::kAppend;
    Lengths cache_slots;              // [batch]; none: item b has slot b
    View<const int32_t> block_table;  // [batch, pages of an item]; paged only
    Lengths cache_lengths;            // [batch]; paged only
    int64_t max_keys = 0;             // of an item after the call; 0: as attnc_inputs has it

    attnc_inputs c() const {
        attnc_inputs in = ATTNC_INPUTS_INIT;
        in.query = query.c(), in.key = key.c(), in.value = value.c();
        in.keep_mask = keep_mask.c(), in.drop_mask = drop_mask.c(), in.bias = bias.c();
        in.key_keep_mask = key_keep_mask.c(), in.key_drop_mask = key_drop_mask.c(),
        in.key_bias = key_bias.c();
        in.block_keep_mask = block_keep_mask.c(), in.block_q = block_q, in.block_kv = block_kv;
        in.key_lengths = key_lengths.c(), in.query_lengths = query_lengths.c();
        in.causal = static_cast<attnc_causal>(causal);
        in.causal_offsets = causal_offsets.c();
        in.query_cu_seqlens = query_cu_seqlens.c(), in.key_cu_seqlens = key_cu_seqlens.c();
        in.position_offsets = position_offsets.c();
        in.query_positions = query_positions.c(), in.key_positions = key_positions.c();
        in.cache = cache;
        if (cache != nullptr) in.cache_use = static_cast<attnc_cache_use>(cache_use);
        in.cache_slots = cache_slots.c(), in.block_table = block_table.c();
        in.cache_lengths = cache_lengths.c();
        in.max_keys = max_keys;
        return in;
    }
};

// Heads that are already projected, to be normalised and rotated: x and out are [batch, seq, heads * head_dim] or
// [batch, heads, seq, head_dim], and may be the same memory.
struct Rotation {
    attnc_heads heads = ATTNC_HEADS_QUERY;
    Tensor x;
    Positions positions;
    Lengths position_offsets;
    MutableTensor out;

    attnc_rotation c() const {
        attnc_rotation r = ATTNC_ROTATION_INIT;
        r.heads = heads;
        r.x = x.c(), r.out = out.c();
        r.positions = positions.c(), r.position_offsets = position_offsets.c();
        return r;
    }
};

enum class ScoresStage {
    kNotGiven = ATTNC_SCORES_NOT_GIVEN,
    kScaled = ATTNC_SCORES_SCALED,
    kSoftcapped = ATTNC_SCORES_SOFTCAPPED,
    kBiased = ATTNC_SCORES_BIASED,
};

struct Outputs {
    MutableTensor out, probs, probs_averaged, lse;
    MutableTensor scores;  // at this stage:
    ScoresStage scores_stage = ScoresStage::kNotGiven;

    attnc_outputs c() const {
        attnc_outputs o = ATTNC_OUTPUTS_INIT;
        o.out = out.c(), o.probs = probs.c(), o.probs_averaged = probs_averaged.c(), o.lse = lse.c();
        o.scores = scores.c(), o.scores_stage = static_cast<attnc_scores_stage>(scores_stage);
        return o;
    }
};

// The largest calls that a Session is made for. max_seq stands for max_seq_q and max_seq_kv where those are
// 0.
struct Limits {
    int64_t max_batch = 1;
    int64_t max_seq = 0;
    int64_t max_seq_q = 0;
    int64_t max_seq_kv = 0;
};

// `threads` threads in all, the calling one among them. Movable; must outlive the sessions that use it.
class ThreadPool {
public:
    explicit ThreadPool(int64_t threads) {
        attnc_error error{};
        attnc_pool* pool = nullptr;
        detail::check(attnc_pool_create(threads, &pool, &error), error);
        pool_.reset(pool);
    }
    const attnc_executor* executor() const { return attnc_pool_executor(pool_.get()); }

private:
    struct Destroy {
        void operator()(attnc_pool* pool) const { attnc_pool_destroy(pool); }
    };
    std::unique_ptr<attnc_pool, Destroy> pool_;
};

// A layer with its packed weights. Move-only and immutable: any number of threads may use one at the same
// time.
class Layer {
public:
    Layer(const attnc_library* library, const Weights& weights, const LayerOptions& options = {}) {
        const attnc_weights w = weights.c();
        attnc_layer_options o = ATTNC_LAYER_OPTIONS_INIT;
        o.target = options.target.empty() ? nullptr : options.target.c_str();
        o.allocator = options.allocator;
        o.empty_rows = static_cast<attnc_empty_rows>(options.empty_rows);
        o.qk_scale = options.qk_scale;
        o.window = static_cast<attnc_window>((options.window_left ? ATTNC_WINDOW_LEFT : 0) |
                                             (options.window_right ? ATTNC_WINDOW_RIGHT : 0));
        o.window_left = options.window_left.value_or(0);
        o.window_right = options.window_right.value_or(0);
        o.softcap = options.softcap;
        o.qk_norm_epsilon = options.qk_norm_epsilon;
        o.rotary = options.rotary;
        attnc_error error{};
        attnc_layer* layer = nullptr;
        detail::check(attnc_layer_create(library, &w, &o, &layer, &error), error);
        layer_.reset(layer);
    }

    const attnc_layer* c() const { return layer_.get(); }
    const char* target() const { return attnc_layer_target(layer_.get()); }
    // Views of its calls are then of the device's memory (DeviceArray), and so is the workspace.
    bool on_device() const { return std::string_view(target()) == "cuda"; }

    // Waits for what the stream, or for null the default one, was given.
    void synchronize(void* stream = nullptr) const {
        attnc_error error{};
        detail::check(attnc_device_synchronize(layer_.get(), stream, &error), error);
    }

    // Bytes of workspace for exactly this call; views without memory will do.
    size_t workspace(const Inputs& inputs, const Outputs& outputs,
                     const attnc_executor* executor = nullptr) const {
        const attnc_inputs in = inputs.c();
        const attnc_outputs out = outputs.c();
        attnc_run run = ATTNC_RUN_INIT;
        run.executor = executor;
        attnc_error error{};
        size_t bytes = 0;
        detail::check(attnc_layer_workspace(layer_.get(), &in, &out, &run, &bytes, &error), error);
        return bytes;
    }

    // Bytes that suffice for every call within the limits.
    size_t workspace_bound(const Limits& limits, int64_t max_concurrency = 1) const {
        attnc_limits l = ATTNC_LIMITS_INIT;
        l.max_batch = limits.max_batch;
        l.max_seq_q = limits.max_seq_q != 0 ? limits.max_seq_q : limits.max_seq;
        l.max_seq_kv = limits.max_seq_kv != 0 ? limits.max_seq_kv : limits.max_seq;
        l.max_concurrency = max_concurrency;
        attnc_error error{};
        size_t bytes = 0;
        detail::check(attnc_layer_workspace_bound(layer_.get(), &l, &bytes, &error), error);
        return bytes;
    }

    // The workspace is aligned to 64 bytes (on a device to 256) and belongs to this call alone. executor null: the calling
    // thread. On a device the work goes to `stream`, null: the default one, and is not waited for.
    void forward(const Inputs& inputs, const Outputs& outputs, std::span<std::byte> workspace,
                 const attnc_executor* executor = nullptr, void* stream = nullptr) const {
        const attnc_inputs in = inputs.c();
        const attnc_outputs out = outputs.c();
        attnc_run run = ATTNC_RUN_INIT;
        run.workspace = workspace.data();
        run.workspace_bytes = workspace.size();
        run.executor = executor;
        run.stream = stream;
        attnc_error error{};
        detail::check(attnc_layer_forward(layer_.get(), &in, &out, &run, &error), error);
    }

    // Applies the layer's norm and rotary embedding to heads, as forward does between projection and attention.
    void rotate(const Rotation& rotation, std::span<std::byte> workspace,
                const attnc_executor* executor = nullptr, void* stream = nullptr) const {
        const attnc_rotation r = rotation.c();
        attnc_run run = ATTNC_RUN_INIT;
        run.workspace = workspace.data();
        run.workspace_bytes = workspace.size();
        run.executor = executor;
        run.stream = stream;
        attnc_error error{};
        detail::check(attnc_layer_rotate(layer_.get(), &r, &run, &error), error);
    }
    size_t rotate_workspace(const attnc_executor* executor = nullptr) const {
        attnc_run run = ATTNC_RUN_INIT;
        run.executor = executor;
        attnc_error error{};
        size_t bytes = 0;
        detail::check(attnc_layer_rotate_workspace(layer_.get(), &run, &bytes, &error), error);
        return bytes;
    }

    // Projects key and value of the inputs into their cache, to be read by many calls.
    void project_memory(const Inputs& inputs, std::span<std::byte> workspace,
                        const attnc_executor* executor = nullptr, void* stream = nullptr) const {
        const attnc_inputs in = memory_inputs(inputs);
        attnc_run run = ATTNC_RUN_INIT;
        run.workspace = workspace.data();
        run.workspace_bytes = workspace.size();
        run.executor = executor;
        run.stream = stream;
        attnc_error error{};
        detail::check(attnc_memory_project(layer_.get(), &in, in.cache, &run, &error), error);
    }
    size_t memory_workspace(const Inputs& inputs, const attnc_executor* executor = nullptr) const {
        const attnc_inputs in = memory_inputs(inputs);
        attnc_run run = ATTNC_RUN_INIT;
        run.executor = executor;
        attnc_error error{};
        size_t bytes = 0;
        detail::check(attnc_memory_workspace(layer_.get(), &in, in.cache, &run, &bytes, &error), error);
        return bytes;
    }

private:
    // A memory is appended; its inputs don't name a use.
    static attnc_inputs memory_inputs(const Inputs& inputs) {
        attnc_inputs in = inputs.c();
        if (inputs.cache_use == CacheUse::kAppend) in.cache_use = ATTNC_CACHE_USE_NOT_GIVEN;
        return in;
    }
    struct Destroy {
        void operator()(attnc_layer* layer) const { attnc_layer_destroy(layer); }
    };
    std::unique_ptr<attnc_layer, Destroy> layer_;
};

// Elements in the memory of a layer's device. Movable; the layer must outlive it.
template <typename T>
class DeviceArray {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    DeviceArray() = default;
    DeviceArray(const Layer& layer, size_t size) : memory_(nullptr, Free{layer.c()}), size_(size) {
        attnc_error error{};
        void* memory = nullptr;
        detail::check(attnc_device_allocate(layer.c(), size * sizeof(T), &memory, &error), error);
        memory_.reset(static_cast<T*>(memory));
    }
    DeviceArray(const Layer& layer, std::span<const T> values, void* stream = nullptr)
        : DeviceArray(layer, values.size()) {
        copy_in(values, stream);
    }

    // To make views of; the elements can't be reached from here.
    std::span<T> span() const { return {memory_.get(), size_}; }
    size_t size() const { return size_; }

    // As many elements as there are. After what the stream was given before; complete on return.
    void copy_in(std::span<const T> values, void* stream = nullptr) {
        check_size(values.size());
        attnc_error error{};
        detail::check(attnc_device_copy_in(memory_.get_deleter().layer, memory_.get(), values.data(),
                                           size_ * sizeof(T), stream, &error),
                      error);
    }
    void copy_out(std::span<T> values, void* stream = nullptr) const {
        check_size(values.size());
        attnc_error error{};
        detail::check(attnc_device_copy_out(memory_.get_deleter().layer, values.data(), memory_.get(),
                                            size_ * sizeof(T), stream, &error),
                      error);
    }

private:
    void check_size(size_t size) const {
        if (size == size_) return;
        throw Error(ATTNC_BAD_EXTENT, "a device array of " + std::to_string(size_) +
                                          " elements does not match a span of " + std::to_string(size));
    }
    struct Free {
        const attnc_layer* layer = nullptr;
        void operator()(T* memory) const { (void)attnc_device_free(layer, memory, nullptr); }
    };
    std::unique_ptr<T, Free> memory_;
    size_t size_ = 0;
};

struct CacheOptions {
    CacheKind kind = CacheKind::kSlots;
    int64_t slots = 0, capacity = 0;  // sequences, and keys of each
    int64_t pages = 0;                // instead of them, where paged

    attnc_cache_options c() const {
        attnc_cache_options o = ATTNC_CACHE_OPTIONS_INIT;
        o.kind = static_cast<attnc_cache_kind>(kind);
        o.slots = slots, o.capacity = capacity, o.pages = pages;
        return o;
    }
};

// Keys first .. first + count of each item.
struct CacheRange {
    Lengths slots;                    // none: item b is slot b
    View<const int32_t> block_table;  // paged only
    int64_t first = 0, count = 0;

    attnc_cache_range c() const {
        attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;
        range.slots = slots.c(), range.block_table = block_table.c();
        range.first = first, range.count = count;
        return range;
    }
};

// Keys and values that stay from call to call, in memory of its own, of a layer on a device there. Movable; must outlive the calls
// that use it, and on a device the layer must outlive it. Throws std::bad_alloc when there is no memory.
//
// On a device the functions below copy at once: the caller has waited for the work that uses the cache. Tensors of export_to and
// import_from are of the device's memory; numbers of slots and pages are the host's.
class Cache {
public:
    Cache(const Layer& layer, const CacheOptions& options)
        : Cache(layer, options, device_room(layer, device_bytes(layer, options))) {}
    // In the caller's memory on the layer's device, aligned to 256 bytes, of at least device_bytes(layer, options).
    Cache(const Layer& layer, const CacheOptions& options, std::span<std::byte> device_memory) {
        create(layer, options, device_memory);
    }

    // Of the layer's device; 0 on a CPU.
    static size_t device_bytes(const Layer& layer, const CacheOptions& options) {
        const attnc_cache_options o = options.c();
        attnc_error error{};
        size_t bytes = 0;
        detail::check(attnc_cache_device_bytes(layer.c(), &o, &bytes, &error), error);
        return bytes;
    }

    attnc_cache* c() const { return cache_; }
    size_t bytes() const { return bytes_; }  // of the host

    int64_t length(int64_t slot) const { return attnc_cache_length(cache_, slot); }
    // Forgets the keys of a slot from `length` on.
    void rewind(int64_t slot, int64_t length) {
        attnc_error error{};
        detail::check(attnc_cache_rewind(cache_, slot, length, &error), error);
    }
    void clear(int64_t slot) { rewind(slot, 0); }
    // Slot i takes over what slot from[i] held, all at once.
    void reorder(std::span<const int64_t> from) {
        attnc_error error{};
        detail::check(attnc_cache_reorder(cache_, from.data(), static_cast<int64_t>(from.size()), &error),
                      error);
    }
    // [batch, num_kv_heads, count, features of a head]; a tensor that isn't given is not written.
    void export_to(const CacheRange& range, const MutableTensor& key, const MutableTensor& value) const {
        const attnc_cache_range r = range.c();
        attnc_error error{};
        detail::check(attnc_cache_export(cache_, &r, &key.c(), &value.c(), &error), error);
    }
    void import_from(const CacheRange& range, const Tensor& key, const Tensor& value) {
        const attnc_cache_range r = range.c();
        attnc_error error{};
        detail::check(attnc_cache_import(cache_, &r, &key.c(), &value.c(), &error), error);
    }

private:
    Cache(const Layer& layer, const CacheOptions& options, DeviceArray<std::byte> device_memory)
        : device_memory_(std::move(device_memory)) {
        create(layer, options, device_memory_.span());
    }
    static DeviceArray<std::byte> device_room(const Layer& layer, size_t bytes) {
        return bytes > 0 ? DeviceArray<std::byte>(layer, bytes) : DeviceArray<std::byte>();
    }
    void create(const Layer& layer, const CacheOptions& options, std::span<std::byte> device_memory) {
        attnc_cache_options o = options.c();
        o.device_memory = device_memory.data(), o.device_bytes = device_memory.size();
        attnc_error error{};
        detail::check(attnc_cache_bytes(layer.c(), &o, &bytes_, &error), error);
        memory_.reset(static_cast<std::byte*>(::operator new (bytes_, std::align_val_t{64})));
        attnc_memory_advise(memory_.get(), bytes_);
        detail::check(attnc_cache_create(layer.c(), &o, memory_.get(), bytes_, &cache_, &error), error);
    }
    struct Free {
        void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
    };
    std::unique_ptr<std::byte, Free> memory_;
    size_t bytes_ = 0;
    attnc_cache* cache_ = nullptr;
    DeviceArray<std::byte> device_memory_;
};

// A layer with a workspace of its own, for one thread at a time; on a device it is there. It grows in reserve() only: a call
// beyond the limits throws ATTNC_WORKSPACE_TOO_SMALL. The layer and the pool (or executor) must outlive it.
class Session {
public:
    Session(const Layer& layer, const Limits& limits, const attnc_executor* executor = nullptr)
        : layer_(&layer), executor_(executor) {
        reserve(limits);
    }
    Session(const Layer& layer, const Limits& limits, const ThreadPool& pool)
        : Session(layer, limits, pool.executor()) {}

    // Makes room for calls within these limits; never gives memory back. Throws std::bad_alloc when there is
    // none.
    void reserve(const Limits& limits) {
        const size_t bytes =
            layer_->workspace_bound(limits, executor_ != nullptr ? executor_->concurrency : 1);
        if (bytes <= bytes_) return;
        workspace_.reset();
        device_workspace_ = {};
        bytes_ = 0;
        if (layer_->on_device()) {
            device_workspace_ = DeviceArray<std::byte>(*layer_, bytes);
            bytes_ = bytes;
            return;
        }
        workspace_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
        attnc_memory_advise(workspace_.get(), bytes);
        bytes_ = bytes;
    }

    // stream: of a device. A call on another one waits for nothing of this session's: it is the caller's to order them.
    void forward(const Inputs& inputs, const Outputs& outputs, void* stream = nullptr) {
        layer_->forward(inputs, outputs, workspace(), executor_, stream);
    }

    void project_memory(const Inputs& inputs, void* stream = nullptr) {
        layer_->project_memory(inputs, workspace(), executor_, stream);
    }

    size_t workspace_bytes() const { return bytes_; }

private:
    std::span<std::byte> workspace() const {
        return layer_->on_device() ? device_workspace_.span()
                                   : std::span<std::byte>(workspace_.get(), bytes_);
    }
    struct Free {
        void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
    };
    const Layer* layer_;
    const attnc_executor* executor_;
    std::unique_ptr<std::byte, Free> workspace_;
    DeviceArray<std::byte> device_workspace_;
    size_t bytes_ = 0;
};

}  // namespace attnc
