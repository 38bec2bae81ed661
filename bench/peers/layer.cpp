// attnc's layer, as a program would call it: weights packed at creation, one workspace, a cache where the problem has one.
#include <memory>
#include <optional>

#include "bench/peers/pool.h"
#include "compiler/layer_data.h"
#include "compiler/load_library.h"
#include "stages/config.h"

using attnc::AlignedBytes;
using attnc::check_status;
using attnc::Config;

namespace {

attnc_tensor weight(const float* data, int64_t rows, int64_t columns) {
    return attnc_tensor_2d(ATTNC_F32, data, rows, columns);
}

attnc_tensor bias(const float* data, int64_t rows) { return attnc_tensor_1d(ATTNC_F32, data, rows); }

attnc_weights weights_view(const Config& config, const BenchWeights& from) {
    const int64_t q = config.num_heads * config.head_dim;
    const int64_t k = config.num_kv_heads * config.head_dim;
    const int64_t v = config.num_kv_heads * config.v_head_dim;
    const int64_t context = config.num_heads * config.v_head_dim;
    attnc_weights to = ATTNC_WEIGHTS_INIT;
    to.wq = weight(from.wq, q, config.d_model);
    to.wk = weight(from.wk, k, config.k_dim);
    to.wv = weight(from.wv, v, config.v_dim);
    to.wo = weight(from.wo, config.d_model, context);
    to.bq = bias(from.bq, q);
    to.bk = bias(from.bk, k);
    to.bv = bias(from.bv, v);
    to.bo = bias(from.bo, config.d_model);
    return to;
}

}  // namespace

struct BenchLayer {
    BenchLayer(const char* command, const char* archive, const BenchProblem& what,
               const BenchWeights& weights, const attnc_executor& executor, bool with_probs)
        : problem(attnc::parse_problem(what.problem)),
          mode(static_cast<BenchMode>(what.mode)),
          lengths(what.lengths),
          probs(with_probs),
          library(archive, attnc::installation_of(command)) {
        attnc_weights view = weights_view(problem.config, weights);
        attnc_error error;
        check_status(attnc_layer_create(library, &view, nullptr, &layer, &error), error,
                     "attnc_layer_create");
        run.executor = &executor;
        if (mode != kBenchTokens) make_cache(what);
        const BenchCall sizes = {};
        attnc_inputs inputs = inputs_of(sizes);
        attnc_outputs outputs = outputs_of(sizes);
        size_t bytes = 0;
        check_status(attnc_layer_workspace(layer, &inputs, &outputs, &run, &bytes, &error), error,
                     "attnc_layer_workspace");
        workspace.emplace(bytes);
        run.workspace = workspace->data();
        run.workspace_bytes = bytes;
    }
    BenchLayer(const BenchLayer&) = delete;
    BenchLayer& operator=(const BenchLayer&) = delete;
    ~BenchLayer() { attnc_layer_destroy(layer); }

    void call(const BenchCall& call) {
        attnc_error error;
        if (mode == kBenchDecode) {  // the same step again
            for (int64_t slot = 0; slot < problem.sizes.batch; ++slot)
                check_status(attnc_cache_rewind(cache, slot, cached(), &error), error, "attnc_cache_rewind");
        }
        attnc_inputs inputs = inputs_of(call);
        attnc_outputs outputs = outputs_of(call);
        check_status(attnc_layer_forward(layer, &inputs, &outputs, &run, &error), error,
                     "attnc_layer_forward");
    }

    attnc::Problem problem;
    BenchMode mode;
    const int32_t* lengths;
    bool probs;
    attnc::LoadedLibrary library;
    attnc_layer* layer = nullptr;
    attnc_cache* cache = nullptr;
    attnc_run run = ATTNC_RUN_INIT;
    std::optional<AlignedBytes> workspace, cache_memory;

private:
    // Keys that the cache holds before a call.
    int64_t cached() const {
        return mode == kBenchDecode ? problem.sizes.seq_kv - problem.sizes.seq_q : problem.sizes.seq_kv;
    }

    void make_cache(const BenchProblem& what) {
        const auto [batch, seq_q, seq_kv] = problem.sizes;
        attnc_cache_options options = ATTNC_CACHE_OPTIONS_INIT;
        options.slots = batch;
        options.capacity = seq_kv;
        attnc_error error;
        size_t bytes = 0;
        check_status(attnc_cache_bytes(layer, &options, &bytes, &error), error, "attnc_cache_bytes");
        cache_memory.emplace(bytes);
        check_status(attnc_cache_create(layer, &options, cache_memory->data(), bytes, &cache, &error), error,
                     "attnc_cache_create");
        attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;
        range.count = cached();
        const Config& config = problem.config;
        const attnc_tensor keys = attnc_tensor_4d(ATTNC_F32, what.cached_keys, batch, config.num_kv_heads,
                                                  range.count, config.head_dim);
        const attnc_tensor values = attnc_tensor_4d(ATTNC_F32, what.cached_values, batch, config.num_kv_heads,
                                                    range.count, config.v_head_dim);
        check_status(attnc_cache_import(cache, &range, &keys, &values, &error), error, "attnc_cache_import");
    }

    attnc_inputs inputs_of(const BenchCall& call) const {
        const auto [batch, seq_q, seq_kv] = problem.sizes;
        attnc_inputs inputs = ATTNC_INPUTS_INIT;
        inputs.query = attnc_tensor_3d(ATTNC_F32, call.query, batch, seq_q, problem.config.d_model);
        if (mode == kBenchTokens && seq_q != seq_kv)
            inputs.key = attnc_tensor_3d(ATTNC_F32, call.key, batch, seq_kv, problem.config.k_dim);
        if (lengths != nullptr)
            inputs.query_lengths = inputs.key_lengths = attnc_tensor_1d(ATTNC_I32, lengths, batch);
        inputs.cache = cache;
        if (mode == kBenchDecode) inputs.cache_use = ATTNC_CACHE_APPEND;
        if (mode == kBenchMemory) inputs.cache_use = ATTNC_CACHE_READ;
        return inputs;
    }

    attnc_outputs outputs_of(const BenchCall& call) const {
        const auto [batch, seq_q, seq_kv] = problem.sizes;
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = attnc_tensor_3d(ATTNC_F32, call.out, batch, seq_q, problem.config.d_model);
        if (probs)
            outputs.probs =
                attnc_tensor_4d(ATTNC_F32, call.probs, batch, problem.config.num_heads, seq_q, seq_kv);
        return outputs;
    }
};

BenchLayer* bench_layer_create(const char* command, const char* archive, const BenchProblem* problem,
                               const BenchWeights* weights, BenchPool* pool, int64_t probs, char* error) {
    BenchLayer* layer = nullptr;
    attnc::without_exceptions(error, [&] {
        layer = new BenchLayer(command, archive, *problem, *weights, pool->executor(), probs != 0);
    });
    return layer;
}

int bench_layer_call(BenchLayer* layer, const BenchCall* call, char* error) {
    return attnc::without_exceptions(error, [&] { layer->call(*call); }) ? 0 : 1;
}

int64_t bench_layer_workspace_bytes(const BenchLayer* layer) {
    return static_cast<int64_t>(layer->workspace->size());
}

const char* bench_layer_target(const BenchLayer* layer) { return attnc_layer_target(layer->layer); }

void bench_layer_destroy(BenchLayer* layer) { delete layer; }
