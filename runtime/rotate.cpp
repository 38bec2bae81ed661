#include "runtime/rotate.h"

#include <string.h>

#include "runtime/carve.h"
#include "runtime/check.h"
#include "runtime/device_runtime.h"
#include "runtime/head_steps.h"
#include "runtime/stage.h"

namespace attnc {
namespace {

// Rows of one piece of work: few, so that a worker's copy of a head stays in L1.
constexpr int64_t kRotatedRows = 32;

struct RotateCall : RotatedHeads {
    const attnc_layer& layer;
    int64_t chunks;  // of rows, in one item
    // Offsets in a worker's part.
    int64_t angles, copy;  // [kRotatedRows][2 * stride], [kRotatedRows][qk_width]
};

// One head's rows through the worker's memory, padded as the kernels want them.
bool rotate_head(const RotateCall& c, int64_t item, int64_t head, int64_t row, int64_t rows, Worker& worker,
                 const char** refused) {
    const int64_t width = c.layer.qk_width;
    const auto features = static_cast<size_t>(c.layer.config.head_dim);
    const float* from =
        c.from.data + item * c.from.batch_stride + head * c.from.head_stride + row * c.from.row_stride;
    float* to = c.to.data + item * c.to.batch_stride + head * c.to.head_stride + row * c.to.row_stride;
    float* copy = worker.floats(c.copy);
    for (int64_t i = 0; i < rows; ++i) {
        float* padded = copy + i * width;
        memcpy(padded, from + i * c.from.row_stride, features * sizeof(float));
        memset(padded + features, 0, (static_cast<size_t>(width) - features) * sizeof(float));
    }
    const AngleRows angles = {c.layer.rotates() ? worker.floats(c.angles) : nullptr, c.layer.rotary.stride};
    const HeadSteps steps = {c.keys ? c.layer.k_norm : c.layer.q_norm, angles};
    if (!run_head_steps(c.layer, steps, {copy, rows, 1, rows * width}, 0, worker.task, refused)) return false;
    for (int64_t i = 0; i < rows; ++i)
        memcpy(to + i * c.to.row_stride, copy + i * width, features * sizeof(float));
    return true;
}

bool run_rotate(const Wave& wave, const void* data, Worker& worker, int64_t index, const char** refused) {
    const auto& c = *static_cast<const RotateCall*>(data);
    const Request& r = wave.request;
    const int64_t item = index / c.chunks, row = index % c.chunks * kRotatedRows;
    const int64_t rows = r.seq_q - row < kRotatedRows ? r.seq_q - row : kRotatedRows;
    if (c.layer.rotates()) {
        int32_t positions[kRotatedRows];
        for (int64_t i = 0; i < rows; ++i)
            positions[i] = static_cast<int32_t>(position_of(r, false, item, row + i));
        *refused = "rotary_angles";
        if (!make_angles(c.layer, positions, rows, worker.floats(c.angles), worker.task)) return false;
    }
    for (int64_t head = 0; head < c.heads; ++head) {
        if (!rotate_head(c, item, head, row, rows, worker, refused)) return false;
    }
    return true;
}

// What a call needs of the workspace: the workers' parts alone.
attnc_status plan_rotate(attnc_error* error, const attnc_layer& layer, int64_t concurrency, RotateCall* c,
                         Plan* plan) {
    Carver worker, all;
    c->angles = worker.take(sizeof(float), {kRotatedRows, 2, layer.rotary.stride});
    c->copy = worker.take(sizeof(float), {kRotatedRows, layer.qk_width});
    plan->worker_scratch = worker.take(1, {layer.scratch_bytes});
    worker.take(1, {kAlignment});
    plan->worker_bytes = worker.bytes();
    plan->concurrency = concurrency;
    plan->workers = all.take(1, {concurrency, plan->worker_bytes});
    if (all.overflow()) return fail(error, ATTNC_TOO_LARGE, {"the size of the workspace overflows"});
    plan->bytes = all.bytes();
    return ATTNC_OK;
}

// x or out: [batch, seq, heads * head_dim] or [batch, heads, seq, head_dim]. batch and seq may be kAny, and are set.
attnc_status check_heads(attnc_error* error, const TensorRule& rule, const attnc_tensor& t, Dim heads,
                         int64_t features, int64_t* batch, int64_t* seq, OutView* view) {
    if (!given(t)) return fail(error, ATTNC_MISSING_TENSOR, {rule.name, " is missing"});
    const Dim items = {"batch", *batch}, rows = {"seq", *seq};
    const Dim merged = {"heads * head_dim", heads.extent * features}, each = {"head_dim", features};
    ATTNC_TRY(check_rank(error, rule.name, t, {items, rows, merged}, {items, heads, rows, each}));
    const bool split = t.rank == 4;
    ATTNC_TRY(split ? check_tensor(error, rule, t, {items, heads, rows, each})
                    : check_tensor(error, rule, t, {items, rows, merged}));
    *view = {static_cast<float*>(t.data), t.stride[0], split ? t.stride[1] : features,
             t.stride[split ? 2 : 1]};
    *batch = t.extent[0];
    *seq = t.extent[split ? 2 : 1];
    return ATTNC_OK;
}

bool same_view(const TokenView& a, const OutView& b) {
    return a.data == b.data && a.batch_stride == b.batch_stride && a.head_stride == b.head_stride &&
           a.row_stride == b.row_stride;
}

}  // namespace

attnc_status check_rotation(attnc_error* error, const attnc_layer& layer, const attnc_rotation* rotation,
                            RotatedHeads* c, Request* r) {
    if (rotation == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"rotation is null"});
    if (rotation->struct_size != sizeof(attnc_rotation)) {
        return fail(error, ATTNC_BAD_STRUCT_SIZE,
                    {"struct_size of attnc_rotation is ", rotation->struct_size, ", wanted ",
                     sizeof(attnc_rotation)});
    }
    if (!layer.changes_heads()) {
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {"attnc_layer_rotate is called, but the layer has neither a rotary embedding nor norms"});
    }
    const int heads = number_of(rotation->heads);
    if (heads != ATTNC_HEADS_QUERY && heads != ATTNC_HEADS_KEY)
        return fail(error, ATTNC_BAD_VALUE, {"heads is ", heads, ", wanted 1 or 2"});
    c->keys = heads == ATTNC_HEADS_KEY;
    c->heads = c->keys ? layer.config.num_kv_heads : layer.config.num_heads;
    const Dim count = {c->keys ? "num_kv_heads" : "num_heads", c->heads};
    const int64_t features = layer.config.head_dim;
    r->batch = r->seq_q = kAny;
    OutView from = {};
    ATTNC_TRY(check_heads(error, {"x", ATTNC_F32, ATTNC_F32}, rotation->x, count, features, &r->batch,
                          &r->seq_q, &from));
    c->from = {from.data, from.batch_stride, from.head_stride, from.row_stride};
    ATTNC_TRY(check_heads(error, {"out", ATTNC_F32, ATTNC_F32, false, true}, rotation->out, count, features,
                          &r->batch, &r->seq_q, &c->to));
    c->in_place = same_view(c->from, c->to);
    return check_rotated_positions(error, layer, *rotation, *r);
}

}  // namespace attnc

using namespace attnc;

extern "C" attnc_status attnc_layer_rotate_workspace(const attnc_layer* layer, const attnc_run* run,
                                                     size_t* bytes, attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (bytes == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"bytes is null"});
    if (layer->device != nullptr) return layer->device->runtime->rotate_workspace(*layer, run, bytes, error);
    Request request = {};
    RotateCall call{{}, *layer, 0, 0, 0};
    Plan plan;
    ATTNC_TRY(check_executor(error, run, request));
    ATTNC_TRY(plan_rotate(error, *layer, request.concurrency, &call, &plan));
    *bytes = static_cast<size_t>(plan.bytes);
    return ATTNC_OK;
}

extern "C" attnc_status attnc_layer_rotate(const attnc_layer* layer, const attnc_rotation* rotation,
                                           const attnc_run* run, attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (run == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"run is null"});
    if (layer->device != nullptr) return layer->device->runtime->rotate(*layer, rotation, *run, error);
    Request request = {};
    RotateCall call{{}, *layer, 0, 0, 0};
    Plan plan;
    ATTNC_TRY(check_executor(error, run, request));
    ATTNC_TRY(check_rotation(error, *layer, rotation, &call, &request));
    ATTNC_TRY(plan_rotate(error, *layer, request.concurrency, &call, &plan));
    ATTNC_TRY(check_workspace(error, plan.bytes, kAlignment, *run));
    ATTNC_TRY(check_rotated_overlaps(error, *rotation, call.in_place, run->workspace,
                                     static_cast<size_t>(plan.bytes)));
    call.chunks = (request.seq_q + kRotatedRows - 1) / kRotatedRows;
    const Wave wave{.layer = *layer,
                    .request = request,
                    .plan = plan,
                    .masks = {},
                    .workspace = static_cast<unsigned char*>(run->workspace),
                    .items = nullptr};
    const WorkList work = {request.batch * call.chunks, run_rotate, &call};
    return run_stage(error, wave, &work, 1);
}
