// The layer as a first program in C++ has it: loops straight from the equations, no blocking, no intrinsics. What the
// compiler makes of them by itself (-O3 -march=native) is the yardstick of "no library at all".
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "bench/peers/pool.h"
#include "stages/config.h"

namespace {

using Body = std::function<void(int64_t first, int64_t last)>;

struct Split {
    const Body* body;
    int64_t count, threads;
};

int split_task(void* data, int64_t thread) {
    const Split& split = *static_cast<const Split*>(data);
    (*split.body)(split.count * thread / split.threads, split.count * (thread + 1) / split.threads);
    return 0;
}

// out[row] = bias + weight x[row], weight [out_features, in_features].
void linear(const float* x, const float* weight, const float* bias, float* out, int64_t rows, int64_t in,
            int64_t features) {
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t feature = 0; feature < features; ++feature) {
            float sum = bias[feature];
            for (int64_t i = 0; i < in; ++i) sum += x[row * in + i] * weight[feature * in + i];
            out[row * features + feature] = sum;
        }
    }
}

}  // namespace

struct BenchNaive {
    BenchNaive(const BenchProblem& what, const BenchWeights& w, BenchPool& threads)
        : problem(attnc::parse_problem(what.problem)), given(what), weights(w), pool(threads) {
        const auto& [config, sizes] = problem;
        q.resize(static_cast<size_t>(sizes.batch * sizes.seq_q * config.num_heads * config.head_dim));
        k.resize(static_cast<size_t>(sizes.batch * sizes.seq_kv * config.num_kv_heads * config.head_dim));
        v.resize(static_cast<size_t>(sizes.batch * sizes.seq_kv * config.num_kv_heads * config.v_head_dim));
        context.resize(static_cast<size_t>(sizes.batch * sizes.seq_q * config.num_heads * config.v_head_dim));
    }

    void call(const BenchCall& call) {
        const auto& [config, sizes] = problem;
        const float* keys = call.key != nullptr ? call.key : call.query;
        const int64_t q_width = config.num_heads * config.head_dim;
        const int64_t k_width = config.num_kv_heads * config.head_dim;
        const int64_t v_width = config.num_kv_heads * config.v_head_dim;
        const int64_t context_width = config.num_heads * config.v_head_dim;
        const auto project = [&](const float* x, const float* weight, const float* bias, float* out,
                                 int64_t rows, int64_t in, int64_t features) {
            split(rows, [&](int64_t first, int64_t last) {
                linear(x + first * in, weight, bias, out + first * features, last - first, in, features);
            });
        };
        project(call.query, weights.wq, weights.bq, q.data(), sizes.batch * sizes.seq_q, config.d_model,
                q_width);
        project(keys, weights.wk, weights.bk, k.data(), sizes.batch * sizes.seq_kv, config.k_dim, k_width);
        project(keys, weights.wv, weights.bv, v.data(), sizes.batch * sizes.seq_kv, config.v_dim, v_width);
        split(sizes.batch * config.num_heads * sizes.seq_q, [&](int64_t first, int64_t last) {
            std::vector<float> scores(static_cast<size_t>(sizes.seq_kv));
            for (int64_t row = first; row < last; ++row) attend(row, scores, call.probs);
        });
        project(context.data(), weights.wo, weights.bo, call.out, sizes.batch * sizes.seq_q, context_width,
                config.d_model);
    }

    void attend(int64_t row, std::vector<float>& scores, float* probs) {
        const auto& [config, sizes] = problem;
        const int64_t query = row % sizes.seq_q;
        const int64_t head = row / sizes.seq_q % config.num_heads;
        const int64_t item = row / sizes.seq_q / config.num_heads;
        const int64_t kv_head = head / (config.num_heads / config.num_kv_heads);
        const int64_t length = given.lengths != nullptr ? given.lengths[item] : sizes.seq_kv;
        const int64_t seen =
            config.causal ? std::min(length, query + 1 + sizes.seq_kv - sizes.seq_q) : length;
        const float scale = 1 / std::sqrt(static_cast<float>(config.head_dim));
        const float* one_q = &q[static_cast<size_t>(((item * sizes.seq_q + query) * config.num_heads + head) *
                                                    config.head_dim)];
        float largest = -INFINITY;
        for (int64_t key = 0; key < seen; ++key) {
            const float* one_k = &k[static_cast<size_t>(
                ((item * sizes.seq_kv + key) * config.num_kv_heads + kv_head) * config.head_dim)];
            float sum = 0;
            for (int64_t i = 0; i < config.head_dim; ++i) sum += one_q[i] * one_k[i];
            scores[static_cast<size_t>(key)] = sum * scale;
            largest = std::max(largest, sum * scale);
        }
        float total = 0;
        for (int64_t key = 0; key < seen; ++key) {
            scores[static_cast<size_t>(key)] = std::exp(scores[static_cast<size_t>(key)] - largest);
            total += scores[static_cast<size_t>(key)];
        }
        float* one_context = &context[static_cast<size_t>(
            ((item * sizes.seq_q + query) * config.num_heads + head) * config.v_head_dim)];
        std::fill_n(one_context, config.v_head_dim, 0.0F);
        for (int64_t key = 0; key < seen; ++key) {
            const float weight = scores[static_cast<size_t>(key)] / total;
            if (probs != nullptr) probs[row * sizes.seq_kv + key] = weight;
            const float* one_v = &v[static_cast<size_t>(
                ((item * sizes.seq_kv + key) * config.num_kv_heads + kv_head) * config.v_head_dim)];
            for (int64_t i = 0; i < config.v_head_dim; ++i) one_context[i] += weight * one_v[i];
        }
    }

    // Rows first .. last of `count`, an equal part on each thread.
    void split(int64_t count, const Body& body) {
        Split data{&body, count, pool.threads};
        const attnc_executor& executor = pool.executor();
        executor.parallel_for(executor.context, pool.threads, split_task, &data);
    }

    attnc::Problem problem;
    BenchProblem given;
    BenchWeights weights;
    BenchPool& pool;
    std::vector<float> q, k, v, context;
};

BenchNaive* bench_naive_create(const BenchProblem* problem, const BenchWeights* weights, BenchPool* pool,
                               char* error) {
    BenchNaive* layer = nullptr;
    attnc::without_exceptions(error, [&] { layer = new BenchNaive(*problem, *weights, *pool); });
    return layer;
}

int bench_naive_call(BenchNaive* layer, const BenchCall* call, char* error) {
    return attnc::without_exceptions(error, [&] { layer->call(*call); }) ? 0 : 1;
}

void bench_naive_destroy(BenchNaive* layer) { delete layer; }
