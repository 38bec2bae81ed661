#include "runtime/cuda/device_weights.h"

#include <string.h>

#include "runtime/arithmetic.h"
#include "runtime/pack.h"
#include "runtime/text.h"

namespace attnc::cuda {
namespace {

int64_t least_common_multiple(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y != 0) {
        const int64_t rest = x % y;
        x = y, y = rest;
    }
    return a / x * b;
}

DeviceProjection describe_heads(const attnc_device_layout& layout, int64_t features, int64_t heads,
                                int64_t width) {
    DeviceProjection p = {};
    p.panel = layout.panel;
    p.features = features;
    p.inner = divide_up(features, layout.depth) * layout.depth;
    p.width = width, p.heads = heads;
    p.panels = divide_up(heads * width, p.panel);
    p.slot_panels = p.panels, p.slot_planes = heads;
    return p;
}

// Panels of one launch are blocks along an axis of the grid, and one buffer.
bool fit_launch(const DeviceProjection& p, int64_t panels) {
    int64_t bytes = 0;
    return panels <= kMaxGrid && !__builtin_mul_overflow(panels, p.panel * p.inner * kFloat, &bytes) &&
           bytes <= kMaxSpan;
}

// With room up to where another projection can begin, at a panel and at a plane of its own.
DeviceProjection with_slot(DeviceProjection p) {
    const int64_t step = least_common_multiple(p.panel, p.width);
    const int64_t columns = divide_up(p.heads * p.width, step) * step;
    p.slot_panels = columns / p.panel;
    p.slot_planes = columns / p.width;
    return p;
}

bool same_sizes(const DeviceProjection& a, const DeviceProjection& b) {
    return a.features == b.features && a.width == b.width;
}

// Projections go together where that doesn't make much more than they are: a quarter of their planes. `panels`: of all.
bool worth_joining(const DeviceProjection& first, const DeviceProjection& next, int64_t panels) {
    return same_sizes(first, next) && 4 * (first.slot_planes - first.heads) <= first.heads + next.heads &&
           fit_launch(first, panels);
}

void join_projections(DeviceLayer& layer) {
    const DeviceProjection q = with_slot(layer.project_q), k = with_slot(layer.project_k);
    const DeviceProjection& v = layer.project_v;
    const int64_t kv_panels = k.slot_panels + v.panels;
    layer.joins_kv = worth_joining(k, v, kv_panels);
    layer.joins_qkv = layer.joins_kv && worth_joining(q, k, q.slot_panels + kv_panels);
    if (layer.joins_kv) layer.project_k = k;
    if (layer.joins_qkv) layer.project_q = q;
}

void describe_projections(DeviceLayer& layer) {
    const attnc_config& c = layer.config;
    const attnc_device_layout& l = layer.entry->layout;
    if (layer.has(ATTNC_CONFIG_IN_PROJ)) {
        layer.project_q = describe_heads(l, c.d_model, c.num_heads, layer.qk_width);
        layer.project_k = describe_heads(l, c.k_dim, c.num_kv_heads, layer.qk_width);
        layer.project_v = describe_heads(l, c.v_dim, c.num_kv_heads, layer.v_width);
        join_projections(layer);
    } else {
        layer.project_q.slot_planes = c.num_heads;
        layer.project_k.slot_planes = layer.project_v.slot_planes = c.num_kv_heads;
    }
    if (layer.has(ATTNC_CONFIG_OUT_PROJ)) {
        DeviceProjection& p = layer.project_out;
        p.panel = l.out_panel;
        p.features = c.num_heads * layer.v_width;
        p.inner = divide_up(p.features, l.out_depth) * l.out_depth;
        p.panels = p.slot_panels = divide_up(c.d_model, p.panel);
    }
}

attnc_status check_spans(attnc_error* error, const DeviceLayer& layer) {
    for (const DeviceProjection* p :
         {&layer.project_q, &layer.project_k, &layer.project_v, &layer.project_out}) {
        if (fit_launch(*p, p->panels)) continue;
        return fail(error, ATTNC_TOO_LARGE,
                    {"weights of a projection have ", p->panels * p->panel, " columns of ", p->inner,
                     ", on a device at most 2 GiB and ", kMaxGrid * p->panel, " columns"});
    }
    return ATTNC_OK;
}

// The weights of q, k and v, then their biases, so that those that are joined are one buffer.
void take_heads(Carver& carver, const DeviceLayer& layer, DeviceParts& parts) {
    const struct {
        const DeviceProjection& projection;
        DeviceParts::Weights& part;
        bool joined;  // to the one before it
    } all[] = {{layer.project_q, parts.q, false},
               {layer.project_k, parts.k, layer.joins_qkv},
               {layer.project_v, parts.v, layer.joins_kv}};
    const auto panels_from = [&](int i) {
        int64_t panels = all[i].projection.slot_panels;
        for (int next = i + 1; next < 3 && all[next].joined; ++next)
            panels += all[next].projection.slot_panels;
        return panels;
    };
    for (int i = 0; i < 3; ++i) {
        const DeviceProjection& p = all[i].projection;
        if (all[i].joined) {
            const DeviceProjection& before = all[i - 1].projection;
            const int64_t columns = before.slot_panels * before.panel;
            all[i].part = {all[i - 1].part.panels + columns * p.inner * kFloat,
                           all[i - 1].part.bias + columns * kFloat};
            continue;
        }
        all[i].part = {carver.take(kFloat, {panels_from(i), p.inner, p.panel}),
                       carver.take(kFloat, {panels_from(i), p.panel})};
    }
}

// A matrix [heads * features, inner] to columns of heads; what is padding stays zero, as the memory is.
void pack_heads(const DeviceProjection& p, const Matrix& weights, const float* bias, int64_t features,
                float* panels, float* packed_bias) {
    for (int64_t row = 0; row < p.heads * features; ++row) {
        const int64_t column = row / features * p.width + row % features;
        float* to = panels + column / p.panel * p.inner * p.panel + column % p.panel;
        for (int64_t k = 0; k < p.features; ++k) to[k * p.panel] = weights.data[row * weights.row_stride + k];
        packed_bias[column] = bias != nullptr ? bias[row] : 0.0F;
    }
}

// wo [d_model, heads * features]; in k a head has `width`.
void pack_out(const DeviceProjection& p, const Matrix& weights, const float* bias, int64_t features,
              int64_t width, float* panels, float* packed_bias) {
    for (int64_t column = 0; column < weights.rows; ++column) {
        float* to = panels + column / p.panel * p.inner * p.panel + column % p.panel;
        for (int64_t k = 0; k < weights.columns; ++k) {
            to[(k / features * width + k % features) * p.panel] =
                weights.data[column * weights.row_stride + k];
        }
        packed_bias[column] = bias != nullptr ? bias[column] : 0.0F;
    }
}

void pack_sinks(const DeviceLayer& layer, const float* given, float* to) {
    for (int64_t head = 0; head < layer.config.num_heads; ++head)
        to[head] = given != nullptr ? given[head] : -__builtin_inff();
}

}  // namespace

attnc_status take_device_parts(attnc_error* error, DeviceLayer& layer, const LayerSources& sources,
                               DeviceParts* parts) {
    const attnc_config& c = layer.config;
    describe_projections(layer);
    ATTNC_TRY(check_spans(error, layer));
    Carver carver(kDeviceAlignment);
    *parts = {};
    if (layer.has(ATTNC_CONFIG_IN_PROJ)) take_heads(carver, layer, *parts);
    if (layer.has(ATTNC_CONFIG_OUT_PROJ)) {
        const DeviceProjection& p = layer.project_out;
        parts->out = {carver.take(kFloat, {p.panels, p.inner, p.panel}),
                      carver.take(kFloat, {p.panels, p.panel})};
    }
    parts->appended_k = carver.take(kFloat, {c.num_kv_heads, layer.appended, layer.qk_width});
    parts->appended_v = carver.take(kFloat, {c.num_kv_heads, layer.appended, layer.v_width});
    if (layer.has(ATTNC_CONFIG_SINK)) parts->sinks = carver.take(kFloat, {c.num_heads});
    if (sources.weights.alibi_slopes != nullptr) parts->alibi_slopes = carver.take(kFloat, {c.num_heads});
    parts->q_norm = carver.take(kFloat, {layer.qk_width});
    parts->k_norm = carver.take(kFloat, {layer.qk_width});
    parts->turns = carver.take(sizeof(uint64_t), {layer.rotary.pairs});
    parts->table = carver.take(kFloat, {layer.rotary.table_rows, 2, layer.rotary.stride});
    parts->bytes = carver.bytes();
    if (!carver.overflow()) return ATTNC_OK;
    return fail(error, ATTNC_TOO_LARGE, {"the size of the packed weights overflows"});
}

void pack_device_parts(DeviceLayer& layer, const LayerSources& sources, const DeviceParts& parts,
                       unsigned char* host) {
    const attnc_config& c = layer.config;
    const LayerWeights& w = sources.weights;
    const HeadSources& steps = sources.head_steps;
    memset(host, 0, static_cast<size_t>(parts.bytes));
    const auto on_host = [&](int64_t offset) { return reinterpret_cast<float*>(host + offset); };
    const auto there = [&](int64_t offset) {
        return reinterpret_cast<const float*>(layer.memory + static_cast<uint64_t>(offset));
    };
    const auto place = [&](DeviceProjection& p, const DeviceParts::Weights& part) {
        p.weights = there(part.panels), p.bias = there(part.bias);
    };
    if (layer.has(ATTNC_CONFIG_IN_PROJ)) {
        place(layer.project_q, parts.q), place(layer.project_k, parts.k), place(layer.project_v, parts.v);
        pack_heads(layer.project_q, w.wq, w.bq, c.head_dim, on_host(parts.q.panels), on_host(parts.q.bias));
        pack_heads(layer.project_k, w.wk, w.bk, c.head_dim, on_host(parts.k.panels), on_host(parts.k.bias));
        pack_heads(layer.project_v, w.wv, w.bv, c.v_head_dim, on_host(parts.v.panels), on_host(parts.v.bias));
    }
    if (layer.has(ATTNC_CONFIG_OUT_PROJ)) {
        place(layer.project_out, parts.out);
        pack_out(layer.project_out, w.wo, w.bo, c.v_head_dim, layer.v_width, on_host(parts.out.panels),
                 on_host(parts.out.bias));
    }
    layer.appended_k = there(parts.appended_k), layer.appended_v = there(parts.appended_v);
    pack_appended(w.bias_k, c.num_kv_heads, c.head_dim, layer.qk_width, layer.appended,
                  on_host(parts.appended_k));
    pack_appended(w.bias_v, c.num_kv_heads, c.v_head_dim, layer.v_width, layer.appended,
                  on_host(parts.appended_v));
    if (layer.has(ATTNC_CONFIG_SINK)) {
        pack_sinks(layer, w.sink, on_host(parts.sinks));
        layer.sink_logits = there(parts.sinks);
        if (w.sink != nullptr) layer.sinks = layer.sink_logits;
    }
    if (w.alibi_slopes != nullptr) {
        layer.alibi_slopes = there(parts.alibi_slopes);
        memcpy(on_host(parts.alibi_slopes), w.alibi_slopes, static_cast<size_t>(c.num_heads) * sizeof(float));
    }
    if (steps.q_norm != nullptr) {
        pack_norm(steps.q_norm, c.head_dim, layer.qk_width, on_host(parts.q_norm));
        pack_norm(steps.k_norm, c.head_dim, layer.qk_width, on_host(parts.k_norm));
        layer.q_norm = there(parts.q_norm), layer.k_norm = there(parts.k_norm);
        layer.norm_epsilon = static_cast<float>(steps.epsilon * static_cast<double>(c.head_dim));
    }
    if (steps.rotary.cos.rank != 0) {
        pack_angles(steps.rotary, layer.rotary.stride, on_host(parts.table));
        layer.rotary.table = there(parts.table);
    } else if (layer.rotates()) {
        pack_turns(steps.rotary, reinterpret_cast<uint64_t*>(host + parts.turns));
        layer.rotary.turns = reinterpret_cast<const uint64_t*>(there(parts.turns));
    }
}

}  // namespace attnc::cuda
