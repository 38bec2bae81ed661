#include "tests/harness/cached_run.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace attnc::test {
namespace {

// Rows first .. first + count of dimension `dim`; an extent of 1 is broadcast and stays.
template <typename T>
Array<T> rows_of(const Array<T>& array, size_t dim, int64_t first, int64_t count) {
    if (!array.given() || (array.shape[dim] == 1 && dim >= 2)) return array;
    int64_t inner = 1, outer = 1;
    for (size_t i = 0; i < array.shape.size(); ++i) {
        if (i < dim) outer *= array.shape[i];
        if (i > dim) inner *= array.shape[i];
    }
    Array<T> result = array;
    result.shape[dim] = count;
    result.values.clear();
    for (int64_t o = 0; o < outer; ++o) {
        const auto begin = array.values.begin() + (o * array.shape[dim] + first) * inner;
        result.values.insert(result.values.end(), begin, begin + count * inner);
    }
    return result;
}

// Copies of tensors between guard pages.
class Tensors {
public:
    attnc_tensor copy(attnc_tensor t) {
        if (t.rank == 0) return t;
        size_t bytes = t.dtype == ATTNC_U8 ? 1 : t.dtype == ATTNC_I64 ? 8 : 4;
        for (int i = 0; i < t.rank; ++i) bytes *= static_cast<size_t>(t.extent[i]);
        memory_.emplace_back(bytes, Placement::kAtEnd);
        if (bytes > 0) std::memcpy(memory_.back().data(), t.data, bytes);
        t.data = memory_.back().data();
        return t;
    }

private:
    std::vector<GuardedMemory> memory_;
};

}  // namespace

LayerCall part_of(const LayerCall& call, const Part& part) {
    LayerCall result = call;
    const int64_t end = part.first_key + part.keys;
    result.sizes.seq_q = part.queries;
    result.sizes.seq_kv = end;
    result.query = rows_of(call.query, 1, part.first_query, part.queries);
    for (auto* tokens : {&result.key, &result.value})
        *tokens = rows_of(*tokens, 1, part.first_key, part.keys);
    for (auto* mask : {&result.keep_mask, &result.drop_mask}) {
        *mask = rows_of(*mask, 2, part.first_query, part.queries);
        *mask = rows_of(*mask, 3, 0, end);
    }
    result.bias = rows_of(rows_of(call.bias, 2, part.first_query, part.queries), 3, 0, end);
    for (auto* mask : {&result.key_keep_mask, &result.key_drop_mask}) *mask = rows_of(*mask, 1, 0, end);
    result.key_bias = rows_of(call.key_bias, 1, 0, end);
    return result;
}

LayerCall self_attention(std::string_view problem, uint64_t seed) {
    LayerCall call = random_call(problem, seed);
    call.key = {}, call.value = {};
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    return call;
}

LayerCall appended(const LayerCall& call, int64_t first, int64_t count) {
    return part_of(call, {first, count, first, count});
}

LayerCall whole(const LayerCall& call, int64_t first, int64_t count) {
    LayerCall all = call;
    if (!all.key.given()) all.key = all.query;
    return part_of(all, {first, count, 0, first + count});
}

CachedLayer::CachedLayer(const attnc_library* library, const LayerCall& model, const CacheShape& shape,
                         const char* target)
    : config_(model.config),
      shape_(shape),
      on_device_(target != nullptr && std::string_view(target) == "cuda"),
      lengths_(static_cast<size_t>(shape.slots)) {
    attnc_error error = {};
    const attnc_weights weights = model.weights();
    attnc_layer_options options = model.options();
    options.target = target;
    attnc_layer* layer = nullptr;
    EXPECT_EQ(attnc_layer_create(library, &weights, &options, &layer, &error), ATTNC_OK) << error.text;
    layer_.reset(layer);
    attnc_cache_options cache = ATTNC_CACHE_OPTIONS_INIT;
    cache.kind = shape.kind;
    if (shape.kind == ATTNC_CACHE_PAGED) {
        const int64_t page = model.config.page_size;
        cache.pages = shape.slots * ((shape.capacity + page - 1) / page) + 1;
    } else {
        cache.slots = shape.slots, cache.capacity = shape.capacity;
    }
    size_t bytes = 0;
    EXPECT_EQ(attnc_cache_bytes(layer, &cache, &bytes, &error), ATTNC_OK) << error.text;
    memory_ = std::make_unique<GuardedMemory>(bytes, Placement::kAtEnd, 64);
    size_t device_bytes = 0;
    EXPECT_EQ(attnc_cache_device_bytes(layer, &cache, &device_bytes, &error), ATTNC_OK) << error.text;
    if (on_device_) {
        device_memory_ = std::make_unique<GuardedMemory>(device_bytes, Placement::kAtEnd, 256);
        cache.device_memory = device_memory_->data(), cache.device_bytes = device_bytes;
    }
    EXPECT_EQ(attnc_cache_create(layer, &cache, memory_->data(), bytes, &cache_, &error), ATTNC_OK)
        << error.text;
}

int64_t CachedLayer::length(int64_t slot) const {
    return shape_.kind == ATTNC_CACHE_PAGED ? lengths_[static_cast<size_t>(slot)]
                                            : attnc_cache_length(cache_, slot);
}

void CachedLayer::place(attnc_inputs& in, Places& places, const std::vector<int64_t>& slots,
                        int64_t batch) const {
    in.cache = cache_;
    places.slots = slots;
    for (int64_t b = 0; slots.empty() && b < batch; ++b) places.slots.push_back(b);
    if (shape_.kind != ATTNC_CACHE_PAGED) {
        if (!slots.empty()) in.cache_slots = attnc_tensor_1d(ATTNC_I64, places.slots.data(), batch);
        return;
    }
    // Page n of sequence s lies far from page n + 1, and no two are neighbours in order.
    const int64_t page = config_.page_size, each = (shape_.capacity + page - 1) / page;
    for (const int64_t slot : places.slots) {
        places.lengths.push_back(lengths_[static_cast<size_t>(slot)]);
        for (int64_t n = 0; n < each; ++n)
            places.table.push_back(static_cast<int32_t>((each - 1 - n) * shape_.slots + slot + 1));
    }
    in.block_table = attnc_tensor_2d(ATTNC_I32, places.table.data(), batch, each);
    in.cache_lengths = attnc_tensor_1d(ATTNC_I64, places.lengths.data(), batch);
}

void CachedLayer::grow(const LayerCall& call, const std::vector<int64_t>& slots) {
    if (shape_.kind != ATTNC_CACHE_PAGED) return;
    const int64_t rows = call.key.given() ? call.key.shape[1] : call.sizes.seq_q;
    for (int64_t b = 0; b < call.sizes.batch; ++b) {
        const int64_t slot = slots.empty() ? b : slots[static_cast<size_t>(b)];
        lengths_[static_cast<size_t>(slot)] += call.key_lengths.given() ? call.key_lengths.at(b) : rows;
    }
}

attnc_status CachedLayer::wait(attnc_status launched, attnc_error* error) const {
    if (!on_device_) return launched;
    // What a refused call has launched still has the workspace.
    const attnc_status waited =
        attnc_device_synchronize(layer_.get(), nullptr, launched == ATTNC_OK ? error : nullptr);
    return launched == ATTNC_OK ? waited : launched;
}

RunResult CachedLayer::append(const LayerCall& call, const std::vector<int64_t>& slots,
                              const attnc_executor* executor) {
    attnc_inputs in = call.inputs();
    Places places;
    place(in, places, slots, call.sizes.batch);
    RunResult result = run(call, in, executor);
    if (result.status == ATTNC_OK) grow(call, slots);
    return result;
}

RunResult CachedLayer::read(const LayerCall& call, const std::vector<int64_t>& slots,
                            const attnc_executor* executor) {
    attnc_inputs in = call.inputs();
    in.key = in.value = in.key_lengths = {};
    in.cache_use = ATTNC_CACHE_READ;
    Places places;
    place(in, places, slots, call.sizes.batch);
    return run(call, in, executor);
}

RunResult CachedLayer::append_packed(const LayerCall& call, const std::vector<int64_t>& slots,
                                     const Packing& packing) {
    Places places;
    RunResult result = run_packed(layer_.get(), call, packing,
                                  [&](attnc_inputs& in) { place(in, places, slots, call.sizes.batch); });
    if (result.status == ATTNC_OK) grow(call, slots);
    return result;
}

RunResult CachedLayer::read_packed(const LayerCall& call, const std::vector<int64_t>& slots) {
    LayerCall queries = call;
    queries.key = queries.value = {};
    Places places;
    return run_packed(layer_.get(), queries, {}, [&](attnc_inputs& in) {
        in.cache_use = ATTNC_CACHE_READ;
        place(in, places, slots, call.sizes.batch);
    });
}

RunResult CachedLayer::plain(const LayerCall& call) { return run(call, call.inputs()); }

RunResult CachedLayer::memory(const LayerCall& call, const std::vector<int64_t>& slots) {
    attnc_inputs in = ATTNC_INPUTS_INIT;
    in.key = call.key.view(), in.value = call.value.view(), in.key_lengths = call.key_lengths.view();
    return project(call, in, slots);
}

RunResult CachedLayer::memory_packed(const LayerCall& call, const std::vector<int64_t>& slots) {
    Array<int64_t> starts = {{1}, {0}};
    for (int64_t b = 0; b < call.sizes.batch; ++b, ++starts.shape[0])
        starts.values.push_back(starts.values.back() + call.key_lengths.at(b));
    Array<float> key, value;
    for (const auto& [from, to] : {std::pair(&call.key, &key), std::pair(&call.value, &value)}) {
        to->shape = {starts.values.back(), from->shape[2]};
        for (int64_t b = 0; b < call.sizes.batch; ++b) {
            const auto first = from->values.begin() + b * from->shape[1] * from->shape[2];
            to->values.insert(to->values.end(), first, first + call.key_lengths.at(b) * from->shape[2]);
        }
    }
    attnc_inputs in = ATTNC_INPUTS_INIT;
    in.key = key.view(), in.value = value.view(), in.key_cu_seqlens = starts.view();
    return project(call, in, slots);
}

// An attnc_memory_project with these inputs.
RunResult CachedLayer::project(const LayerCall& call, attnc_inputs in, const std::vector<int64_t>& slots) {
    RunResult result;
    attnc_error error = {};
    Tensors tensors;
    for (attnc_tensor* t : {&in.key, &in.value, &in.key_lengths, &in.key_cu_seqlens}) *t = tensors.copy(*t);
    Places places;
    place(in, places, slots, call.sizes.batch);
    if (on_device_) in.max_keys = call.sizes.seq_kv;
    attnc_run run = ATTNC_RUN_INIT;
    result.status = attnc_memory_workspace(layer_.get(), &in, cache_, &run, &run.workspace_bytes, &error);
    if (result.status == ATTNC_OK) {
        const GuardedMemory workspace = workspace_of(run.workspace_bytes);
        run.workspace = workspace.data();
        result.status = wait(attnc_memory_project(layer_.get(), &in, cache_, &run, &error), &error);
    }
    result.error = error.text;
    if (result.status == ATTNC_OK) grow(call, slots);
    return result;
}

RunResult CachedLayer::run(const LayerCall& call, attnc_inputs in, const attnc_executor* executor) const {
    RunResult result;
    attnc_error error = {};
    Tensors tensors;
    for (attnc_tensor* t :
         {&in.query, &in.key, &in.value, &in.keep_mask, &in.drop_mask, &in.bias, &in.key_keep_mask,
          &in.key_drop_mask, &in.key_bias, &in.key_lengths, &in.query_lengths, &in.causal_offsets,
          &in.cache_slots, &in.block_table, &in.cache_lengths})
        *t = tensors.copy(*t);
    if (on_device_ && in.cache != nullptr) in.max_keys = call.sizes.seq_kv;
    const int64_t batch = call.sizes.batch, seq = call.sizes.seq_q, heads = config_.num_heads;
    const int64_t features = config_.out_proj ? config_.d_model : heads * config_.v_head_dim;
    Array<float> out = filled<float>({batch, seq, features}, 7), probs, averaged, lse;
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = out.view();
    if (call.probs) {
        probs = filled<float>({batch, heads, seq, call.keys()}, 7);
        outputs.probs = probs.view();
    }
    if (call.probs_averaged) {
        averaged = filled<float>({batch, seq, call.keys()}, 7);
        outputs.probs_averaged = averaged.view();
    }
    if (call.lse) {
        lse = filled<float>({batch, heads, seq}, 7);
        outputs.lse = lse.view();
    }
    attnc_run run = ATTNC_RUN_INIT;
    run.executor = executor;
    result.status = attnc_layer_workspace(layer_.get(), &in, &outputs, &run, &run.workspace_bytes, &error);
    if (result.status == ATTNC_OK) {
        attnc_limits limits = ATTNC_LIMITS_INIT;
        limits.max_batch = std::max<int64_t>(batch, 1);
        limits.max_seq_q = std::max<int64_t>(seq, 1);
        const int64_t rows = in.key.rank != 0 ? in.key.extent[1] : seq;
        limits.max_seq_kv = std::max<int64_t>({call.sizes.seq_kv, rows, 1});
        limits.max_concurrency = executor != nullptr ? executor->concurrency : 1;
        size_t bound = 0;
        EXPECT_EQ(attnc_layer_workspace_bound(layer_.get(), &limits, &bound, nullptr), ATTNC_OK);
        EXPECT_GE(bound, run.workspace_bytes);
        const GuardedMemory workspace = workspace_of(run.workspace_bytes);
        run.workspace = workspace.data();
        result.status = wait(attnc_layer_forward(layer_.get(), &in, &outputs, &run, &error), &error);
    }
    result.error = error.text;
    if (result.status != ATTNC_OK) return result;
    result.out = out.values, result.probs = probs.values;
    result.probs_averaged = averaged.values, result.lse = lse.values;
    return result;
}

}  // namespace attnc::test
