#include "compiler/cached_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "support/random.h"

namespace attnc {

namespace {

// Tokens of the call alone: seq_q new ones.
Problem new_tokens(Problem problem) {
    problem.sizes.seq_kv = problem.sizes.seq_q;
    return problem;
}

}  // namespace

CachedCall::CachedCall(const LayerCallSetup& setup, int64_t batches)
    : problem_(setup.problem),
      held_(problem_.sizes.seq_kv - (problem_.config.in_proj ? problem_.sizes.seq_q : 0)),
      tokens_(new_tokens(problem_), 0),
      out_(static_cast<size_t>(out_elements(problem_))),
      slots_(static_cast<size_t>(problem_.sizes.batch * batches)) {
    if (held_ < 0) throw std::runtime_error(fmt::format("{}: more new keys than keys", to_string(problem_)));
    layer_ = new_layer(setup);
    on_device_ = is_on_device(layer_);
    attnc_error error;
    std::iota(slots_.begin(), slots_.end(), 0);
    make_cache(static_cast<int64_t>(slots_.size()));
    inputs_.query = tokens_.query_view;
    inputs_.cache = cache_->cache();
    inputs_.cache_use = problem_.config.in_proj ? ATTNC_CACHE_APPEND : ATTNC_CACHE_READ;
    outputs_.out = out_view(problem_, out_.data());
    if (setup.adjust) setup.adjust(inputs_, outputs_);
    place();
    run_.executor = setup.executor;
    check_status(
        attnc_layer_workspace(layer_, &inputs_, &placed_outputs_, &run_, &run_.workspace_bytes, &error),
        error, "attnc_layer_workspace");
    workspace_ = std::make_unique<PlacedWorkspace>(layer_, run_.workspace_bytes);
    run_.workspace = workspace_->data();
}

void CachedCall::make_cache(int64_t slots) {
    const Config& config = problem_.config;
    attnc_cache_options options = ATTNC_CACHE_OPTIONS_INIT;
    options.slots = slots;
    options.capacity = problem_.sizes.seq_kv;
    cache_ = std::make_unique<PlacedCache>(layer_, options);
    if (held_ == 0) return;
    const std::vector<float> keys = generated(config.num_kv_heads * held_ * config.head_dim, 31, 1);
    const std::vector<float> values = generated(config.num_kv_heads * held_ * config.v_head_dim, 32, 1);
    const PlacedTensor key(
        layer_, attnc_tensor_4d(ATTNC_F32, keys.data(), 1, config.num_kv_heads, held_, config.head_dim));
    const PlacedTensor value(
        layer_, attnc_tensor_4d(ATTNC_F32, values.data(), 1, config.num_kv_heads, held_, config.v_head_dim));
    const attnc_tensor key_view = key.view(), value_view = value.view();
    for (const int64_t& slot : slots_) {
        attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;
        range.slots = attnc_tensor_1d(ATTNC_I64, &slot, 1);
        range.count = held_;
        attnc_error error;
        check_status(attnc_cache_import(cache_->cache(), &range, &key_view, &value_view, &error), error,
                     "attnc_cache_import");
    }
}

// Every tensor where calls want it.
void CachedCall::place() {
    placed_outputs_ = outputs_;
    const auto move = [&](attnc_tensor& tensor) {
        placed_.push_back(std::make_unique<PlacedTensor>(layer_, tensor));
        tensor = placed_.back()->view();
    };
    attnc_inputs& in = inputs_;
    for (attnc_tensor* tensor :
         {&in.query, &in.keep_mask, &in.drop_mask, &in.bias, &in.key_keep_mask, &in.key_drop_mask,
          &in.key_bias, &in.key_lengths, &in.query_lengths, &in.causal_offsets, &in.block_keep_mask,
          &in.position_offsets, &in.query_positions, &in.key_positions})
        move(*tensor);
    attnc_outputs& out = placed_outputs_;
    for (attnc_tensor* tensor : {&out.out, &out.probs, &out.probs_averaged, &out.lse, &out.scores})
        move(*tensor);
    attnc_tensor slots = attnc_tensor_1d(ATTNC_I64, slots_.data(), static_cast<int64_t>(slots_.size()));
    move(slots);
    placed_slots_ = static_cast<const int64_t*>(slots.data);
    in.cache_slots = attnc_tensor_1d(ATTNC_I64, placed_slots_, problem_.sizes.batch);
}

CachedCall::~CachedCall() {
    placed_.clear();  // with the rest of the memory on the layer's device
    workspace_.reset();
    cache_.reset();
    attnc_layer_destroy(layer_);
}

void CachedCall::call() {
    const auto batch = static_cast<size_t>(problem_.sizes.batch);
    const size_t first = batch * (next_++ % (slots_.size() / std::max<size_t>(batch, 1)));
    inputs_.cache_slots = attnc_tensor_1d(ATTNC_I64, placed_slots_ + first, problem_.sizes.batch);
    attnc_error error;
    check_status(attnc_layer_forward(layer_, &inputs_, &placed_outputs_, &run_, &error), error,
                 "attnc_layer_forward");
    if (on_device_) {
        check_status(attnc_device_synchronize(layer_, nullptr, &error), error, "attnc_device_synchronize");
    }
    if (inputs_.cache_use == ATTNC_CACHE_READ) return;
    for (size_t i = first; i < first + batch; ++i) {
        check_status(attnc_cache_rewind(cache_->cache(), slots_[i], held_, &error), error,
                     "attnc_cache_rewind");
    }
}

int64_t kv_bytes(const Problem& problem) {
    const Config& config = problem.config;
    return problem.sizes.batch * problem.sizes.seq_kv * config.num_kv_heads *
           (config.head_dim + config.v_head_dim) * static_cast<int64_t>(sizeof(float));
}

}  // namespace attnc
