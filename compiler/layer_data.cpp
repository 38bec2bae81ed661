#include "compiler/layer_data.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "support/random.h"

namespace attnc {

namespace {

// A weight [outputs, inputs] that keeps the size of what goes through it.
std::vector<float> random_weight(int64_t outputs, int64_t inputs, uint64_t seed) {
    const double amplitude = std::sqrt(3.0 / static_cast<double>(inputs));
    return generated(outputs * inputs, seed, static_cast<float>(amplitude));
}

attnc_tensor matrix(const std::vector<float>& values, int64_t rows, int64_t columns) {
    return attnc_tensor_2d(ATTNC_F32, values.data(), rows, columns);
}

attnc_tensor vector_view(const std::vector<float>& values) {
    return attnc_tensor_1d(ATTNC_F32, values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace

GeneratedWeights::GeneratedWeights(const Config& config, const Config& used, uint64_t seed) {
    constexpr float kBias = 0.25F;
    const int64_t q = config.num_heads * config.head_dim;
    const int64_t k = config.num_kv_heads * config.head_dim;
    const int64_t v = config.num_kv_heads * config.v_head_dim;
    const int64_t merged = config.num_heads * config.v_head_dim;
    if (config.in_proj) {
        wq = random_weight(q, config.d_model, seed + 1);
        wk = random_weight(k, config.k_dim, seed + 2);
        wv = random_weight(v, config.v_dim, seed + 3);
        bq = generated(q, seed + 4, kBias);
        bk = generated(k, seed + 5, kBias);
        bv = generated(v, seed + 6, kBias);
        view.wq = matrix(wq, q, config.d_model);
        view.wk = matrix(wk, k, config.k_dim);
        view.wv = matrix(wv, v, config.v_dim);
        view.bq = vector_view(bq);
        view.bk = vector_view(bk);
        view.bv = vector_view(bv);
    }
    if (config.out_proj) {
        wo = random_weight(config.d_model, merged, seed + 7);
        bo = generated(config.d_model, seed + 8, kBias);
        view.wo = matrix(wo, config.d_model, merged);
        view.bo = vector_view(bo);
    }
    if (config.bias_kv) {
        bias_k = generated(k, seed + 9, 1);
        bias_v = generated(v, seed + 10, 1);
        view.bias_k = vector_view(bias_k);
        view.bias_v = vector_view(bias_v);
    }
    if (config.sink && used.sink) {
        sink = generated(config.num_heads, seed + 11, 2);
        view.sink = vector_view(sink);
    }
    if (config.alibi && used.alibi) {
        alibi_slopes = generated(config.num_heads, seed + 12, 0.5F);
        for (float& slope : alibi_slopes) slope = std::fabs(slope);
        view.alibi_slopes = vector_view(alibi_slopes);
    }
    if (config.qk_norm && used.qk_norm) {
        q_norm = generated(config.head_dim, seed + 13, 2);
        k_norm = generated(config.head_dim, seed + 14, 2);
        view.q_norm = vector_view(q_norm);
        view.k_norm = vector_view(k_norm);
    }
}

LayerTokens::LayerTokens(const Problem& problem, uint64_t seed) {
    const Config& config = problem.config;
    const auto [batch, seq_q, seq_kv] = problem.sizes;
    const auto make = [&, batch = batch](std::vector<float>& values, attnc_tensor& view, uint64_t which,
                                         int64_t seq, int64_t heads, int64_t head_dim, int64_t width) {
        values = generated(batch * seq * width, seed + which, 1);
        view = config.in_proj ? attnc_tensor_3d(ATTNC_F32, values.data(), batch, seq, width)
                              : attnc_tensor_4d(ATTNC_F32, values.data(), batch, heads, seq, head_dim);
    };
    const bool in = config.in_proj;
    const int64_t q = config.num_heads * config.head_dim;
    const int64_t k = config.num_kv_heads * config.head_dim;
    const int64_t v = config.num_kv_heads * config.v_head_dim;
    make(query, query_view, 20, seq_q, config.num_heads, config.head_dim, in ? config.d_model : q);
    make(key, key_view, 21, seq_kv, config.num_kv_heads, config.head_dim, in ? config.k_dim : k);
    make(value, value_view, 22, seq_kv, config.num_kv_heads, config.v_head_dim, in ? config.v_dim : v);
}

int64_t out_elements(const Problem& problem) {
    const Config& config = problem.config;
    const int64_t width = config.out_proj ? config.d_model : config.num_heads * config.v_head_dim;
    return problem.sizes.batch * problem.sizes.seq_q * width;
}

attnc_tensor out_view(const Problem& problem, float* data) {
    const Config& config = problem.config;
    const auto [batch, seq_q, seq_kv] = problem.sizes;
    if (!config.in_proj && !config.out_proj) {
        return attnc_tensor_4d(ATTNC_F32, data, batch, config.num_heads, seq_q, config.v_head_dim);
    }
    const int64_t width = config.out_proj ? config.d_model : config.num_heads * config.v_head_dim;
    return attnc_tensor_3d(ATTNC_F32, data, batch, seq_q, width);
}

AlignedBytes::AlignedBytes(size_t bytes) : bytes_(bytes) {
    constexpr size_t kAlignment = 64;
    data_ = std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
    if (data_ == nullptr) throw std::bad_alloc();
    attnc_memory_advise(data_, bytes);
}

AlignedBytes::~AlignedBytes() { std::free(data_); }

void check_status(attnc_status status, const attnc_error& error, const char* function) {
    if (status != ATTNC_OK) throw StatusError(status, fmt::format("{}: {}", function, error.text));
}

}  // namespace attnc
