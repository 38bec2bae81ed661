#include "support/reference_rows.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "support/tolerance.h"

namespace attnc {
namespace {

Linear linear(const attnc_tensor& weight, const attnc_tensor& bias, int64_t first_row, int64_t all_rows,
              int64_t out, int64_t in) {
    require_reference(weight.rank == 2 && weight.extent[0] == all_rows && weight.extent[1] == in,
                      "weight has another shape");
    require_reference(!is_given(bias) || (bias.rank == 1 && bias.extent[0] == all_rows),
                      "bias has another shape");
    return {weight, bias, first_row, in, out};
}

}  // namespace

void require_reference(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("reference: ") + what);
}

int64_t integer(const attnc_tensor& t, std::initializer_list<int64_t> index) {
    return t.dtype == ATTNC_I32 ? element<int32_t>(t, index) : element<int64_t>(t, index);
}

void Rows::append(const std::vector<double>& row) {
    values.insert(values.end(), row.begin(), row.end());
    if (!errors.empty()) errors.resize(values.size(), 0.0);
}

LinearLayers linear_layers(const Config& config, const attnc_weights& weights) {
    const int64_t q_out = config.num_heads * config.head_dim;
    const int64_t k_out = config.num_kv_heads * config.head_dim;
    const int64_t v_out = config.num_kv_heads * config.v_head_dim;
    LinearLayers layers;
    if (config.in_proj) {
        const bool packed = is_given(weights.in_proj_weight);
        const bool packed_bias = is_given(weights.in_proj_bias);
        const int64_t all = q_out + k_out + v_out;
        const auto make = [&](const attnc_tensor& w, const attnc_tensor& b, int64_t first, int64_t out,
                              int64_t in) {
            Linear layer = packed ? linear(weights.in_proj_weight, {}, first, all, out, in)
                                  : linear(w, {}, 0, out, out, in);
            const attnc_tensor& bias = packed_bias ? weights.in_proj_bias : b;
            layer.bias = bias;
            // The offset is shared by weight and bias: a packed one beside a separate one is cut to its part.
            if (packed_bias != packed && is_given(bias)) {
                attnc_tensor& part = packed_bias ? layer.bias : layer.weight;
                part.data = static_cast<float*>(part.data) + first * part.stride[0];
                layer.first_row = 0;
            }
            return layer;
        };
        layers.q = make(weights.wq, weights.bq, 0, q_out, config.d_model);
        layers.k = make(weights.wk, weights.bk, q_out, k_out, config.k_dim);
        layers.v = make(weights.wv, weights.bv, q_out + k_out, v_out, config.v_dim);
    }
    if (config.out_proj) {
        layers.out = linear(weights.wo, weights.bo, 0, config.d_model, config.d_model,
                            config.num_heads * config.v_head_dim);
    }
    return layers;
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

int64_t sequence_of(const attnc_tensor& tokens) { return tokens.extent[tokens.rank == 3 ? 1 : 2]; }

int64_t features_of(const attnc_tensor& tokens) {
    return tokens.rank == 3 ? tokens.extent[2] : tokens.extent[1] * tokens.extent[3];
}

std::vector<double> tokens_of(const attnc_tensor& t, int64_t item, int64_t rows) {
    const int64_t features = features_of(t);
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

Rows rows_of(const attnc_tensor& t, const std::optional<Linear>& layer, int64_t item, int64_t rows) {
    std::vector<double> tokens = tokens_of(t, item, rows);
    if (layer) return project(*layer, tokens, rows);
    return {.features = features_of(t), .values = std::move(tokens), .errors = {}};
}

Rows behind_past(const attnc_tensor& past, int64_t item, int64_t length, Rows fresh) {
    if (!is_given(past)) return fresh;
    Rows all = {
        .features = past.extent[1] * past.extent[3], .values = tokens_of(past, item, length), .errors = {}};
    if (!fresh.errors.empty()) {
        all.errors.resize(all.values.size(), 0.0);
        all.errors.insert(all.errors.end(), fresh.errors.begin(), fresh.errors.end());
    }
    all.values.insert(all.values.end(), fresh.values.begin(), fresh.values.end());
    return all;
}

}  // namespace attnc
