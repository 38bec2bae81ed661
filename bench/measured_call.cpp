#include "bench/measured_call.h"

#include <algorithm>
#include <utility>

#include "compiler/cached_call.h"

namespace attnc::bench {

namespace {

constexpr double kFloat = sizeof(float);

double product(auto... factors) { return (static_cast<double>(factors) * ...); }

// Bytes that a part of a layer has to read and write at least.
struct Traffic {
    double project_inputs, attend, project_output;
};

Traffic traffic_of(const Problem& problem) {
    const Config& c = problem.config;
    const auto [batch, seq_q, seq_kv] = problem.sizes;
    const int64_t new_keys = c.cache ? std::min(seq_q, seq_kv) : seq_kv;
    const int64_t q = c.num_heads * c.head_dim, k = c.num_kv_heads * c.head_dim,
                  v = c.num_kv_heads * c.v_head_dim;
    const int64_t context = c.num_heads * c.v_head_dim;
    const double heads = product(batch, seq_q, q) + product(batch, new_keys, k + v);
    const double weights = product(c.d_model, q) + product(c.k_dim, k) + product(c.v_dim, v);
    const bool self = seq_q == new_keys && c.k_dim == c.d_model && c.v_dim == c.d_model;
    const double tokens =
        product(batch, seq_q, c.d_model) + (self ? 0 : product(batch, new_keys, c.k_dim + c.v_dim));
    const double attended = product(batch, seq_q, q + context) + product(batch, seq_kv, k + v);
    const double output = product(context, c.d_model) + product(batch, seq_q, context + c.d_model);
    return {c.in_proj ? kFloat * (weights + tokens + heads) : 0, kFloat * attended,
            c.out_proj ? kFloat * output : 0};
}

// What crosses the border of the whole layer: heads and context stay inside.
double layer_traffic(const Problem& problem) {
    const Config& c = problem.config;
    const auto [batch, seq_q, seq_kv] = problem.sizes;
    const Traffic all = traffic_of(problem);
    const double q_heads = product(batch, seq_q, c.num_heads, c.head_dim);
    const double kv_heads = product(batch, seq_kv, c.num_kv_heads, c.head_dim + c.v_head_dim);
    const double context = product(batch, seq_q, c.num_heads, c.v_head_dim);
    double bytes = all.project_inputs + all.attend + all.project_output;
    if (c.in_proj) bytes -= kFloat * (2 * q_heads + (c.cache ? 0 : 2 * kv_heads));
    if (c.out_proj) bytes -= kFloat * 2 * context;
    return bytes;
}

}  // namespace

std::string to_string(const CallName& name) {
    return std::string(name.stage ? stage_name(*name.stage) : "layer") + "/" +
           to_string(name.problem.config) + "/" + to_string(name.problem.sizes) +
           "/threads:" + std::to_string(name.threads);
}

MeasuredCall make_call(const CallName& name, Libraries& libraries, const TimingPool& pool) {
    const std::string target = best_target();
    const Problem& problem = name.problem;
    const LayerCallSetup setup = {problem, problem.config,  libraries.get(problem.config, target),
                                  target,  pool.executor(), {}};
    const CallOperations operations = call_operations(problem);
    if (!name.stage && problem.config.cache) {
        const auto call = std::make_shared<CachedCall>(setup);
        return {[call] { call->call(); }, operations.all(), layer_traffic(problem)};
    }
    const auto layer = std::make_shared<LayerCall>(setup);
    if (!name.stage) return {[layer] { layer->call(); }, operations.all(), layer_traffic(problem)};
    const auto stage = std::make_shared<StageCall>(*layer, *name.stage);
    const Traffic traffic = traffic_of(problem);
    const double bytes[] = {traffic.project_inputs, traffic.attend, traffic.project_output};
    return {[layer, stage] { stage->call(); }, operations_of(operations, *name.stage),
            bytes[static_cast<int>(*name.stage)]};
}

std::vector<CallName> stages_of(const Problem& problem, int threads) {
    if (problem.config.cache) return {};
    CallName name = {problem, {}, threads};
    std::vector<CallName> stages;
    const auto add = [&](Stage stage) {
        name.stage = stage;
        stages.push_back(name);
    };
    if (problem.config.in_proj) add(Stage::kProjectInputs);
    add(Stage::kAttend);
    if (problem.config.out_proj) add(Stage::kProjectOutput);
    return stages;
}

}  // namespace attnc::bench
