#include "tests/support/fake_run.h"

#include <bit>
#include <cstring>
#include <thread>

#include "support/comparison.h"
#include "tests/harness/guarded_memory.h"

namespace attnc::test {
namespace {

using ParallelFor = int (*)(void*, int64_t, int (*)(void*, int64_t), void*);

int run_in_order(void*, int64_t count, int (*task)(void*, int64_t), void* data) {
    int result = 0;
    for (int64_t i = 0; i < count; ++i) result |= task(data, i);
    return result;
}

int run_backwards(void*, int64_t count, int (*task)(void*, int64_t), void* data) {
    int result = 0;
    for (int64_t i = count; i-- > 0;) result |= task(data, i);
    return result;
}

int run_threads(void*, int64_t count, int (*task)(void*, int64_t), void* data) {
    std::vector<std::thread> threads;
    std::atomic<int> result{0};
    for (int64_t i = 0; i < count; ++i) threads.emplace_back([&, i] { result |= task(data, i); });
    for (auto& thread : threads) thread.join();
    return result;
}

// A strided copy of a tensor, or room for one, on guarded memory; what lies between its rows is filled with
// NaN.
class Strided {
public:
    Strided(const attnc_tensor& dense, size_t element, bool pad, const FakeOptions& options) : view(dense) {
        if (dense.rank == 0) return;
        int64_t stride = 1;
        for (int i = dense.rank; i-- > 0;) {
            view.stride[i] = stride;
            stride *= dense.extent[i];
            if (pad && i == dense.rank - 1) stride += options.row_gap;
            if (pad && i == 1) stride += options.item_gap;
        }
        int64_t last = 0;
        bool empty = false;
        for (int i = 0; i < dense.rank; ++i) {
            last += (dense.extent[i] - 1) * view.stride[i];
            empty = empty || dense.extent[i] == 0;
        }
        count_ = empty ? 0 : last + 1;
        memory_ = std::make_unique<GuardedMemory>(static_cast<size_t>(count_) * element, Placement::kAtEnd,
                                                  element);
        view.data = memory_->data();
        if (dense.data == nullptr || count_ == 0) return;
        copy(dense, view, element);
    }

    std::vector<float> dense_values() const {
        std::vector<float> values;
        for_each(view, [&](int64_t offset, int64_t) {
            values.push_back(static_cast<const float*>(view.data)[offset]);
        });
        return values;
    }
    // Elements that belong to no index still have the bits they were made with.
    bool gaps_untouched() const {
        std::vector<bool> used(static_cast<size_t>(count_));
        for_each(view, [&](int64_t offset, int64_t) { used[static_cast<size_t>(offset)] = true; });
        for (int64_t i = 0; i < count_; ++i) {
            if (!used[static_cast<size_t>(i)] &&
                std::bit_cast<uint32_t>(static_cast<const float*>(view.data)[i]) != 0xffffffff) {
                return false;
            }
        }
        return true;
    }

    attnc_tensor view;

private:
    template <typename Function>
    static void for_each(const attnc_tensor& t, const Function& function) {
        int64_t total = t.rank > 0 ? 1 : 0;
        for (int i = 0; i < t.rank; ++i) total *= t.extent[i];
        for (int64_t n = 0; n < total; ++n) {
            int64_t rest = n, offset = 0;
            for (int i = t.rank; i-- > 0;) {
                offset += rest % t.extent[i] * t.stride[i];
                rest /= t.extent[i];
            }
            function(offset, n);
        }
    }
    static void copy(const attnc_tensor& from, const attnc_tensor& to, size_t element) {
        for_each(to, [&](int64_t offset, int64_t n) {
            std::memcpy(static_cast<char*>(to.data) + static_cast<size_t>(offset) * element,
                        static_cast<const char*>(from.data) + static_cast<size_t>(n) * element, element);
        });
    }
    int64_t count_ = 0;
    std::unique_ptr<GuardedMemory> memory_;
};

// [batch, seq, heads * features] to [batch, heads, seq, features].
Array<float> split(const Array<float>& tokens, int64_t heads) {
    const int64_t batch = tokens.shape[0], seq = tokens.shape[1], features = tokens.shape[2] / heads;
    Array<float> result = filled<float>({batch, heads, seq, features}, 0);
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t i = 0; i < seq; ++i) {
            for (int64_t n = 0; n < heads * features; ++n) {
                result.at(b, n / features, i, n % features) = tokens.at(b, i, n);
            }
        }
    }
    return result;
}

std::vector<float> merged(const std::vector<float>& out, int64_t batch, int64_t heads, int64_t seq,
                          int64_t features) {
    std::vector<float> result(out.size());
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t i = 0; i < seq; ++i) {
            for (int64_t n = 0; n < heads * features; ++n) {
                result[static_cast<size_t>((b * seq + i) * heads * features + n)] = out[static_cast<size_t>(
                    ((b * heads + n / features) * seq + i) * features + n % features)];
            }
        }
    }
    return result;
}

attnc_tensor shape_of(std::initializer_list<int64_t> extents) {
    attnc_tensor t = {};
    t.dtype = ATTNC_F32;
    t.rank = static_cast<int32_t>(extents.size());
    int i = 0;
    for (const int64_t extent : extents) t.extent[i++] = extent;
    return t;
}

// Every tensor of a call on memory of its own.
struct Placed {
    std::vector<std::unique_ptr<Strided>> tensors;
    std::vector<Array<float>> splits;
    std::vector<std::vector<int32_t>> narrow;
    const FakeOptions& options;

    attnc_tensor place(const attnc_tensor& t, bool pad = true) {
        if (t.rank == 0) return t;
        const size_t element = t.dtype == ATTNC_U8 ? 1 : t.dtype == ATTNC_I64 ? 8 : 4;
        tensors.push_back(std::make_unique<Strided>(t, element, pad, options));
        return tensors.back()->view;
    }
    attnc_tensor tokens(const Array<float>& array, int64_t heads) {
        if (!array.given() || !options.rank4) return place(array.view());
        splits.push_back(split(array, heads));
        return place(splits.back().view());
    }
    attnc_tensor lengths(const Array<int64_t>& array) {
        if (!array.given() || options.wide_lengths) return place(array.view(), false);
        narrow.emplace_back(array.values.begin(), array.values.end());
        attnc_tensor t = array.view();
        t.dtype = ATTNC_I32;
        t.data = narrow.back().data();
        return place(t, false);
    }
};

void check_bound(const attnc_layer* layer, const LayerCall& call, int64_t concurrency, size_t workspace) {
    attnc_limits limits = ATTNC_LIMITS_INIT;
    limits.max_batch = std::max<int64_t>(call.sizes.batch, 1);
    limits.max_seq_q = std::max<int64_t>(call.sizes.seq_q, 1);
    limits.max_seq_kv = std::max<int64_t>(call.sizes.seq_kv, 1);
    limits.max_concurrency = concurrency;
    size_t bound = 0, larger = 0;
    EXPECT_EQ(attnc_layer_workspace_bound(layer, &limits, &bound, nullptr), ATTNC_OK);
    EXPECT_GE(bound, workspace);
    for (int64_t* limit :
         {&limits.max_batch, &limits.max_seq_q, &limits.max_seq_kv, &limits.max_concurrency}) {
        *limit += 1;
        EXPECT_EQ(attnc_layer_workspace_bound(layer, &limits, &larger, nullptr), ATTNC_OK);
        EXPECT_GE(larger, bound);
        bound = larger;
    }
}

}  // namespace

LayerPointer make_layer(const FakeLibrary& library, const LayerCall& call, attnc_error* error,
                        const char* target) {
    const attnc_weights weights = call.weights();
    attnc_layer_options options = call.options();
    options.target = target;
    attnc_layer* layer = nullptr;
    attnc_layer_create(library.get(), &weights, &options, &layer, error);
    return LayerPointer(layer);
}

FakeResult run_fake(const LayerCall& call, const FakeOptions& options) {
    FakeResult result;
    attnc_error error = {};
    const Config& c = call.config;
    FakeLayout layout = options.layout;
    layout.device = options.device;
    const FakeLibrary library(c, layout);
    const LayerPointer layer = make_layer(library, call, &error, options.device ? "cuda" : nullptr);
    if (layer == nullptr) return {error.code, error.text, {}, {}, {}, {}, {}, 0};

    Placed placed{{}, {}, {}, options};
    placed.splits.reserve(3);
    attnc_inputs in = call.inputs();
    in.query = placed.tokens(call.query, c.num_heads);
    in.key = placed.tokens(call.key, c.num_kv_heads);
    in.value = placed.tokens(call.value, c.num_kv_heads);
    for (attnc_tensor* t : {&in.keep_mask, &in.drop_mask, &in.bias, &in.block_keep_mask})
        *t = placed.place(*t);
    for (attnc_tensor* t : {&in.key_keep_mask, &in.key_drop_mask, &in.key_bias}) *t = placed.place(*t);
    in.key_lengths = placed.lengths(call.key_lengths);
    in.query_lengths = placed.lengths(call.query_lengths);
    in.causal_offsets = placed.lengths(call.causal_offsets);
    in.position_offsets = placed.lengths(call.position_offsets);
    in.query_positions = placed.lengths(call.query_positions);
    in.key_positions = placed.lengths(call.key_positions);

    const int64_t batch = call.sizes.batch, seq = call.sizes.seq_q;
    const bool split_out = options.rank4 && !c.out_proj;
    attnc_tensor out_shape = shape_of({batch, seq, c.out_proj ? c.d_model : c.num_heads * c.v_head_dim});
    if (split_out) out_shape = shape_of({batch, c.num_heads, seq, c.v_head_dim});
    Strided out(out_shape, 4, true, options);
    Strided probs(call.probs ? shape_of({batch, c.num_heads, seq, call.keys()}) : attnc_tensor{}, 4, true,
                  options);
    Strided averaged(call.probs_averaged ? shape_of({batch, seq, call.keys()}) : attnc_tensor{}, 4, true,
                     options);
    Strided lse(call.lse ? shape_of({batch, c.num_heads, seq}) : attnc_tensor{}, 4, true, options);
    const bool wants_scores = call.scores_stage != ATTNC_SCORES_NOT_GIVEN;
    Strided scores(wants_scores ? shape_of({batch, c.num_heads, seq, call.sizes.seq_kv}) : attnc_tensor{}, 4,
                   true, options);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.scores = scores.view, outputs.scores_stage = call.scores_stage;
    outputs.out = out.view, outputs.probs = probs.view, outputs.probs_averaged = averaged.view;
    outputs.lse = lse.view;

    constexpr ParallelFor kRun[] = {nullptr, run_in_order, run_backwards, run_threads};
    const attnc_executor executor = {nullptr, options.concurrency, kRun[static_cast<int>(options.executor)]};
    attnc_run run = ATTNC_RUN_INIT;
    if (options.executor != FakeExecutor::kNone) run.executor = &executor;
    result.status = attnc_layer_workspace(layer.get(), &in, &outputs, &run, &result.workspace_bytes, &error);
    if (result.status == ATTNC_OK) {
        check_bound(layer.get(), call, options.concurrency, result.workspace_bytes);
        const GuardedMemory workspace(result.workspace_bytes, Placement::kAtEnd, options.device ? 256 : 64);
        run.stream = options.stream;
        run.workspace = workspace.data();
        run.workspace_bytes = result.workspace_bytes;
        result.status = attnc_layer_forward(layer.get(), &in, &outputs, &run, &error);
        if (options.device) {
            EXPECT_EQ(attnc_device_synchronize(layer.get(), options.stream, nullptr), ATTNC_OK);
        }
    }
    if (result.status != ATTNC_OK) {
        result.error = error.text;
        return result;
    }
    for (const Strided* t : {&out, &probs, &averaged, &lse, &scores}) EXPECT_TRUE(t->gaps_untouched());
    result.out = out.dense_values();
    if (split_out) result.out = merged(result.out, batch, c.num_heads, seq, c.v_head_dim);
    result.probs = probs.dense_values();
    result.probs_averaged = averaged.dense_values();
    result.lse = lse.dense_values();
    result.scores = scores.dense_values();
    return result;
}

::testing::AssertionResult matches(const LayerCall& call, const FakeResult& got, const KeyBlocks& blocks) {
    const std::string what =
        to_string(Problem{call.config, call.sizes}) + " seed " + std::to_string(call.seed);
    if (got.status != ATTNC_OK) return ::testing::AssertionFailure() << what << ": " << got.error;
    const Reference want = call.reference();
    Reference have = want;
    const auto widened = [](const std::vector<float>& values) {
        return std::vector<double>(values.begin(), values.end());
    };
    have.context.clear();
    have.out = widened(got.out), have.probs = widened(got.probs);
    have.probs_averaged = widened(got.probs_averaged), have.lse = widened(got.lse);
    have.scores = widened(got.scores);
    if (have.out.size() != want.out.size()) return ::testing::AssertionFailure() << what << ": size of out";
    const LayerComparison comparison = compare_layer(call.config, have, want, blocks);
    if (comparison.ok()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << what << ": " << comparison.text();
}

::testing::AssertionResult matches(const LayerCall& call, const FakeOptions& options) {
    KeyBlocks blocks = {options.layout.tile_kv, options.layout.split_kv};
    if (options.device) blocks = {kFakeDeviceTile, kFakeDeviceSplit};
    return matches(call, run_fake(call, options), blocks);
}

::testing::AssertionResult equal_bits(const FakeResult& a, const FakeResult& b) {
    const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
        return x.size() == y.size() &&
               (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
    };
    if (a.status != ATTNC_OK || b.status != ATTNC_OK)
        return ::testing::AssertionFailure() << a.error << b.error;
    if (!same(a.out, b.out)) return ::testing::AssertionFailure() << "out differs";
    if (!same(a.probs, b.probs)) return ::testing::AssertionFailure() << "probs differ";
    if (!same(a.probs_averaged, b.probs_averaged))
        return ::testing::AssertionFailure() << "probs_averaged differ";
    if (!same(a.lse, b.lse)) return ::testing::AssertionFailure() << "lse differs";
    return ::testing::AssertionSuccess();
}

}  // namespace attnc::test
