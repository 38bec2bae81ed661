#include "runtime/weights.h"

#include "runtime/arithmetic.h"
#include "runtime/check.h"

namespace attnc {
namespace {

struct MatrixRule {
    const char* name;
    const attnc_tensor& tensor;
    Dim rows, columns;
};

attnc_status check_matrix(attnc_error* error, const MatrixRule& rule, Matrix* result) {
    if (!given(rule.tensor)) return fail(error, ATTNC_MISSING_TENSOR, {rule.name, " is missing"});
    ATTNC_TRY(check_tensor(error, {rule.name, ATTNC_F32, ATTNC_F32}, rule.tensor, {rule.rows, rule.columns}));
    *result = {static_cast<const float*>(rule.tensor.data), rule.tensor.extent[0], rule.tensor.extent[1],
               rule.tensor.stride[0]};
    return ATTNC_OK;
}

attnc_status check_vector(attnc_error* error, const char* name, const attnc_tensor& tensor, Dim features,
                          const float** result) {
    if (!given(tensor)) return ATTNC_OK;
    ATTNC_TRY(check_tensor(error, {name, ATTNC_F32, ATTNC_F32}, tensor, {features}));
    *result = static_cast<const float*>(tensor.data);
    return ATTNC_OK;
}

attnc_status refuse(attnc_error* error, const char* name, const attnc_tensor& tensor, const char* why) {
    if (!given(tensor)) return ATTNC_OK;
    return fail(error, ATTNC_UNEXPECTED_TENSOR, {name, " is given, but ", why});
}

// One [3 * d_model, d_model] tensor for all three projections.
attnc_status check_packed(attnc_error* error, const attnc_config& c, const attnc_weights& w,
                          LayerWeights* result) {
    constexpr const char* kWhy = "in_proj_weight stands for it";
    ATTNC_TRY(refuse(error, "wq", w.wq, kWhy));
    ATTNC_TRY(refuse(error, "wk", w.wk, kWhy));
    ATTNC_TRY(refuse(error, "wv", w.wv, kWhy));
    if (c.k_dim != c.d_model || c.v_dim != c.d_model || c.num_heads * c.head_dim != c.d_model ||
        c.num_kv_heads * c.head_dim != c.d_model || c.num_kv_heads * c.v_head_dim != c.d_model) {
        return fail(error, ATTNC_UNEXPECTED_TENSOR,
                    {"in_proj_weight is given, but the layer's projections are not all ", c.d_model, " by ",
                     c.d_model});
    }
    Matrix all;
    ATTNC_TRY(check_matrix(
        error, {"in_proj_weight", w.in_proj_weight, {"3 * d_model", 3 * c.d_model}, {"d_model", c.d_model}},
        &all));
    const auto part = [&](int64_t index) {
        return Matrix{all.data + index * c.d_model * all.row_stride, c.d_model, c.d_model, all.row_stride};
    };
    result->wq = part(0), result->wk = part(1), result->wv = part(2);
    return ATTNC_OK;
}

attnc_status check_in_proj(attnc_error* error, const attnc_config& c, const attnc_weights& w,
                           LayerWeights* result) {
    const Dim q_rows = {"num_heads * head_dim", c.num_heads * c.head_dim};
    const Dim k_rows = {"num_kv_heads * head_dim", c.num_kv_heads * c.head_dim};
    const Dim v_rows = {"num_kv_heads * v_head_dim", c.num_kv_heads * c.v_head_dim};
    if (given(w.in_proj_weight)) {
        ATTNC_TRY(check_packed(error, c, w, result));
    } else {
        ATTNC_TRY(check_matrix(error, {"wq", w.wq, q_rows, {"d_model", c.d_model}}, &result->wq));
        ATTNC_TRY(check_matrix(error, {"wk", w.wk, k_rows, {"k_dim", c.k_dim}}, &result->wk));
        ATTNC_TRY(check_matrix(error, {"wv", w.wv, v_rows, {"v_dim", c.v_dim}}, &result->wv));
    }
    if (given(w.in_proj_bias)) {
        constexpr const char* kWhy = "in_proj_bias stands for it";
        ATTNC_TRY(refuse(error, "bq", w.bq, kWhy));
        ATTNC_TRY(refuse(error, "bk", w.bk, kWhy));
        ATTNC_TRY(refuse(error, "bv", w.bv, kWhy));
        if (q_rows.extent != c.d_model || k_rows.extent != c.d_model || v_rows.extent != c.d_model) {
            return fail(error, ATTNC_UNEXPECTED_TENSOR,
                        {"in_proj_bias is given, but the layer's projections do not all give ", c.d_model,
                         " features"});
        }
        ATTNC_TRY(
            check_vector(error, "in_proj_bias", w.in_proj_bias, {"3 * d_model", 3 * c.d_model}, &result->bq));
        result->bk = result->bq + c.d_model;
        result->bv = result->bk + c.d_model;
        return ATTNC_OK;
    }
    ATTNC_TRY(check_vector(error, "bq", w.bq, q_rows, &result->bq));
    ATTNC_TRY(check_vector(error, "bk", w.bk, k_rows, &result->bk));
    return check_vector(error, "bv", w.bv, v_rows, &result->bv);
}

attnc_status refuse_in_proj(attnc_error* error, const attnc_weights& w) {
    constexpr const char* kWhy = "the library has no input projections";
    ATTNC_TRY(refuse(error, "wq", w.wq, kWhy));
    ATTNC_TRY(refuse(error, "wk", w.wk, kWhy));
    ATTNC_TRY(refuse(error, "wv", w.wv, kWhy));
    ATTNC_TRY(refuse(error, "bq", w.bq, kWhy));
    ATTNC_TRY(refuse(error, "bk", w.bk, kWhy));
    ATTNC_TRY(refuse(error, "bv", w.bv, kWhy));
    ATTNC_TRY(refuse(error, "in_proj_weight", w.in_proj_weight, kWhy));
    return refuse(error, "in_proj_bias", w.in_proj_bias, kWhy);
}

attnc_status check_out_proj(attnc_error* error, const attnc_config& c, const attnc_weights& w,
                            LayerWeights* result) {
    if ((c.flags & ATTNC_CONFIG_OUT_PROJ) == 0) {
        constexpr const char* kWhy = "the library has no output projection";
        ATTNC_TRY(refuse(error, "wo", w.wo, kWhy));
        return refuse(error, "bo", w.bo, kWhy);
    }
    const Dim columns = {"num_heads * v_head_dim", c.num_heads * c.v_head_dim};
    ATTNC_TRY(check_matrix(error, {"wo", w.wo, {"d_model", c.d_model}, columns}, &result->wo));
    return check_vector(error, "bo", w.bo, {"d_model", c.d_model}, &result->bo);
}

attnc_status check_bias_kv(attnc_error* error, const attnc_config& c, const attnc_weights& w,
                           LayerWeights* result) {
    if ((c.flags & ATTNC_CONFIG_BIAS_KV) == 0) {
        constexpr const char* kWhy = "the library was compiled without bias_kv";
        ATTNC_TRY(refuse(error, "bias_k", w.bias_k, kWhy));
        return refuse(error, "bias_v", w.bias_v, kWhy);
    }
    if (!given(w.bias_k)) return fail(error, ATTNC_MISSING_TENSOR, {"bias_k is missing"});
    if (!given(w.bias_v)) return fail(error, ATTNC_MISSING_TENSOR, {"bias_v is missing"});
    const Dim k = {"num_kv_heads * head_dim", c.num_kv_heads * c.head_dim};
    const Dim v = {"num_kv_heads * v_head_dim", c.num_kv_heads * c.v_head_dim};
    ATTNC_TRY(check_vector(error, "bias_k", w.bias_k, k, &result->bias_k));
    return check_vector(error, "bias_v", w.bias_v, v, &result->bias_v);
}

attnc_status check_sink(attnc_error* error, const attnc_config& c, const attnc_weights& w,
                        LayerWeights* result) {
    if ((c.flags & ATTNC_CONFIG_SINK) == 0)
        return refuse(error, "sink", w.sink, "the library was compiled without sinks");
    if (!given(w.sink)) return ATTNC_OK;
    ATTNC_TRY(check_vector(error, "sink", w.sink, {"num_heads", c.num_heads}, &result->sink));
    for (int64_t head = 0; head < c.num_heads; ++head) {
        if (!is_finite(result->sink[head]))
            return fail(error, ATTNC_BAD_VALUE, {"sink[", head, "] is not finite"});
    }
    return ATTNC_OK;
}

attnc_status check_alibi(attnc_error* error, const attnc_config& c, const attnc_weights& w,
                         LayerWeights* result) {
    if (!given(w.alibi_slopes)) return ATTNC_OK;
    if ((c.flags & ATTNC_CONFIG_ALIBI) == 0) {
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {"alibi_slopes is given, but the library was compiled without alibi"});
    }
    ATTNC_TRY(check_vector(error, "alibi_slopes", w.alibi_slopes, {"num_heads", c.num_heads},
                           &result->alibi_slopes));
    for (int64_t head = 0; head < c.num_heads; ++head) {
        if (!is_finite(result->alibi_slopes[head]))
            return fail(error, ATTNC_BAD_VALUE, {"alibi_slopes[", head, "] is not finite"});
        if (result->alibi_slopes[head] < 0)
            return fail(error, ATTNC_BAD_VALUE, {"alibi_slopes[", head, "] is negative, wanted 0 or more"});
    }
    return ATTNC_OK;
}

}  // namespace

attnc_status check_weights(attnc_error* error, const attnc_config& config, const attnc_weights* weights,
                           LayerWeights* result) {
    if (weights == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"weights is null"});
    if (weights->struct_size != sizeof(attnc_weights)) {
        return fail(
            error, ATTNC_BAD_STRUCT_SIZE,
            {"struct_size of attnc_weights is ", weights->struct_size, ", wanted ", sizeof(attnc_weights)});
    }
    if ((config.flags & ATTNC_CONFIG_IN_PROJ) != 0) {
        ATTNC_TRY(check_in_proj(error, config, *weights, result));
    } else {
        ATTNC_TRY(refuse_in_proj(error, *weights));
    }
    ATTNC_TRY(check_out_proj(error, config, *weights, result));
    ATTNC_TRY(check_bias_kv(error, config, *weights, result));
    ATTNC_TRY(check_sink(error, config, *weights, result));
    return check_alibi(error, config, *weights, result);
}

}  // namespace attnc
