#include "support/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>

#include "support/tolerance.h"

namespace attnc {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool given(const attnc_tensor& t) { return t.rank != 0; }

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("reference: ") + what);
}

// Element of a view; an extent of 1 is broadcast.
template <typename T>
T element(const attnc_tensor& t, std::initializer_list<int64_t> index) {
    int64_t offset = 0;
    int dimension = 0;
    for (const int64_t i : index) {
        offset += t.extent[dimension] == 1 ? 0 : i * t.stride[dimension];
        ++dimension;
    }
    return static_cast<const T*>(t.data)[offset];
}

int64_t integer(const attnc_tensor& t, int64_t item) {
    return t.dtype == ATTNC_I32 ? element<int32_t>(t, {item}) : element<int64_t>(t, {item});
}

// Rows of features: values [rows, features] and bounds on the errors of their float32 counterparts (empty:
// none).
struct Rows {
    int64_t features = 0;
    std::vector<double> values, errors;

    const double* row(int64_t n) const { return values.data() + n * features; }
    double error(int64_t n, int64_t feature) const {
        return errors.empty() ? 0 : errors[static_cast<size_t>(n * features + feature)];
    }
};

// A linear layer: weight [out, in] at a row offset (for packed ones), bias [out] or not given.
struct Linear {
    attnc_tensor weight{}, bias{};
    int64_t first_row = 0;
    int64_t in = 0, out = 0;

    double w(int64_t n, int64_t k) const { return element<float>(weight, {first_row + n, k}); }
    double b(int64_t n) const { return given(bias) ? element<float>(bias, {first_row + n}) : 0.0; }
};

Linear linear(const attnc_tensor& weight, const attnc_tensor& bias, int64_t first_row, int64_t all_rows,
              int64_t out, int64_t in) {
    require(weight.rank == 2 && weight.extent[0] == all_rows && weight.extent[1] == in,
            "weight has another shape");
    require(!given(bias) || (bias.rank == 1 && bias.extent[0] == all_rows), "bias has another shape");
    return {weight, bias, first_row, in, out};
}

Rows project(const Linear& layer, const std::vector<double>& x, int64_t rows) {
    Rows y;
    y.features = layer.out;
    y.values.resize(static_cast<size_t>(rows * layer.out));
    y.errors.resize(y.values.size());
    std::vector<double> w(static_cast<size_t>(layer.in));
    for (int64_t n = 0; n < layer.out; ++n) {
        for (int64_t k = 0; k < layer.in; ++k) w[static_cast<size_t>(k)] = layer.w(n, k);
        for (int64_t m = 0; m < rows; ++m) {
            const double* row = x.data() + m * layer.in;
            RunningDot dot(layer.b(n));
            for (int64_t k = 0; k < layer.in; ++k) dot.add(row[k], w[static_cast<size_t>(k)]);
            y.values[static_cast<size_t>(m * layer.out + n)] = dot.value();
            y.errors[static_cast<size_t>(m * layer.out + n)] = dot.error_bound();
        }
    }
    return y;
}

// The first `rows` tokens of an item, [rows, features]; tokens of rank 4 have their heads merged.
std::vector<double> tokens(const attnc_tensor& t, int64_t item, int64_t rows, int64_t features) {
    std::vector<double> x(static_cast<size_t>(rows * features));
    for (int64_t m = 0; m < rows; ++m) {
        for (int64_t n = 0; n < features; ++n) {
            const float value = t.rank == 3 ? element<float>(t, {item, m, n})
                                            : element<float>(t, {item, n / t.extent[3], m, n % t.extent[3]});
            x[static_cast<size_t>(m * features + n)] = value;
        }
    }
    return x;
}

int64_t sequence(const attnc_tensor& t) { return t.extent[t.rank == 3 ? 1 : 2]; }
int64_t features(const attnc_tensor& t) { return t.rank == 3 ? t.extent[2] : t.extent[1] * t.extent[3]; }

class LayerReference {
public:
    LayerReference(const Config& config, const attnc_weights& weights, const ReferenceOptions& options,
                   const attnc_inputs& inputs)
        : config_(config), weights_(weights), options_(options), inputs_(inputs) {
        query_ = inputs.query;
        key_ = given(inputs.key) ? inputs.key : query_;
        value_ = given(inputs.value) ? inputs.value : key_;
        for (const attnc_tensor* t : {&query_, &key_, &value_})
            require(t->rank == 3 || t->rank == 4, "bad token rank");
        seq_kv_ = sequence(key_);
        appended_ = (config.bias_kv ? 1 : 0) + (config.zero_attn ? 1 : 0);
        scale_ =
            options.qk_scale != 0 ? options.qk_scale : 1.0 / std::sqrt(static_cast<double>(config.head_dim));

        result_.batch = query_.extent[0];
        result_.num_heads = config.num_heads;
        result_.seq_q = sequence(query_);
        result_.keys = seq_kv_ + appended_;
        result_.v_head_dim = config.v_head_dim;
        result_.out_features = config.out_proj ? config.d_model : config.num_heads * config.v_head_dim;
        require(key_.extent[0] == result_.batch && value_.extent[0] == result_.batch, "batch sizes differ");
        require(sequence(value_) == seq_kv_, "key and value have different lengths");
        const int64_t rows = result_.batch * result_.num_heads * result_.seq_q;
        const int64_t tokens_out = result_.batch * result_.seq_q;
        result_.context.assign(static_cast<size_t>(rows * config.v_head_dim), 0.0);
        result_.probs.assign(static_cast<size_t>(rows * result_.keys), 0.0);
        result_.probs_averaged.assign(static_cast<size_t>(tokens_out * result_.keys), 0.0);
        result_.lse.assign(static_cast<size_t>(rows), -kInfinity);
        result_.out.assign(static_cast<size_t>(tokens_out * result_.out_features), 0.0);
        for (auto* of_rows :
             {&result_.score_size, &result_.score_error, &result_.value_size, &result_.value_error}) {
            of_rows->assign(static_cast<size_t>(rows), 0.0);
        }
        require(!config.sink || (weights.sink.rank == 1 && weights.sink.extent[0] == config.num_heads),
                "sink has another shape");
        make_linear_layers();
    }

    Reference run() {
        for (int64_t item = 0; item < result_.batch; ++item) run_item(item);
        average_probs();
        return std::move(result_);
    }

private:
    void make_linear_layers() {
        const int64_t q_out = config_.num_heads * config_.head_dim;
        const int64_t k_out = config_.num_kv_heads * config_.head_dim;
        const int64_t v_out = config_.num_kv_heads * config_.v_head_dim;
        if (config_.in_proj) {
            const bool packed = given(weights_.in_proj_weight);
            const bool packed_bias = given(weights_.in_proj_bias);
            const int64_t all = q_out + k_out + v_out;
            auto make = [&](const attnc_tensor& w, const attnc_tensor& b, int64_t first, int64_t out,
                            int64_t in) {
                Linear layer = packed ? linear(weights_.in_proj_weight, {}, first, all, out, in)
                                      : linear(w, {}, 0, out, out, in);
                const attnc_tensor& bias = packed_bias ? weights_.in_proj_bias : b;
                layer.bias = bias;
                // The offset is shared by weight and bias: a packed one beside a separate one is cut to its
                // part.
                if (packed_bias != packed && given(bias)) {
                    attnc_tensor& part = packed_bias ? layer.bias : layer.weight;
                    part.data = static_cast<float*>(part.data) + first * part.stride[0];
                    layer.first_row = 0;
                }
                return layer;
            };
            wq_ = make(weights_.wq, weights_.bq, 0, q_out, config_.d_model);
            wk_ = make(weights_.wk, weights_.bk, q_out, k_out, config_.k_dim);
            wv_ = make(weights_.wv, weights_.bv, q_out + k_out, v_out, config_.v_dim);
        }
        require(features(query_) == (config_.in_proj ? config_.d_model : q_out), "query has another width");
        require(features(key_) == (config_.in_proj ? config_.k_dim : k_out), "key has another width");
        require(features(value_) == (config_.in_proj ? config_.v_dim : v_out), "value has another width");
        if (config_.out_proj) {
            const int64_t in = config_.num_heads * config_.v_head_dim;
            wo_ = linear(weights_.wo, weights_.bo, 0, config_.d_model, config_.d_model, in);
            result_.wo_sum.assign(static_cast<size_t>(config_.num_heads * config_.d_model), 0.0);
            for (int64_t n = 0; n < config_.d_model; ++n) {
                for (int64_t c = 0; c < in; ++c) {
                    result_.wo_sum[static_cast<size_t>(c / config_.v_head_dim * config_.d_model + n)] +=
                        std::fabs(wo_->w(n, c));
                }
            }
            result_.out_error.assign(result_.out.size(), 0.0);
        }
    }

    // Projected (or given) rows of one input, with the appended keys behind them.
    Rows rows_of(const attnc_tensor& t, const std::optional<Linear>& layer, int64_t item, int64_t rows,
                 const attnc_tensor* learned) const {
        const int64_t width = features(t);
        Rows y;
        if (layer) {
            y = project(*layer, tokens(t, item, rows, width), rows);
        } else {
            y.features = width;
            y.values = tokens(t, item, rows, width);
        }
        if (learned == nullptr) return y;
        if (config_.bias_kv) {
            require(learned->rank == 1 && learned->extent[0] == y.features,
                    "bias_k or bias_v has another shape");
            for (int64_t n = 0; n < y.features; ++n) y.values.push_back(element<float>(*learned, {n}));
        }
        if (config_.zero_attn) y.values.resize(y.values.size() + static_cast<size_t>(y.features), 0.0);
        if (!y.errors.empty()) y.errors.resize(y.values.size(), 0.0);  // appended keys are exact
        return y;
    }

    // Whether diagonal and window let query `row` see the key.
    bool is_visible(int64_t item, int64_t row, int64_t key, int64_t queries, int64_t keys) const {
        attnc_causal causal = inputs_.causal;
        if (causal == ATTNC_CAUSAL_NOT_GIVEN)
            causal = config_.causal ? ATTNC_CAUSAL_BOTTOM_RIGHT : ATTNC_CAUSAL_NONE;
        // Sums of offsets and window sizes may need 65 bits, sign included; long double has as many.
        long double own = static_cast<long double>(row);
        if (causal == ATTNC_CAUSAL_OFFSET) {
            own += static_cast<long double>(integer(inputs_.causal_offsets, item));
        } else if (causal != ATTNC_CAUSAL_TOP_LEFT) {
            own += static_cast<long double>(keys - queries);
        }
        const long double to_right = static_cast<long double>(key) - own;
        if (causal != ATTNC_CAUSAL_NONE && to_right > 0) return false;
        if (options_.window_left && -to_right > static_cast<long double>(*options_.window_left)) return false;
        return !options_.window_right || to_right <= static_cast<long double>(*options_.window_right);
    }

    struct Permission {
        bool allowed = false;
        double bias = 0, bias_size = 0;
    };
    Permission permission(int64_t item, int64_t head, int64_t row, int64_t key) const {
        const auto flag = [&](const attnc_tensor& t) {
            return t.rank == 2 ? element<uint8_t>(t, {item, key})
                               : element<uint8_t>(t, {item, head, row, key});
        };
        if (given(inputs_.keep_mask) && flag(inputs_.keep_mask) == 0) return {};
        if (given(inputs_.drop_mask) && flag(inputs_.drop_mask) != 0) return {};
        if (given(inputs_.key_keep_mask) && flag(inputs_.key_keep_mask) == 0) return {};
        if (given(inputs_.key_drop_mask) && flag(inputs_.key_drop_mask) != 0) return {};
        const double bias = given(inputs_.bias) ? element<float>(inputs_.bias, {item, head, row, key}) : 0.0;
        const double key_bias = given(inputs_.key_bias) ? element<float>(inputs_.key_bias, {item, key}) : 0.0;
        if (bias == -kInfinity || key_bias == -kInfinity) return {};
        return {true, bias + key_bias, std::fabs(bias) + std::fabs(key_bias)};
    }

    double sink_of(int64_t head) const {
        return config_.sink ? static_cast<double>(element<float>(weights_.sink, {head})) : -kInfinity;
    }

    void run_item(int64_t item) {
        const int64_t queries =
            given(inputs_.query_lengths) ? integer(inputs_.query_lengths, item) : result_.seq_q;
        const int64_t keys = given(inputs_.key_lengths) ? integer(inputs_.key_lengths, item) : seq_kv_;
        require(0 <= queries && queries <= result_.seq_q && 0 <= keys && keys <= seq_kv_,
                "length out of range");
        const Rows q = rows_of(query_, wq_, item, queries, nullptr);
        const Rows k = rows_of(key_, wk_, item, keys, &weights_.bias_k);
        const Rows v = rows_of(value_, wv_, item, keys, &weights_.bias_v);
        for (int64_t head = 0; head < result_.num_heads; ++head) {
            for (int64_t row = 0; row < queries; ++row) attend_row(item, head, row, queries, keys, q, k, v);
        }
        project_out(item, queries);
    }

    void attend_row(int64_t item, int64_t head, int64_t row, int64_t queries, int64_t keys, const Rows& q,
                    const Rows& k, const Rows& v) {
        const int64_t kv_head = head / (config_.num_heads / config_.num_kv_heads);
        const auto at = static_cast<size_t>((item * result_.num_heads + head) * result_.seq_q + row);
        double* probs = result_.probs.data() + static_cast<int64_t>(at) * result_.keys;
        double* context = result_.context.data() + static_cast<int64_t>(at) * config_.v_head_dim;

        // Keys this row may attend: index in k and v, and column of probs (the appended ones come last).
        struct Visible {
            int64_t key, column;
            double score, size;
        };
        std::vector<Visible> visible;
        for (int64_t j = 0; j < keys; ++j) {
            if (!is_visible(item, row, j, queries, keys)) continue;
            const Permission p = permission(item, head, row, j);
            if (p.allowed) visible.push_back({j, j, p.bias, p.bias_size});
        }
        for (int64_t n = 0; n < appended_; ++n) visible.push_back({keys + n, seq_kv_ + n, 0, 0});

        for (Visible& key : visible) {
            double dot = 0, size = 0, error = 0;
            for (int64_t d = 0; d < config_.head_dim; ++d) {
                const int64_t q_feature = head * config_.head_dim + d;
                const int64_t k_feature = kv_head * config_.head_dim + d;
                const double q_d = q.row(row)[q_feature], q_error = q.error(row, q_feature);
                const double k_d = k.row(key.key)[k_feature], k_error = k.error(key.key, k_feature);
                dot += q_d * k_d;
                size += std::fabs(q_d * k_d);
                error += q_error * std::fabs(k_d) + std::fabs(q_d) * k_error + q_error * k_error;
            }
            key.score += dot * scale_;
            key.size += size * std::fabs(scale_);
            result_.score_error[at] = std::max(result_.score_error[at], error * std::fabs(scale_));
        }

        const double sink = sink_of(head);
        double largest = sink, largest_size = config_.sink ? std::fabs(sink) : 0;
        for (const Visible& key : visible) {
            if (key.score > largest) largest_size = key.size;
            largest = std::max(largest, key.score);  // a NaN shows in the sum
        }
        // Scores of -inf that infinite data made have weight 0 as dropped keys have; nothing else: an empty row.
        const bool none = std::all_of(visible.begin(), visible.end(),
                                      [](const Visible& key) { return key.score == -kInfinity; });
        if (none) visible.clear();
        for (const Visible& key : visible) {
            if (can_be_ignored(key.score, key.size, largest, largest_size, config_.head_dim)) continue;
            result_.score_size[at] = std::max(result_.score_size[at], key.size);
        }
        if (config_.sink && !can_be_ignored(sink, std::fabs(sink), largest, largest_size, config_.head_dim))
            result_.score_size[at] = std::max(result_.score_size[at], std::fabs(sink));
        double sum = config_.sink ? std::exp(sink - largest) : 0;
        for (const Visible& key : visible) sum += std::exp(key.score - largest);
        if (!visible.empty() || config_.sink) {
            result_.lse[at] = largest + std::log(sum);
            for (const Visible& key : visible) probs[key.column] = std::exp(key.score - largest) / sum;
        } else if (options_.empty_rows == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES) {
            for (int64_t j = 0; j < keys; ++j) {
                visible.push_back({j, j, 0, 0});
                probs[j] = 1.0 / static_cast<double>(keys);
            }
        } else if (options_.empty_rows == ATTNC_EMPTY_ROWS_NAN) {
            std::fill_n(context, config_.v_head_dim, std::numeric_limits<double>::quiet_NaN());
            std::fill_n(probs, result_.keys, std::numeric_limits<double>::quiet_NaN());
        }
        for (const Visible& key : visible) {
            for (int64_t d = 0; d < config_.v_head_dim; ++d) {
                const int64_t feature = kv_head * config_.v_head_dim + d;
                const double value = v.row(key.key)[feature];
                context[d] += probs[key.column] * value;
                result_.value_size[at] = std::max(result_.value_size[at], std::fabs(value));
                result_.value_error[at] = std::max(result_.value_error[at], v.error(key.key, feature));
            }
        }
    }

    void project_out(int64_t item, int64_t queries) {
        const int64_t width = config_.num_heads * config_.v_head_dim;
        std::vector<double> merged(static_cast<size_t>(queries * width));
        for (int64_t row = 0; row < queries; ++row) {
            for (int64_t c = 0; c < width; ++c) {
                const int64_t head = c / config_.v_head_dim;
                const int64_t at = (item * result_.num_heads + head) * result_.seq_q + row;
                merged[static_cast<size_t>(row * width + c)] =
                    result_.context[static_cast<size_t>(at * config_.v_head_dim + c % config_.v_head_dim)];
            }
        }
        const auto first = item * result_.seq_q * result_.out_features;
        if (!wo_) {
            std::copy(merged.begin(), merged.end(), result_.out.begin() + first);
            return;
        }
        const Rows y = project(*wo_, merged, queries);
        std::copy(y.values.begin(), y.values.end(), result_.out.begin() + first);
        std::copy(y.errors.begin(), y.errors.end(), result_.out_error.begin() + first);
    }

    void average_probs() {
        const int64_t plane = result_.seq_q * result_.keys;
        for (int64_t item = 0; item < result_.batch; ++item) {
            for (int64_t n = 0; n < plane; ++n) {
                double sum = 0;
                for (int64_t head = 0; head < result_.num_heads; ++head) {
                    sum += result_.probs[static_cast<size_t>((item * result_.num_heads + head) * plane + n)];
                }
                result_.probs_averaged[static_cast<size_t>(item * plane + n)] =
                    sum / static_cast<double>(result_.num_heads);
            }
        }
    }

    const Config& config_;
    const attnc_weights& weights_;
    const ReferenceOptions& options_;
    const attnc_inputs& inputs_;
    attnc_tensor query_{}, key_{}, value_{};
    std::optional<Linear> wq_, wk_, wv_, wo_;
    int64_t seq_kv_ = 0;
    int64_t appended_ = 0;
    double scale_ = 0;
    Reference result_;
};

}  // namespace

bool Reference::empty_row(int64_t item, int64_t head, int64_t row) const {
    return lse[static_cast<size_t>((item * num_heads + head) * seq_q + row)] == -kInfinity;
}

Reference reference_layer(const Config& config, const attnc_weights& weights, const ReferenceOptions& options,
                          const attnc_inputs& inputs) {
    return LayerReference(config, weights, options, inputs).run();
}

}  // namespace attnc
