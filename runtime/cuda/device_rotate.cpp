// Heads through the workspace, some rows at a time: as planes of rows they are normalised and rotated as in forward.
#include "runtime/cuda/device_rotate.h"

#include "runtime/arithmetic.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/device_heads.h"
#include "runtime/plan.h"
#include "runtime/rotate.h"

namespace attnc::cuda {
namespace {

// Rows that are in the workspace at a time: enough to fill a device, in so many bytes of heads.
constexpr int64_t kRows = 16384;
constexpr int64_t kBytes = int64_t{64} << 20;

int64_t rows_at_once(const DeviceLayer& layer) {
    const int64_t row = layer.config.num_heads * layer.qk_width * kFloat;
    return least(kRows, most(kBytes / row, 1));
}

attnc_status plan_rotation(attnc_error* error, const DeviceLayer& layer, DevicePlan* plan) {
    const int64_t rows = rows_at_once(layer);
    Carver carver(kDeviceAlignment);
    plan->call = take_table(carver, rows);
    plan->q = carver.take(kFloat, {layer.config.num_heads, rows, layer.qk_width});
    plan->q_angles = carver.take(kFloat, {2, rows, layer.rotary.pairs});
    if (carver.overflow()) return fail(error, ATTNC_TOO_LARGE, {"the size of the workspace overflows"});
    plan->bytes = carver.bytes();
    return ATTNC_OK;
}

// Items, rows and heads of a call that go together.
struct Part {
    int64_t item, items, row, rows, head, heads;
};

// The call's heads from a part's first on.
struct PartViews {
    TokenView from;
    OutView to;
    RowNumbers positions;
};
PartViews views_of(const RotatedHeads& heads, const Request& r, const Part& p) {
    PartViews views = {heads.from, heads.to, r.query_positions};
    views.from.data += p.row * heads.from.row_stride + p.head * heads.from.head_stride;
    views.to.data += p.row * heads.to.row_stride + p.head * heads.to.head_stride;
    const int64_t position = views.positions.wide ? 8 : 4;
    if (views.positions.present)
        views.positions.data = static_cast<const unsigned char*>(views.positions.data) + p.row * position;
    return views;
}

attnc_status rotate_part(DeviceWave& w, const RotatedHeads& heads, const Part& p) {
    const DeviceLayer& layer = w.layer;
    const PartViews views = views_of(heads, w.request, p);
    w.first = p.item, w.items = p.items;
    w.queries = {p.items, p.rows, w.at<int32_t>(w.plan.call.query_counts)};
    ATTNC_TRY(fill_whole_items(w, p.rows));
    auto* planes = w.at<float>(w.plan.q);
    const Heads shape = {p.heads, layer.config.head_dim, layer.qk_width};
    const HeadPlanes q = {planes, w.queries.rows(), p.heads, layer.qk_width};
    ATTNC_TRY(split_heads(w, w.queries, views.from, shape, planes));
    const float* norm = heads.keys ? layer.k_norm : layer.q_norm;
    if (norm != nullptr) ATTNC_TRY(norm_planes(w, q, norm));
    if (layer.rotates()) {
        const Angles angles = {w.at<float>(w.plan.q_angles), layer.rotary.pairs, q.rows};
        ATTNC_TRY(make_angles(w, w.queries, views.positions, p.row, angles));
        ATTNC_TRY(rotate_planes(w, q, angles));
    }
    return merge_heads(w, w.queries, {planes, shape, q.rows * q.width, q.width}, views.to);
}

// How many of `count` a buffer can have that far apart.
int64_t together(int64_t count, int64_t stride) {
    return stride > 0 ? least(count, most(kMaxSpan / kFloat / stride, 1)) : count;
}

attnc_status rotate_all(DeviceWave& w, const RotatedHeads& heads) {
    const Request& r = w.request;
    const int64_t rows = rows_at_once(w.layer);
    // Positions are pairs of int32 where they are int64.
    const int64_t positions = r.query_positions.present ? 2 * r.query_positions.batch_stride : 0;
    const int64_t most_items = together(most(rows / r.seq_q, 1), positions);
    const int64_t most_rows =
        together(together(least(rows, r.seq_q), heads.from.row_stride), heads.to.row_stride);
    const int64_t most_heads = together(together(heads.heads, heads.from.head_stride), heads.to.head_stride);
    Part p = {};
    for (p.item = 0; p.item < r.batch; p.item += p.items) {
        p.items = least(most_items, r.batch - p.item);
        for (p.row = 0; p.row < r.seq_q; p.row += p.rows) {
            p.rows = least(most_rows, r.seq_q - p.row);
            for (p.head = 0; p.head < heads.heads; p.head += p.heads) {
                p.heads = least(most_heads, heads.heads - p.head);
                ATTNC_TRY(rotate_part(w, heads, p));
            }
        }
    }
    return ATTNC_OK;
}

}  // namespace

attnc_status rotate_workspace(const attnc_layer& layer, const attnc_run* run, size_t* bytes,
                              attnc_error* error) {
    Request request = {};
    DevicePlan plan;
    ATTNC_TRY(check_executor(error, run, request));
    ATTNC_TRY(plan_rotation(error, device_layer(layer), &plan));
    *bytes = static_cast<size_t>(plan.bytes);
    return ATTNC_OK;
}

attnc_status rotate(const attnc_layer& any_layer, const attnc_rotation* rotation, const attnc_run& run,
                    attnc_error* error) {
    const DeviceLayer& layer = device_layer(any_layer);
    Request request = {};
    RotatedHeads heads = {};
    DevicePlan plan;
    ATTNC_TRY(check_executor(error, &run, request));
    ATTNC_TRY(check_rotation(error, layer, rotation, &heads, &request));
    ATTNC_TRY(plan_rotation(error, layer, &plan));
    ATTNC_TRY(check_workspace(error, plan.bytes, kDeviceAlignment, run));
    ATTNC_TRY(check_rotated_overlaps(error, *rotation, heads.in_place, run.workspace,
                                     static_cast<size_t>(plan.bytes)));
    if (request.batch == 0 || request.seq_q == 0) return ATTNC_OK;
    return in_context(error, layer.driver, layer.context, [&] {
        DeviceWave wave =
            begin_wave(error, layer, request, plan, run.workspace, static_cast<Stream>(run.stream), 0);
        return rotate_all(wave, heads);
    });
}

}  // namespace attnc::cuda
