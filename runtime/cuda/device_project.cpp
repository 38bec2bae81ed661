// Tokens to heads of Q, K and V, and contexts to the output.
#include "runtime/arithmetic.h"
#include "runtime/cuda/device_heads.h"

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
    if (w.plan.attends) ATTNC_TRY(project(w, w.queries, query, {pq, pq.panels}, pq.heads, q));
    if (w.keys.seq == 0) return ATTNC_OK;
    if (layer.joins_kv && one_key && fits(pk.slot_planes + pv.heads, w.keys.rows() * pk.width, kFloat)) {
        w.v = k + pk.slot_planes * w.keys.rows() * pk.width;
        return project(w, w.keys, key, {pk, pk.slot_panels + pv.panels}, pk.slot_planes + pv.heads, k);
    }
    ATTNC_TRY(project(w, w.keys, key, {pk, pk.panels}, pk.heads, k));
    return project(w, w.keys, token_rows(w, r.value, pv.features), {pv, pv.panels}, pv.heads, v);
}

attnc_status split_inputs(DeviceWave& w) {
    const attnc_config& c = w.layer.config;
    const Request& r = w.request;
    auto* q = w.at<float>(w.plan.q);
    auto* k = w.at<float>(w.plan.k);
    auto* v = w.at<float>(w.plan.v);
    w.q = q, w.k = k, w.v = v;
    if (w.plan.attends)
        ATTNC_TRY(split_heads(w, w.queries, r.query, {c.num_heads, c.head_dim, w.layer.qk_width}, q));
    if (w.keys.seq == 0) return ATTNC_OK;
    ATTNC_TRY(split_heads(w, w.keys, r.key, {c.num_kv_heads, c.head_dim, w.layer.qk_width}, k));
    return split_heads(w, w.keys, r.value, {c.num_kv_heads, c.v_head_dim, w.layer.v_width}, v);
}

bool same_rows(const DeviceWave& w) {
    const Request& r = w.request;
    return r.same_positions && w.queries.items == w.keys.items && w.queries.seq == w.keys.seq &&
           r.query_starts.data == r.key_starts.data;
}

// Rows of a packed side count their positions from each item's first row on.
struct PackedSide {
    const ItemNumbers& starts;
    int64_t seq;  // most rows of an item
    int32_t* positions;
};
attnc_status fill_positions(const DeviceWave& w, const TokenRows& t, const PackedSide& side) {
    // In a cache rows go on where the item's keys ended.
    const ItemNumbers& offsets_given = w.request.position_offsets;
    const bool behind = w.plan.cached && !offsets_given.present;
    const DeviceWave::Numbers first = w.numbers(side.starts);
    const DeviceWave::Numbers offset =
        behind ? DeviceWave::Numbers{w.cached(w.plan.held), 1} : w.numbers(offsets_given);
    Buffer<1> starts(on_device(first.data), kInt32, {{w.items + 1, first.stride}});
    Buffer<1> offsets(on_device(offset.data), kInt32, {{w.items, offset.stride}});
    Buffer<1> positions(on_device(side.positions), kInt32, {{t.rows(), 1}});
    const int32_t given = behind || offsets_given.present ? ATTNC_GIVEN_POSITION_OFFSETS : 0;
    const auto seq = static_cast<int32_t>(side.seq);
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_STARTS, starts);
    call.set(ATTNC_DEVICE_ARGUMENT_POSITION_OFFSETS, offsets);
    call.set(ATTNC_DEVICE_ARGUMENT_GIVEN, given);
    call.set(ATTNC_DEVICE_ARGUMENT_SEQ, seq);
    call.set(ATTNC_DEVICE_ARGUMENT_ROW_POSITIONS, positions);
    return w.run(ATTNC_DEVICE_KERNEL_FILL_POSITIONS, call);
}

attnc_status make_side_angles(const DeviceWave& w, const TokenRows& t, const RowNumbers& positions,
                              const PackedSide& side, const Angles& angles) {
    if (!w.plan.packed || positions.present) return make_angles(w, t, positions, 0, angles);
    ATTNC_TRY(fill_positions(w, t, side));
    return make_angles(w, t, {side.positions, 1, true, false}, 0, angles);
}

attnc_status change_heads(const DeviceWave& w) {
    const DeviceLayer& layer = w.layer;
    const Request& r = w.request;
    const HeadPlanes q = {w.q, w.queries.rows(), layer.config.num_heads, layer.qk_width};
    const HeadPlanes k = {w.k, w.keys.rows(), layer.config.num_kv_heads, layer.qk_width};
    const bool has_queries = w.plan.attends, has_keys = w.keys.seq > 0;
    if (layer.q_norm != nullptr) {
        if (has_queries) ATTNC_TRY(norm_planes(w, q, layer.q_norm));
        if (has_keys) ATTNC_TRY(norm_planes(w, k, layer.k_norm));
    }
    if (!layer.rotates()) return ATTNC_OK;
    const Angles q_angles = {w.at<float>(w.plan.q_angles), layer.rotary.pairs, q.rows};
    if (has_queries) {
        const PackedSide side = {r.query_starts, r.seq_q, w.at<int32_t>(w.plan.q_positions)};
        ATTNC_TRY(make_side_angles(w, w.queries, r.query_positions, side, q_angles));
        ATTNC_TRY(rotate_planes(w, q, q_angles));
    }
    if (!has_keys) return ATTNC_OK;
    if (same_rows(w)) return rotate_planes(w, k, q_angles);
    const Angles k_angles = {w.at<float>(w.plan.k_angles), layer.rotary.pairs, k.rows};
    const PackedSide side = {r.key_starts, r.seq_new, w.at<int32_t>(w.plan.k_positions)};
    ATTNC_TRY(make_side_angles(w, w.keys, r.key_positions, side, k_angles));
    return rotate_planes(w, k, k_angles);
}

// Rows of packed items that are past their lengths, which are rows like all others to a projection.
attnc_status clear_rows(const DeviceWave& w) {
    const OutView& out = w.request.out;
    Buffer<2> items(on_device(w.at<int32_t>(w.plan.call.items)), kInt32,
                    {{ATTNC_ITEM_COLUMNS, 1}, {w.items, ATTNC_ITEM_COLUMNS}});
    Buffer<2> rows(on_device(out.data), kFloat32,
                   {{w.layer.config.d_model, 1}, {w.queries.rows(), out.row_stride}});
    const auto seq_q = static_cast<int32_t>(w.request.seq_q);
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_ITEMS, items);
    call.set(ATTNC_DEVICE_ARGUMENT_SEQ_Q, seq_q);
    call.set(ATTNC_DEVICE_ARGUMENT_OUT, rows);
    return w.run(ATTNC_DEVICE_KERNEL_CLEAR_ROWS, call);
}

}  // namespace

attnc_status project_tokens(DeviceWave& w) {
    ATTNC_TRY(w.layer.has(ATTNC_CONFIG_IN_PROJ) ? project_inputs(w) : split_inputs(w));
    ATTNC_TRY(change_heads(w));
    return append_keys(w);
}

attnc_status write_output(const DeviceWave& w) {
    if (!w.layer.has(ATTNC_CONFIG_OUT_PROJ)) {
        const attnc_config& c = w.layer.config;
        const int64_t width = w.layer.v_width, row = c.num_heads * width;
        const MergedHeads contexts = {
            w.at<float>(w.plan.context), {c.num_heads, c.v_head_dim, width}, width, row};
        return merge_heads(w, w.queries, contexts, w.request.out);
    }
    const DeviceProjection& p = w.layer.project_out;
    const TokenRows& t = w.queries;
    const auto seq = static_cast<int32_t>(t.seq);
    const int64_t d_model = w.layer.config.d_model;
    const OutView& out = w.request.out;
    const Rows rows = {out.data + w.first * out.batch_stride, out.batch_stride, out.row_stride, d_model};
    ATTNC_TRY(for_lists(t, rows, [&](int64_t item, int64_t items, int64_t row_stride) {
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
    }));
    return w.plan.packed && w.request.query_lengths.present ? clear_rows(w) : ATTNC_OK;
}

}  // namespace attnc::cuda
