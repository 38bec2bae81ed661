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
    attnc_error error;
    std::iota(slots_.begin(), slots_.end(), 0);
    make_cache(static_cast<int64_t>(slots_.size()));
    inputs_.query = tokens_.query_view;
    inputs_.cache = cache_;
    inputs_.cache_use = problem_.config.in_proj ? ATTNC_CACHE_APPEND : ATTNC_CACHE_READ;
    inputs_.cache_slots = attnc_tensor_1d(ATTNC_I64, slots_.data(), problem_.sizes.batch);
    outputs_.out = out_view(problem_, out_.data());
    if (setup.adjust) setup.adjust(inputs_, outputs_);
    run_.executor = setup.executor;
    check_status(attnc_layer_workspace(layer_, &inputs_, &outputs_, &run_, &run_.workspace_bytes, &error),
                 error, "attnc_layer_workspace");
    workspace_ = std::make_unique<AlignedBytes>(run_.workspace_bytes);
    run_.workspace = workspace_->data();
}

void CachedCall::make_cache(int64_t slots) {
    const Config& config = problem_.config;
    keys_ = generated(config.num_kv_heads * held_ * config.head_dim, 31, 1);
    values_ = generated(config.num_kv_heads * held_ * config.v_head_dim, 32, 1);
    attnc_cache_options options = ATTNC_CACHE_OPTIONS_INIT;
    options.slots = slots;
    options.capacity = problem_.sizes.seq_kv;
    attnc_error error;
    size_t bytes = 0;
    check_status(attnc_cache_bytes(layer_, &options, &bytes, &error), error, "attnc_cache_bytes");
    memory_ = std::make_unique<AlignedBytes>(bytes);
    check_status(attnc_cache_create(layer_, &options, memory_->data(), bytes, &cache_, &error), error,
                 "attnc_cache_create");
    if (held_ == 0) return;
    for (int64_t slot = 0; slot < slots; ++slot) fill(slot);
}

void CachedCall::fill(int64_t slot) {
    const Config& config = problem_.config;
    const attnc_tensor keys =
        attnc_tensor_4d(ATTNC_F32, keys_.data(), 1, config.num_kv_heads, held_, config.head_dim);
    const attnc_tensor values =
        attnc_tensor_4d(ATTNC_F32, values_.data(), 1, config.num_kv_heads, held_, config.v_head_dim);
    attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;
    range.slots = attnc_tensor_1d(ATTNC_I64, &slots_[static_cast<size_t>(slot)], 1);
    range.count = held_;
    attnc_error error;
    check_status(attnc_cache_import(cache_, &range, &keys, &values, &error), error, "attnc_cache_import");
}

CachedCall::~CachedCall() { attnc_layer_destroy(layer_); }

void CachedCall::call() {
    const auto batch = static_cast<size_t>(problem_.sizes.batch);
    const size_t first = batch * (next_++ % (slots_.size() / std::max<size_t>(batch, 1)));
    inputs_.cache_slots.data = &slots_[first];
    attnc_error error;
    check_status(attnc_layer_forward(layer_, &inputs_, &outputs_, &run_, &error), error,
                 "attnc_layer_forward");
    if (inputs_.cache_use == ATTNC_CACHE_READ) return;
    for (size_t i = first; i < first + batch; ++i)
        check_status(attnc_cache_rewind(cache_, slots_[i], held_, &error), error, "attnc_cache_rewind");
}

int64_t kv_bytes(const Problem& problem) {
    const Config& config = problem.config;
    return problem.sizes.batch * problem.sizes.seq_kv * config.num_kv_heads *
           (config.head_dim + config.v_head_dim) * static_cast<int64_t>(sizeof(float));
}

}  // namespace attnc
