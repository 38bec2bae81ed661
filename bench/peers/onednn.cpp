// The layer from oneDNN's primitives, as somebody would write it for inference: weights reordered once to the layout that
// matmul asks for, heads split and merged by strides, scores, softmax in place, scores times values.
#include <omp.h>

#include <cmath>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "bench/peers/pool.h"
#include "stages/config.h"

using dnnl::matmul;
using dnnl::memory;
using Dims = memory::dims;

namespace {

memory::desc strided(const Dims& dims, const Dims& strides) {
    return {dims, memory::data_type::f32, strides};
}

memory::desc dense(const Dims& dims) {
    Dims strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
    return strided(dims, strides);
}

}  // namespace

struct BenchOnednn {
    BenchOnednn(const BenchProblem& what, const BenchWeights& weights, int64_t thread_count)
        : problem(attnc::parse_problem(what.problem)),
          mode(static_cast<BenchMode>(what.mode)),
          threads(thread_count) {
        omp_set_num_threads(static_cast<int>(threads));
        const auto& [config, sizes] = problem;
        const auto [batch, seq_q, seq_kv] = sizes;
        const int64_t heads = config.num_heads, hd = config.head_dim, d = config.d_model;
        if (config.num_kv_heads != heads) throw std::runtime_error("no grouped heads");
        appended = mode == kBenchTokens ? seq_kv : mode == kBenchDecode ? seq_q : 0;
        q = linear(batch * seq_q, d, heads * hd, weights.wq, weights.bq);
        if (appended > 0) {
            k = linear(batch * appended, d, heads * hd, weights.wk, weights.bk);
            v = linear(batch * appended, d, heads * hd, weights.wv, weights.bv);
        }
        context = empty(dense({batch * seq_q, heads * hd}));
        o = linear(batch * seq_q, heads * hd, d, weights.wo, weights.bo);
        scores = empty(dense({batch, heads, seq_q, seq_kv}));
        if (mode != kBenchTokens) fill_cache(what);
        make_attention(what);
    }

    void call(const BenchCall& call) {
        omp_set_num_threads(static_cast<int>(threads));
        const float* keys = call.key != nullptr ? call.key : call.query;
        run(q, call.query, nullptr);
        if (appended > 0) {
            run(k, keys, nullptr);
            run(v, keys, nullptr);
        }
        if (mode == kBenchDecode) append();
        score_product.execute(stream, score_arguments);
        softmax.execute(stream, {{DNNL_ARG_SRC, scores}, {DNNL_ARG_DST, scores}});
        value_product.execute(stream, value_arguments);
        run(o, static_cast<const float*>(context.get_data_handle()), call.out);
        stream.wait();
        if (call.probs != nullptr)
            std::memcpy(call.probs, scores.get_data_handle(), scores.get_desc().get_size());
    }

private:
    using Arguments = std::unordered_map<int, memory>;
    struct Linear {
        matmul primitive;
        memory from, weight, bias, to;
    };

    memory empty(const memory::desc& desc) { return {desc, engine}; }
    memory view(const memory::desc& desc, const void* data) {
        return {desc, engine, const_cast<void*>(data)};
    }

    Linear linear(int64_t rows, int64_t in, int64_t features, const float* weight, const float* bias) {
        const memory::desc packed({in, features}, memory::data_type::f32, memory::format_tag::any);
        const memory::desc from = dense({rows, in}), to = dense({rows, features}), one = dense({1, features});
        const matmul::primitive_desc what(matmul::desc(from, packed, one, to), engine);
        Linear made = {matmul(what), view(from, nullptr), empty(what.weights_desc()), view(one, bias),
                       empty(to)};
        memory given = view(strided({in, features}, {1, in}), weight);
        dnnl::reorder(given, made.weight).execute(stream, given, made.weight);
        stream.wait();
        return made;
    }

    // Into `to`, or into the layer's own memory.
    void run(Linear& layer, const float* from, float* to) {
        layer.from.set_data_handle(const_cast<float*>(from));
        memory target = to != nullptr ? view(layer.to.get_desc(), to) : layer.to;
        layer.primitive.execute(stream, {{DNNL_ARG_SRC, layer.from},
                                         {DNNL_ARG_WEIGHTS, layer.weight},
                                         {DNNL_ARG_BIAS, layer.bias},
                                         {DNNL_ARG_DST, target}});
    }

    void fill_cache(const BenchProblem& what) {
        const auto [batch, seq_q, seq_kv] = problem.sizes;
        const auto hd = static_cast<size_t>(problem.config.head_dim);
        const int64_t heads = batch * problem.config.num_heads, cached = seq_kv - appended;
        key_cache.resize(static_cast<size_t>(heads * seq_kv) * hd);
        value_cache.resize(key_cache.size());
        const auto row = [&](int64_t head, int64_t rows) { return static_cast<size_t>(head * rows) * hd; };
        for (int64_t head = 0; head < heads; ++head) {
            const size_t bytes = row(1, cached) * sizeof(float);
            std::memcpy(&key_cache[row(head, seq_kv)], what.cached_keys + row(head, cached), bytes);
            std::memcpy(&value_cache[row(head, seq_kv)], what.cached_values + row(head, cached), bytes);
        }
    }

    // The step's own keys behind those of the cache.
    void append() {
        const auto [batch, seq_q, seq_kv] = problem.sizes;
        const int64_t heads = problem.config.num_heads, hd = problem.config.head_dim;
        const auto* new_k = static_cast<const float*>(k.to.get_data_handle());
        const auto* new_v = static_cast<const float*>(v.to.get_data_handle());
        for (int64_t item = 0; item < batch; ++item) {
            for (int64_t row = 0; row < appended; ++row) {
                for (int64_t head = 0; head < heads; ++head) {
                    const int64_t from = ((item * appended + row) * heads + head) * hd;
                    const int64_t to = ((item * heads + head) * seq_kv + seq_kv - appended + row) * hd;
                    const size_t bytes = static_cast<size_t>(hd) * sizeof(float);
                    std::memcpy(&key_cache[static_cast<size_t>(to)], new_k + from, bytes);
                    std::memcpy(&value_cache[static_cast<size_t>(to)], new_v + from, bytes);
                }
            }
        }
    }

    void make_attention(const BenchProblem& what) {
        const auto& [config, sizes] = problem;
        const auto [batch, seq_q, seq_kv] = sizes;
        const int64_t heads = config.num_heads, hd = config.head_dim, row = heads * hd;
        const bool cached = mode != kBenchTokens;
        const auto split = [&](int64_t seq) {
            return strided({batch, heads, seq, hd}, {seq * row, hd, row, 1});
        };
        const memory::desc value = cached ? dense({batch, heads, seq_kv, hd}) : split(seq_kv);
        const memory::desc key = cached
                                     ? strided({batch, heads, hd, seq_kv}, {row * seq_kv, hd * seq_kv, 1, hd})
                                     : strided({batch, heads, hd, seq_kv}, {seq_kv * row, hd, 1, row});
        dnnl::primitive_attr attributes;
        attributes.set_output_scales(0, {1 / std::sqrt(static_cast<float>(hd))});
        const memory::desc mask = make_mask(what);
        if (!mask_values.empty()) {
            dnnl::post_ops after;
            after.append_binary(dnnl::algorithm::binary_add, mask);
            attributes.set_post_ops(after);
        }
        score_product = matmul(
            matmul::primitive_desc(matmul::desc(split(seq_q), key, scores.get_desc()), attributes, engine));
        score_arguments = {{DNNL_ARG_SRC, view(split(seq_q), q.to.get_data_handle())},
                           {DNNL_ARG_WEIGHTS, view(key, cached ? key_cache.data() : k.to.get_data_handle())},
                           {DNNL_ARG_DST, scores}};
        if (!mask_values.empty())
            score_arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
                                    view(mask, mask_values.data()));
        softmax = dnnl::softmax_forward(dnnl::softmax_forward::primitive_desc(
            {dnnl::prop_kind::forward_inference, scores.get_desc(), 3}, engine));
        value_product =
            matmul(matmul::primitive_desc(matmul::desc(scores.get_desc(), value, split(seq_q)), engine));
        value_arguments = {
            {DNNL_ARG_SRC, scores},
            {DNNL_ARG_WEIGHTS, view(value, cached ? value_cache.data() : v.to.get_data_handle())},
            {DNNL_ARG_DST, view(split(seq_q), context.get_data_handle())}};
    }

    // A number for each key of an item, or for each pair of a causal call; mask_values stays empty where all are seen.
    memory::desc make_mask(const BenchProblem& what) {
        const auto [batch, seq_q, seq_kv] = problem.sizes;
        constexpr float kDropped = -1e30F;
        if (what.lengths != nullptr) {
            mask_values.assign(static_cast<size_t>(batch * seq_kv), 0);
            for (int64_t item = 0; item < batch; ++item) {
                for (int64_t key = what.lengths[item]; key < seq_kv; ++key)
                    mask_values[static_cast<size_t>(item * seq_kv + key)] = kDropped;
            }
            return dense({batch, 1, 1, seq_kv});
        }
        if (problem.config.causal && mode == kBenchTokens) {
            mask_values.assign(static_cast<size_t>(seq_q * seq_kv), 0);
            for (int64_t query = 0; query < seq_q; ++query) {
                for (int64_t key = query + 1; key < seq_kv; ++key)
                    mask_values[static_cast<size_t>(query * seq_kv + key)] = kDropped;
            }
        }
        return dense({1, 1, seq_q, seq_kv});
    }

    attnc::Problem problem;
    BenchMode mode;
    int64_t threads;
    int64_t appended = 0;  // keys that the call projects, of each item
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    Linear q, k, v, o;
    memory context, scores;
    std::vector<float> key_cache, value_cache, mask_values;
    matmul score_product, value_product;
    dnnl::softmax_forward softmax;
    Arguments score_arguments, value_arguments;
};

extern "C" {

const char* bench_onednn_version() {
    static const std::string text = std::to_string(dnnl_version()->major) + '.' +
                                    std::to_string(dnnl_version()->minor) + '.' +
                                    std::to_string(dnnl_version()->patch);
    return text.c_str();
}

BenchOnednn* bench_onednn_create(const BenchProblem* problem, const BenchWeights* weights, int64_t threads,
                                 char* error) {
    BenchOnednn* layer = nullptr;
    attnc::without_exceptions(error, [&] { layer = new BenchOnednn(*problem, *weights, threads); });
    return layer;
}

int bench_onednn_call(BenchOnednn* layer, const BenchCall* call, char* error) {
    return attnc::without_exceptions(error, [&] { layer->call(*call); }) ? 0 : 1;
}

void bench_onednn_destroy(BenchOnednn* layer) { delete layer; }
}
