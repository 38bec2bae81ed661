#include "compiler/layer_call.h"

#include <unistd.h>

#include <algorithm>

namespace attnc {

namespace {

// Sets of tokens and outputs that are twice as large as a core's cache.
int64_t rotation(const attnc_inputs& inputs, const attnc_outputs& outputs, int64_t most_sets) {
    const int64_t cache = std::max<int64_t>(::sysconf(_SC_LEVEL2_CACHE_SIZE), int64_t{1} << 21);
    int64_t bytes = 1;
    for (const attnc_tensor* tensor : {&inputs.query, &inputs.key, &inputs.value, &outputs.out}) {
        int64_t elements = 1;
        for (int i = 0; i < tensor->rank; ++i) elements *= tensor->extent[i];
        bytes += elements * static_cast<int64_t>(sizeof(float));
    }
    return std::clamp<int64_t>(2 * cache / bytes, 1, most_sets);
}

// Pairs of a query and a key that it sees; the last query sees every key when causal.
double visible_pairs(const Problem& problem) {
    const auto [batch, seq_q, seq_kv] = problem.sizes;
    const double all = static_cast<double>(seq_q) * static_cast<double>(seq_kv);
    if (!problem.config.causal) return all;
    double pairs = 0;
    for (int64_t i = 0; i < seq_q; ++i) {
        pairs += static_cast<double>(std::clamp<int64_t>(i + 1 + seq_kv - seq_q, 0, seq_kv));
    }
    return pairs;
}

}  // namespace

// Self-attention gives one set of tokens, whose projections can then share a pass over them.
LayerCall::Set::Set(const LayerCallSetup& setup, uint64_t seed)
    : tokens(setup.problem, seed), out(static_cast<size_t>(out_elements(setup.problem))) {
    const Config& config = setup.problem.config;
    const Sizes& sizes = setup.problem.sizes;
    const bool self = config.in_proj && sizes.seq_q == sizes.seq_kv && config.k_dim == config.d_model &&
                      config.v_dim == config.d_model;
    inputs.query = tokens.query_view;
    inputs.key = self ? inputs.query : tokens.key_view;
    inputs.value = self ? inputs.query : tokens.value_view;
    outputs.out = out_view(setup.problem, out.data());
    if (setup.adjust) setup.adjust(inputs, outputs);
}

attnc_layer* new_layer(const LayerCallSetup& setup) {
    const GeneratedWeights weights(setup.problem.config, setup.used, 1);
    attnc_layer_options options = ATTNC_LAYER_OPTIONS_INIT;
    if (!setup.target.empty()) options.target = setup.target.c_str();
    if (setup.used.rotary != Rotary::kNone) options.rotary.base = 10000;
    attnc_layer* layer = nullptr;
    attnc_error error;
    check_status(attnc_layer_create(setup.library, &weights.view, &options, &layer, &error), error,
                 "attnc_layer_create");
    return layer;
}

LayerCall::LayerCall(const LayerCallSetup& setup) : problem_(setup.problem) {
    layer_ = new_layer(setup);
    attnc_error error;
    sets_.push_back(std::make_unique<Set>(setup, 0));
    const int64_t sets = rotation(inputs(), outputs(), setup.most_sets);
    for (int64_t set = 1; set < sets; ++set)
        sets_.push_back(std::make_unique<Set>(setup, 100 * static_cast<uint64_t>(set)));
    if (is_on_device(layer_)) {
        for (const auto& set : sets_)
            set->device = std::make_unique<DeviceCall>(layer_, set->inputs, set->outputs);
        return;
    }
    run_.executor = setup.executor;
    check_status(attnc_layer_workspace(layer_, &inputs(), &outputs(), &run_, &run_.workspace_bytes, &error),
                 error, "attnc_layer_workspace");
    workspace_ = std::make_unique<AlignedBytes>(run_.workspace_bytes);
    run_.workspace = workspace_->data();
}

LayerCall::~LayerCall() {
    sets_.clear();  // with their memory on the layer's device
    attnc_layer_destroy(layer_);
}

void LayerCall::call() {
    const Set& set = *sets_[next_++ % sets_.size()];
    if (set.device) {
        set.device->run();
        set.device->wait();
        return;
    }
    attnc_error error;
    check_status(attnc_layer_forward(layer_, &set.inputs, &set.outputs, &run_, &error), error,
                 "attnc_layer_forward");
}

CallOperations call_operations(const Problem& problem) {
    const Config& config = problem.config;
    const auto [batch, seq_q, seq_kv] = problem.sizes;
    const auto operations = [batch = batch](auto... factors) {
        return 2 * static_cast<double>(batch) * (static_cast<double>(factors) * ...);
    };
    CallOperations all;
    all.attend = operations(config.num_heads, config.head_dim + config.v_head_dim, visible_pairs(problem));
    if (config.in_proj) {
        all.project_inputs = operations(seq_q, config.d_model, config.num_heads * config.head_dim) +
                             operations(seq_kv, config.k_dim, config.num_kv_heads * config.head_dim) +
                             operations(seq_kv, config.v_dim, config.num_kv_heads * config.v_head_dim);
    }
    if (config.out_proj)
        all.project_output = operations(seq_q, config.num_heads * config.v_head_dim, config.d_model);
    return all;
}

}  // namespace attnc
