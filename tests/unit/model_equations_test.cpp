// A loaded layer computes what its model computes: the float64 reference with the loaded weights and options, against
// the model's own equations, written here as the model's code has them and on the checkpoint's own tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "models/layer_arguments.h"
#include "support/reference.h"
#include "tests/unit/model_files.h"

namespace attnc::test {
namespace {

constexpr int kTokens = 12;
constexpr int kWidth = 16;   // d_model
constexpr int kHeadDim = 8;  // two heads of queries

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// What differs between models; positions, queries and keys count from 0.
struct Equations {
    int kv_heads = 1;
    double scale = 1 / std::sqrt(double{kHeadDim});
    double norm_epsilon = 0;  // 0: no norm
    double norm_plus = 0;
    std::function<Row(Row head, int position)> rotate;
    std::function<double(double score)> cap = [](double score) { return score; };
    std::function<double(int head, int query, int key)> bias = [](int, int, int) { return 0.0; };
    std::function<bool(int query, int key)> visible = [](int, int) { return true; };  // beside causal
};

class ModelEquations : public testing::Test {
protected:
    void SetUp() override {
        for (int t = 0; t < kTokens; ++t) {
            for (int i = 0; i < kWidth; ++i)
                tokens_.push_back(static_cast<float>((5 * t * t + 3 * i * i + 7 * t * i) % 23) / 32 - 0.3F);
        }
    }

    void add_llama_like(int kv_heads, bool biases) {
        for (const auto& [name, features] : {std::pair{"q", kWidth},
                                             {"k", kv_heads * kHeadDim},
                                             {"v", kv_heads * kHeadDim},
                                             {"o", kWidth}}) {
            tensors_.add(begin_ + name + "_proj.weight", {features, kWidth});
            if (biases) tensors_.add(begin_ + name + "_proj.bias", {features});
        }
    }

    // y = x W^T + b, with no bias where the checkpoint has none.
    Row linear(const std::string& name, const Row& x, int features) const {
        const std::vector<float>& weight = tensors_[begin_ + name + ".weight"];
        Row y(static_cast<size_t>(features));
        for (size_t o = 0; o < y.size(); ++o) {
            if (tensors_.contains(begin_ + name + ".bias")) y[o] = tensors_[begin_ + name + ".bias"][o];
            for (size_t i = 0; i < x.size(); ++i) y[o] += x[i] * weight[o * x.size() + i];
        }
        return y;
    }

    Row head_of(const Row& row, int head) const {
        return {row.begin() + head * kHeadDim, row.begin() + (head + 1) * kHeadDim};
    }

    Row prepared(Row head, const char* norm, int position, const Equations& model) const {
        if (model.norm_epsilon != 0) {
            double squares = 0;
            for (const double x : head) squares += x * x;
            const double root = std::sqrt(squares / kHeadDim + model.norm_epsilon);
            for (size_t i = 0; i < head.size(); ++i)
                head[i] *= (model.norm_plus + tensors_[begin_ + norm + ".weight"][i]) / root;
        }
        return model.rotate ? model.rotate(std::move(head), position) : head;
    }

    // All of a layer of a descendant of Llama; its output, row by row.
    Row computed(const Equations& model) const {
        Rows q, k, v;
        for (int t = 0; t < kTokens; ++t) {
            const Row x(tokens_.begin() + t * kWidth, tokens_.begin() + (t + 1) * kWidth);
            q.push_back(linear("q_proj", x, kWidth));
            k.push_back(linear("k_proj", x, model.kv_heads * kHeadDim));
            v.push_back(linear("v_proj", x, model.kv_heads * kHeadDim));
        }
        Row out;
        for (int i = 0; i < kTokens; ++i) {
            Row context;
            for (int head = 0; head < 2; ++head) attend(model, q, k, v, head, i, context);
            const Row projected = linear("o_proj", context, kWidth);
            out.insert(out.end(), projected.begin(), projected.end());
        }
        return out;
    }

    void attend(const Equations& model, const Rows& q, const Rows& k, const Rows& v, int head, int i,
                Row& context) const {
        const int kv_head = head * model.kv_heads / 2;
        const Row query = prepared(head_of(q[static_cast<size_t>(i)], head), "q_norm", i, model);
        Row sum(kHeadDim);
        double total = tensors_.contains(begin_ + "sinks")
                           ? std::exp(double{tensors_[begin_ + "sinks"][static_cast<size_t>(head)]})
                           : 0;
        for (int j = 0; j <= i; ++j) {
            if (!model.visible(i, j)) continue;
            const Row key = prepared(head_of(k[static_cast<size_t>(j)], kv_head), "k_norm", j, model);
            double score = 0;
            for (size_t d = 0; d < query.size(); ++d) score += query[d] * key[d];
            const double weight = std::exp(model.cap(score * model.scale) + model.bias(head, i, j));
            const Row value = head_of(v[static_cast<size_t>(j)], kv_head);
            for (size_t d = 0; d < sum.size(); ++d) sum[d] += weight * value[d];
            total += weight;
        }
        for (const double x : sum) context.push_back(x / total);
    }

    void expect_the_same(const std::string& config, const std::string& layer, const Equations& model) {
        folder_.write("config.json", config);
        tensors_.write(folder_ / "model.safetensors");
        const LoadedLayer loaded = load_model_layer(folder_ / "config.json", layer, folder_.path());
        const attnc_layer_options options = layer_options(loaded);
        const LayerSettings& settings = loaded.layer.settings;
        attnc_inputs inputs = ATTNC_INPUTS_INIT;
        inputs.query = {.data = tokens_.data(),
                        .dtype = ATTNC_F32,
                        .rank = 3,
                        .extent = {1, kTokens, kWidth},
                        .stride = {kTokens * kWidth, kWidth, 1}};
        const Reference got = reference_layer(loaded.layer.config, layer_weights(loaded),
                                              {.qk_scale = settings.qk_scale,
                                               .window_left = settings.window_left,
                                               .window_right = settings.window_right,
                                               .softcap = settings.softcap,
                                               .qk_norm_epsilon = settings.qk_norm_epsilon,
                                               .rotary = options.rotary},
                                              inputs);
        const Row want = computed(model);
        ASSERT_EQ(got.out.size(), want.size());
        for (size_t n = 0; n < want.size(); ++n) {
            // Double precision on both sides; float where the layer's options are float.
            EXPECT_NEAR(got.out[n], want[n], 1e-6 * (1 + std::abs(want[n]))) << "token " << n / kWidth;
            if (HasFailure()) return;
        }
    }

    const std::string begin_ = "model.layers.1.self_attn.";
    ModelFolder folder_;
    MadeUpTensors tensors_;
    std::vector<float> tokens_;
};

// x cos + rotate_half(x) sin, where rotate_half is (-second half, first half) of the first `dim` features.
Row rotated_by_halves(const Row& head, int position, int dim, double magnitude,
                      const std::function<double(int pair)>& frequency) {
    Row turned = head;
    for (int i = 0; i < dim; ++i) {
        const int half = dim / 2, pair = i % half;
        const double angle = position * frequency(pair);
        const double other =
            i < half ? -head[static_cast<size_t>(i + half)] : head[static_cast<size_t>(i - half)];
        turned[static_cast<size_t>(i)] =
            magnitude * (head[static_cast<size_t>(i)] * std::cos(angle) + other * std::sin(angle));
    }
    return turned;
}

std::function<Row(Row, int)> plain_rotation(double base, int dim = kHeadDim) {
    return [=](const Row& head, int position) {
        return rotated_by_halves(head, position, dim, 1,
                                 [=](int pair) { return std::pow(base, -2.0 * pair / dim); });
    };
}

std::string llama_like(const std::string& type, int kv_heads, const std::string& more) {
    return R"({"model_type": ")" + type +
           R"(", "hidden_size": 16, "num_attention_heads": 2, "head_dim": 8, "num_hidden_layers": 4,
              "num_key_value_heads": )" +
           std::to_string(kv_heads) + more + "}";
}

TEST_F(ModelEquations, OfLlama3) {
    add_llama_like(1, false);
    // Short waves stay, long ones are divided by the factor, those between are interpolated: here of pairs 0, 3 and 1.
    const auto frequency = [](int pair) {
        const double plain = std::pow(10000.0, -2.0 * pair / kHeadDim);
        const double wave = 2 * std::numbers::pi / plain, original = 128, factor = 8, low = 1, high = 4;
        if (wave < original / high) return plain;
        if (wave > original / low) return plain / factor;
        const double smooth = (original / wave - low) / (high - low);
        return (1 - smooth) * plain / factor + smooth * plain;
    };
    Equations model;
    model.rotate = [=](const Row& head, int position) {
        return rotated_by_halves(head, position, kHeadDim, 1, frequency);
    };
    expect_the_same(llama_like("llama", 1, R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 128})"),
                    "1", model);
}

TEST_F(ModelEquations, OfMistral) {
    add_llama_like(1, false);
    Equations model;
    model.rotate = plain_rotation(10000);
    model.visible = [](int query, int key) { return key > query - 5; };
    expect_the_same(llama_like("mistral", 1, R"(, "sliding_window": 5)"), "1", model);
}

TEST_F(ModelEquations, OfQwen3) {
    add_llama_like(1, false);
    tensors_.add(begin_ + "q_norm.weight", {kHeadDim});
    tensors_.add(begin_ + "k_norm.weight", {kHeadDim});
    Equations model;
    model.norm_epsilon = 1e-3;
    model.rotate = plain_rotation(1e6);
    expect_the_same(llama_like("qwen3", 1, R"(, "rms_norm_eps": 1e-3, "rope_theta": 1000000)"), "1", model);
}

TEST_F(ModelEquations, OfGemma2) {
    add_llama_like(2, false);
    Equations model;
    model.kv_heads = 2;
    model.scale = 1 / std::sqrt(3.0);
    model.cap = [](double score) { return 2 * std::tanh(score / 2); };
    model.rotate = plain_rotation(10000);
    const std::string more =
        R"(, "query_pre_attn_scalar": 3, "attn_logit_softcapping": 2.0, "sliding_window": 4)";
    expect_the_same(llama_like("gemma2", 2, more), "1", model);
}

TEST_F(ModelEquations, OfGemma3) {
    add_llama_like(2, false);
    tensors_.add(begin_ + "q_norm.weight", {kHeadDim});
    tensors_.add(begin_ + "k_norm.weight", {kHeadDim});
    Equations model;
    model.kv_heads = 2;
    model.scale = 1 / std::sqrt(3.0);
    model.norm_epsilon = 1e-6;
    model.norm_plus = 1;
    model.rotate = plain_rotation(500);
    model.visible = [](int query, int key) { return key > query - 4; };
    expect_the_same(llama_like("gemma3_text", 2, R"(, "query_pre_attn_scalar": 3, "sliding_window": 4,
                        "rope_local_base_freq": 500, "rope_theta": 1000000)"),
                    "1", model);
}

// YaRN's ramp lies between pair 0, which turns more than once over the original positions, and pair 1, which does not.
TEST_F(ModelEquations, OfGptOss) {
    add_llama_like(1, true);
    tensors_.add(begin_ + "sinks", {2});
    Equations model;
    model.rotate = [](const Row& head, int position) {
        return rotated_by_halves(head, position, kHeadDim, 0.1 * std::log(32.0) + 1, [](int pair) {
            return pair == 0 ? 1 : std::pow(150000.0, -2.0 * pair / kHeadDim) / 32;
        });
    };
    model.visible = [](int query, int key) { return key > query - 3; };
    expect_the_same(llama_like("gpt_oss", 1, R"(, "sliding_window": 3, "layer_types": ["sliding_attention",
                        "sliding_attention"], "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                        "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 64})"),
                    "1", model);
}

TEST_F(ModelEquations, OfPhi) {
    for (const char* const name : {"q_proj", "k_proj", "v_proj", "dense"}) {
        tensors_.add(begin_ + name + ".weight", {kWidth, kWidth});
        tensors_.add(begin_ + name + ".bias", {kWidth});
    }
    tensors_.alias(begin_ + "o_proj.weight", begin_ + "dense.weight");
    tensors_.alias(begin_ + "o_proj.bias", begin_ + "dense.bias");
    Equations model;
    model.kv_heads = 2;
    model.rotate = plain_rotation(10000, 4);
    expect_the_same(llama_like("phi", 2, R"(, "partial_rotary_factor": 0.5)"), "1", model);
}

// The model's code adds slope * key, which the softmax makes the same as -slope * (query - key).
TEST_F(ModelEquations, OfBloom) {
    const std::string bloom = "transformer.h.1.self_attention.";
    tensors_.add(bloom + "query_key_value.weight", {3 * kWidth, kWidth});
    tensors_.add(bloom + "query_key_value.bias", {3 * kWidth});
    tensors_.add(bloom + "dense.weight", {kWidth, kWidth});
    tensors_.add(bloom + "dense.bias", {kWidth});
    for (const char* const kind : {".weight", ".bias"}) {
        const int64_t width = kind == std::string(".weight") ? kWidth : 1;
        tensors_.alias(begin_ + "o_proj" + kind, bloom + "dense" + kind);
        int64_t part = 0;
        for (const char* const name : {"q_proj", "k_proj", "v_proj"}) {  // [heads, 3, head_dim]
            const std::vector<float>& fused = tensors_[bloom + "query_key_value" + kind];
            std::vector<float> rows;
            for (int64_t head = 0; head < 2; ++head) {
                const auto first = fused.begin() + (3 * head + part) * kHeadDim * width;
                rows.insert(rows.end(), first, first + kHeadDim * width);
            }
            ++part;
            tensors_.alias(begin_ + name + kind, std::move(rows));
        }
    }
    Equations model;
    model.kv_heads = 2;
    model.bias = [](int head, int, int key) { return key * (head == 0 ? 1.0 / 16 : 1.0 / 256); };
    expect_the_same(R"({"model_type": "bloom", "n_embed": 16, "num_attention_heads": 2, "n_layer": 2})", "1",
                    model);
}

}  // namespace
}  // namespace attnc::test
