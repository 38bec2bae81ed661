#include "bench/decode_call.h"

#include <numeric>

namespace attnc::bench {

DecodeCall::DecodeCall(const LayerCallSetup& setup, int64_t slots)
    : problem_(setup.problem),
      tokens_(setup.problem, 0),
      out_(static_cast<size_t>(out_elements(setup.problem))),
      slots_(static_cast<size_t>(slots)) {
    const LayerWeights weights(problem_.config, setup.used, 1);
    attnc_layer_options options = ATTNC_LAYER_OPTIONS_INIT;
    if (!setup.target.empty()) options.target = setup.target.c_str();
    attnc_error error;
    check_status(attnc_layer_create(setup.library, &weights.view, &options, &layer_, &error), error,
                 "attnc_layer_create");
    std::iota(slots_.begin(), slots_.end(), 0);
    fill(slots);
    inputs_.query = tokens_.query_view;
    inputs_.cache = cache_;
    inputs_.cache_use = ATTNC_CACHE_READ;
    inputs_.cache_slots = attnc_tensor_1d(ATTNC_I64, slots_.data(), problem_.sizes.batch);
    outputs_.out = out_view(problem_, out_.data());
    run_.executor = setup.executor;
    check_status(attnc_layer_workspace(layer_, &inputs_, &outputs_, &run_, &run_.workspace_bytes, &error),
                 error, "attnc_layer_workspace");
    workspace_ = std::make_unique<AlignedBytes>(run_.workspace_bytes);
    run_.workspace = workspace_->data();
}

void DecodeCall::fill(int64_t slots) {
    attnc_cache_options options = ATTNC_CACHE_OPTIONS_INIT;
    options.slots = slots;
    options.capacity = problem_.sizes.seq_kv;
    attnc_error error;
    size_t bytes = 0;
    check_status(attnc_cache_bytes(layer_, &options, &bytes, &error), error, "attnc_cache_bytes");
    memory_ = std::make_unique<AlignedBytes>(bytes);
    check_status(attnc_cache_create(layer_, &options, memory_->data(), bytes, &cache_, &error), error,
                 "attnc_cache_create");
    for (int64_t slot = 0; slot < slots; ++slot) {
        attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;
        range.slots = attnc_tensor_1d(ATTNC_I64, &slots_[static_cast<size_t>(slot)], 1);
        range.count = problem_.sizes.seq_kv;
        check_status(attnc_cache_import(cache_, &range, &tokens_.key_view, &tokens_.value_view, &error),
                     error, "attnc_cache_import");
    }
}

DecodeCall::~DecodeCall() { attnc_layer_destroy(layer_); }

void DecodeCall::call() {
    inputs_.cache_slots.data = &slots_[next_++ % slots_.size()];
    attnc_error error;
    check_status(attnc_layer_forward(layer_, &inputs_, &outputs_, &run_, &error), error,
                 "attnc_layer_forward");
}

int64_t DecodeCall::bytes() const {
    const Config& config = problem_.config;
    return problem_.sizes.seq_kv * config.num_kv_heads * (config.head_dim + config.v_head_dim) *
           static_cast<int64_t>(sizeof(float));
}

}  // namespace attnc::bench
