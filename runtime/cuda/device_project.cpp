// Tokens to heads of Q, K and V, and contexts to the output.
#include "runtime/arithmetic.h"
#include "runtime/cuda/device_wave.h"

namespace attnc::cuda {
namespace {

// Tokens of a wave; row 0 is the first of item 0.
struct Rows {
    const float* data;
    int64_t batch_stride, row_stride, features;
};

// The row stride of all items' rows as one list; kNowhere: they aren't one.
int64_t list_stride(const TokenRows& t, const Rows& rows) {
    const int64_t stride = t.seq == 1 && t.items > 1 ? rows.batch_stride : rows.row_stride;
    const bool one = t.items == 1 || t.seq == 1 || rows.batch_stride == t.seq * rows.row_stride;
    return one && fits(t.rows(), stride, kFloat) ? stride : kNowhere;
}

// Calls launch(item, items, row_stride) for all items at once, or where their rows aren't one list for each.
template <typename Launch>
attnc_status for_lists(const TokenRows& t, const Rows& rows, const Launch& launch) {
    const int64_t stride = list_stride(t, rows);
    if (stride != kNowhere) return launch(int64_t{0}, t.items, stride);
    for (int64_t item = 0; item < t.items; ++item) ATTNC_TRY(launch(item, int64_t{1}, rows.row_stride));
    return ATTNC_OK;
}

// One launch's weights: of one projection, or of several that lie one after another.
struct Panels {
    const DeviceProjection& first;
    int64_t panels;
};

void set_projection(DeviceCall& call, Buffer<2>& x, Buffer<3>& weights, Buffer<2>& bias, Buffer<1>& lengths,
                    const int32_t& seq) {
    call.set(ATTNC_DEVICE_ARGUMENT_INPUT, x);
    call.set(ATTNC_DEVICE_ARGUMENT_WEIGHTS, weights);
    call.set(ATTNC_DEVICE_ARGUMENT_BIAS_VECTOR, bias);
    call.set(ATTNC_DEVICE_ARGUMENT_LENGTHS, lengths);
    call.set(ATTNC_DEVICE_ARGUMENT_SEQ, seq);
}

// `planes` planes of all rows of a side, from `to` on.
attnc_status project(const DeviceWave& w, const TokenRows& t, const Rows& x, const Panels& panels,
                     int64_t planes, float* to) {
    const DeviceProjection& p = panels.first;
    const auto seq = static_cast<int32_t>(t.seq);
    return for_lists(t, x, [&](int64_t item, int64_t items, int64_t row_stride) {
        const int64_t rows = items * t.seq;
        Buffer<2> from(on_device(x.data + item * x.batch_stride), kFloat32,
                       {{x.features, 1}, {rows, row_stride}});
        Buffer<3> weights(on_device(p.weights), kFloat32,
                          {{p.panel, 1}, {p.inner, p.panel}, {panels.panels, p.inner * p.panel}});
        Buffer<2> bias(on_device(p.bias), kFloat32, {{p.panel, 1}, {panels.panels, p.panel}});
        Buffer<1> lengths(on_device(t.counts + item), kInt32, {{items, 1}});
        Buffer<3> y(on_device(to + item * t.seq * p.width), kFloat32,
                    {{p.width, 1}, {rows, p.width}, {planes, t.rows() * p.width}});
        DeviceCall call;
        set_projection(call, from, weights, bias, lengths, seq);
        call.set(ATTNC_DEVICE_ARGUMENT_Y, y);
        return w.run(ATTNC_DEVICE_KERNEL_PROJECT_HEADS, call);
    });
}

bool same_view(const TokenView& a, const TokenView& b) {
    return a.data == b.data && a.batch_stride == b.batch_stride && a.row_stride == b.row_stride;
}

// The side whose counts let both project: which has no lengths, or has the other's.
const TokenRows* common_side(const DeviceWave& w) {
    const Request& r = w.request;
    if (w.queries.items != w.keys.items || w.queries.seq != w.keys.seq) return nullptr;
    if (w.plan.packed || !r.query_lengths.present) return &w.queries;
    if (!r.key_lengths.present) return &w.keys;
    const bool same =
        r.query_lengths.data == r.key_lengths.data && r.query_lengths.wide == r.key_lengths.wide;
    return same ? &w.queries : nullptr;
}

Rows token_rows(const DeviceWave& w, const TokenView& view, int64_t features) {
    return {view.data + w.first * view.batch_stride, view.batch_stride, view.row_stride, features};
}

attnc_status project_inputs(DeviceWave& w) {
    const DeviceLayer& layer = w.layer;
    const Request& r = w.request;
    const DeviceProjection &pq = layer.project_q, &pk = layer.project_k, &pv = layer.project_v;
    auto* q = w.at<float>(w.plan.q);
    auto* k = w.at<float>(w.plan.k);
    auto* v = w.at<float>(w.plan.v);
    const Rows query = token_rows(w, r.query, pq.features), key = token_rows(w, r.key, pk.features);
    const bool one_key = same_view(r.key, r.value);
    const TokenRows* common =
        layer.joins_qkv && one_key && same_view(r.query, r.key) ? common_side(w) : nullptr;
    const int64_t joined_planes = pq.slot_planes + pk.slot_planes + pv.heads;
    w.q = q, w.k = k, w.v = v;
    if (common != nullptr && fits(joined_planes, common->rows() * pq.width, kFloat)) {
        const int64_t plane = common->rows() * pq.width;
        w.k = q + pq.slot_planes * plane;
        w.v = w.k + pk.slot_planes * plane;
        return project(w, *common, query, {pq, pq.slot_panels + pk.slot_panels + pv.panels}, joined_planes,
                       q);
    }
    ATTNC_TRY(project(w, w.queries, query, {pq, pq.panels}, pq.heads, q));
    if (r.seq_kv == 0) return ATTNC_OK;
    if (layer.joins_kv && one_key && fits(pk.slot_planes + pv.heads, w.keys.rows() * pk.width, kFloat)) {
        w.v = k + pk.slot_planes * w.keys.rows() * pk.width;
        return project(w, w.keys, key, {pk, pk.slot_panels + pv.panels}, pk.slot_planes + pv.heads, k);
    }
    ATTNC_TRY(project(w, w.keys, key, {pk, pk.panels}, pk.heads, k));
    return project(w, w.keys, token_rows(w, r.value, pv.features), {pv, pv.panels}, pv.heads, v);
}

// Calls launch(item, items) for all items at once where a buffer can have them `batch_stride` apart.
template <typename Launch>
attnc_status for_items(const TokenRows& t, int64_t batch_stride, const Launch& launch) {
    if (fits(t.items, batch_stride, kFloat)) return launch(int64_t{0}, t.items);
    for (int64_t item = 0; item < t.items; ++item) ATTNC_TRY(launch(item, int64_t{1}));
    return ATTNC_OK;
}

struct Heads {
    int64_t heads, features, width;
};

attnc_status split(const DeviceWave& w, const TokenRows& t, const TokenView& view, const Heads& h,
                   float* to) {
    const float* from = view.data + w.first * view.batch_stride;
    return for_items(t, view.batch_stride, [&](int64_t item, int64_t items) {
        Buffer<4> x(on_device(from + item * view.batch_stride), kFloat32,
                    {{h.features, 1},
                     {t.seq, view.row_stride},
                     {h.heads, view.head_stride},
                     {items, view.batch_stride}});
        Buffer<1> lengths(on_device(t.counts + item), kInt32, {{items, 1}});
        Buffer<3> y(on_device(to + item * t.seq * h.width), kFloat32,
                    {{h.width, 1}, {items * t.seq, h.width}, {h.heads, t.rows() * h.width}});
        DeviceCall call;
        call.set(ATTNC_DEVICE_ARGUMENT_INPUT, x);
        call.set(ATTNC_DEVICE_ARGUMENT_LENGTHS, lengths);
        call.set(ATTNC_DEVICE_ARGUMENT_Y, y);
        return w.run(ATTNC_DEVICE_KERNEL_SPLIT_HEADS, call);
    });
}

attnc_status split_inputs(DeviceWave& w) {
    const attnc_config& c = w.layer.config;
    const Request& r = w.request;
    auto* q = w.at<float>(w.plan.q);
    auto* k = w.at<float>(w.plan.k);
    auto* v = w.at<float>(w.plan.v);
    w.q = q, w.k = k, w.v = v;
    ATTNC_TRY(split(w, w.queries, r.query, {c.num_heads, c.head_dim, w.layer.qk_width}, q));
    if (r.seq_kv == 0) return ATTNC_OK;
    ATTNC_TRY(split(w, w.keys, r.key, {c.num_kv_heads, c.head_dim, w.layer.qk_width}, k));
    return split(w, w.keys, r.value, {c.num_kv_heads, c.v_head_dim, w.layer.v_width}, v);
}

// Heads of one side, changed where they lie.
struct HeadPlanes {
    const float* data;
    int64_t rows, heads, width;
    Buffer<3> buffer() const {
        return Buffer<3>(on_device(data), kFloat32, {{width, 1}, {rows, width}, {heads, rows * width}});
    }
};

attnc_status normalise(const DeviceWave& w, const HeadPlanes& planes, const float* norm) {
    Buffer<3> x = planes.buffer(), y = planes.buffer();
    Buffer<1> weight(on_device(norm), kFloat32, {{planes.width, 1}});
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_INPUT, x);
    call.set(ATTNC_DEVICE_ARGUMENT_NORM_WEIGHT, weight);
    call.set(ATTNC_DEVICE_ARGUMENT_EPSILON, w.layer.norm_epsilon);
    call.set(ATTNC_DEVICE_ARGUMENT_Y, y);
    return w.run(ATTNC_DEVICE_KERNEL_NORM_HEADS, call);
}

// Cosines, then sines, of all rows of a side.
struct Angles {
    float* data;
    int64_t pairs, rows;
    Buffer<2> cosines() const { return Buffer<2>(on_device(data), kFloat32, {{pairs, 1}, {rows, pairs}}); }
    Buffer<2> sines() const {
        return Buffer<2>(on_device(data + pairs * rows), kFloat32, {{pairs, 1}, {rows, pairs}});
    }
};

attnc_status make_angles(const DeviceWave& w, const TokenRows& t, const RowNumbers& positions,
                         const Angles& angles) {
    const LayerRotary& rotary = w.layer.rotary;
    const ItemNumbers& offsets = w.request.position_offsets;
    const int64_t width = positions.wide ? 8 : 4, step = width / 4;
    const void* first = positions.present ? static_cast<const unsigned char*>(positions.data) +
                                                w.first * positions.batch_stride * width
                                          : w.layer.anything();
    Buffer<2> rows(on_device(first), kInt32,
                   {{t.seq, positions.present ? step : 0},
                    {t.items, positions.present ? positions.batch_stride * step : 0}});
    const DeviceWave::Numbers from = w.numbers(offsets);
    Buffer<1> item_offsets(on_device(from.data), kInt32, {{t.items, from.stride}});
    const int32_t given = (positions.present ? ATTNC_GIVEN_POSITIONS : 0) |
                          (offsets.present && !positions.present ? ATTNC_GIVEN_POSITION_OFFSETS : 0);
    Buffer<2> cosines = angles.cosines(), sines = angles.sines();
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_POSITIONS, rows);
    call.set(ATTNC_DEVICE_ARGUMENT_POSITION_OFFSETS, item_offsets);
    call.set(ATTNC_DEVICE_ARGUMENT_GIVEN, given);
    call.set(ATTNC_DEVICE_ARGUMENT_COS_TABLE, cosines);
    call.set(ATTNC_DEVICE_ARGUMENT_SIN_TABLE, sines);
    if (rotary.table != nullptr) {
        const Dimension entries[] = {{rotary.pairs, 1}, {rotary.table_rows, 2 * rotary.stride}};
        Buffer<2> table_cos(on_device(rotary.table), kFloat32, {entries[0], entries[1]});
        Buffer<2> table_sin(on_device(rotary.table + rotary.stride), kFloat32, {entries[0], entries[1]});
        call.set(ATTNC_DEVICE_ARGUMENT_TABLE_COS, table_cos);
        call.set(ATTNC_DEVICE_ARGUMENT_TABLE_SIN, table_sin);
        return w.run(ATTNC_DEVICE_KERNEL_ROTARY_ROWS, call);
    }
    Buffer<1> frequencies(on_device(rotary.turns), kUint64, {{rotary.pairs, 1}});
    call.set(ATTNC_DEVICE_ARGUMENT_FREQUENCIES, frequencies);
    call.set(ATTNC_DEVICE_ARGUMENT_MAGNITUDE, rotary.magnitude);
    return w.run(ATTNC_DEVICE_KERNEL_ROTARY_ANGLES, call);
}

attnc_status rotate(const DeviceWave& w, const HeadPlanes& planes, const Angles& angles) {
    Buffer<2> cosines = angles.cosines(), sines = angles.sines();
    Buffer<3> x = planes.buffer(), y = planes.buffer();
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_COS_TABLE, cosines);
    call.set(ATTNC_DEVICE_ARGUMENT_SIN_TABLE, sines);
    call.set(ATTNC_DEVICE_ARGUMENT_INPUT, x);
    call.set(ATTNC_DEVICE_ARGUMENT_Y, y);
    return w.run(ATTNC_DEVICE_KERNEL_ROTATE_HEADS, call);
}

bool same_rows(const DeviceWave& w) {
    const Request& r = w.request;
    return r.same_positions && w.queries.items == w.keys.items && w.queries.seq == w.keys.seq &&
           r.query_starts.data == r.key_starts.data;
}

attnc_status change_heads(const DeviceWave& w) {
    const DeviceLayer& layer = w.layer;
    const HeadPlanes q = {w.q, w.queries.rows(), layer.config.num_heads, layer.qk_width};
    const HeadPlanes k = {w.k, w.keys.rows(), layer.config.num_kv_heads, layer.qk_width};
    const bool has_keys = w.request.seq_kv > 0;
    if (layer.q_norm != nullptr) {
        ATTNC_TRY(normalise(w, q, layer.q_norm));
        if (has_keys) ATTNC_TRY(normalise(w, k, layer.k_norm));
    }
    if (!layer.rotates()) return ATTNC_OK;
    const Angles q_angles = {w.at<float>(w.plan.q_angles), layer.rotary.pairs, q.rows};
    ATTNC_TRY(make_angles(w, w.queries, w.request.query_positions, q_angles));
    ATTNC_TRY(rotate(w, q, q_angles));
    if (!has_keys) return ATTNC_OK;
    if (same_rows(w)) return rotate(w, k, q_angles);
    const Angles k_angles = {w.at<float>(w.plan.k_angles), layer.rotary.pairs, k.rows};
    ATTNC_TRY(make_angles(w, w.keys, w.request.key_positions, k_angles));
    return rotate(w, k, k_angles);
}

attnc_status merge_output(const DeviceWave& w) {
    const attnc_config& c = w.layer.config;
    const TokenRows& t = w.queries;
    const OutView& out = w.request.out;
    const int64_t row = c.num_heads * w.layer.v_width;
    return for_items(t, out.batch_stride, [&](int64_t item, int64_t items) {
        Buffer<3> context(on_device(w.at<float>(w.plan.context) + item * t.seq * row), kFloat32,
                          {{w.layer.v_width, 1}, {c.num_heads, w.layer.v_width}, {items * t.seq, row}});
        Buffer<1> lengths(on_device(t.counts + item), kInt32, {{items, 1}});
        Buffer<4> to(on_device(out.data + (w.first + item) * out.batch_stride), kFloat32,
                     {{c.v_head_dim, 1},
                      {t.seq, out.row_stride},
                      {c.num_heads, out.head_stride},
                      {items, out.batch_stride}});
        DeviceCall call;
        call.set(ATTNC_DEVICE_ARGUMENT_CONTEXT, context);
        call.set(ATTNC_DEVICE_ARGUMENT_LENGTHS, lengths);
        call.set(ATTNC_DEVICE_ARGUMENT_OUT, to);
        return w.run(ATTNC_DEVICE_KERNEL_MERGE_HEADS, call);
    });
}

}  // namespace

attnc_status project_tokens(DeviceWave& w) {
    ATTNC_TRY(w.layer.has(ATTNC_CONFIG_IN_PROJ) ? project_inputs(w) : split_inputs(w));
    return change_heads(w);
}

attnc_status write_output(const DeviceWave& w) {
    if (!w.layer.has(ATTNC_CONFIG_OUT_PROJ)) return merge_output(w);
    const DeviceProjection& p = w.layer.project_out;
    const TokenRows& t = w.queries;
    const auto seq = static_cast<int32_t>(t.seq);
    const int64_t d_model = w.layer.config.d_model;
    const OutView& out = w.request.out;
    const Rows rows = {out.data + w.first * out.batch_stride, out.batch_stride, out.row_stride, d_model};
    return for_lists(t, rows, [&](int64_t item, int64_t items, int64_t row_stride) {
        const int64_t count = items * t.seq;
        Buffer<2> x(on_device(w.at<float>(w.plan.context) + item * t.seq * p.features), kFloat32,
                    {{p.features, 1}, {count, p.features}});
        Buffer<3> weights(on_device(p.weights), kFloat32,
                          {{p.panel, 1}, {p.inner, p.panel}, {p.panels, p.inner * p.panel}});
        Buffer<2> bias(on_device(p.bias), kFloat32, {{p.panel, 1}, {p.panels, p.panel}});
        Buffer<1> lengths(on_device(t.counts + item), kInt32, {{items, 1}});
        Buffer<2> to(on_device(rows.data + item * rows.batch_stride), kFloat32,
                     {{d_model, 1}, {count, row_stride}});
        DeviceCall call;
        set_projection(call, x, weights, bias, lengths, seq);
        call.set(ATTNC_DEVICE_ARGUMENT_OUT, to);
        return w.run(ATTNC_DEVICE_KERNEL_PROJECT_OUT, call);
    });
}

}  // namespace attnc::cuda
