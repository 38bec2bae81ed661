// Attention of a wave: its forms, what they may have to do again, and how their parts are joined.
#include "runtime/arithmetic.h"
#include "runtime/cuda/device_masks.h"

namespace attnc::cuda {
namespace {

// Where results of attention go, or come from: `parts` of them, one after another.
struct Results {
    float* context;    // [part][rows][num_heads][v_width]
    float* row_stats;  // [part][2][num_heads][rows]
    int64_t parts;
};

int64_t context_row(const DeviceWave& w) { return w.layer.config.num_heads * w.layer.v_width; }
int64_t head_stats(const DeviceWave& w) { return w.layer.config.num_heads * w.queries.rows(); }

// Some heads' contexts (d, h, m).
Buffer<3> context_buffer(const DeviceWave& w, const float* context, const Slice& s) {
    return Buffer<3>(on_device(context + s.head * w.layer.v_width), kFloat32,
                     {{w.layer.v_width, 1}, {s.heads, w.layer.v_width}, {w.queries.rows(), context_row(w)}});
}
Buffer<3> stats_buffer(const DeviceWave& w, const float* row_stats, const Slice& s) {
    const int64_t rows = w.queries.rows();
    return Buffer<3>(on_device(row_stats + s.head * rows), kFloat32,
                     {{rows, 1}, {s.heads, rows}, {2, head_stats(w)}});
}
Buffer<4> contexts_buffer(const DeviceWave& w, const Results& r, const Slice& s) {
    const int64_t rows = w.queries.rows(), row = context_row(w);
    return Buffer<4>(on_device(r.context + s.head * w.layer.v_width), kFloat32,
                     {{w.layer.v_width, 1}, {s.heads, w.layer.v_width}, {rows, row}, {r.parts, rows * row}});
}
Buffer<4> part_stats_buffer(const DeviceWave& w, const Results& r, const Slice& s) {
    const int64_t rows = w.queries.rows(), heads = head_stats(w);
    return Buffer<4>(on_device(r.row_stats + s.head * rows), kFloat32,
                     {{rows, 1}, {s.heads, rows}, {2, heads}, {r.parts, 2 * heads}});
}

Buffer<2> suspects_buffer(const DeviceWave& w, const Slice& s) {
    const int64_t heads = w.layer.config.num_heads;
    return Buffer<2>(on_device(w.at<int32_t>(w.plan.suspects) + s.item * heads + s.head), kInt32,
                     {{s.heads, 1}, {s.items, heads}});
}

attnc_status find_suspects(const DeviceWave& w, const Keys& keys, const Slice& s, const float* contexts) {
    Buffer<3> context = context_buffer(w, contexts, s);
    Buffer<2> items = item_buffer(w, keys.table, s), suspects = suspects_buffer(w, s);
    const auto seq_q = static_cast<int32_t>(w.request.seq_q);
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_CONTEXT, context);
    call.set(ATTNC_DEVICE_ARGUMENT_ITEMS, items);
    call.set(ATTNC_DEVICE_ARGUMENT_SEQ_Q, seq_q);
    call.set(ATTNC_DEVICE_ARGUMENT_SUSPECTS, suspects);
    return w.run(ATTNC_DEVICE_KERNEL_ATTEND_SUSPECTS, call);
}

// One launch of a form that writes (d, h, m).
attnc_status run_attend(const DeviceWave& w, int kernel, const Keys& keys, const Slice& s,
                        const Results& to) {
    ScoreArguments scores(w, keys, s);
    MaskArguments masks(w, keys, s);
    Buffer<3> v = value_buffer(w, keys, s);
    Buffer<3> context = context_buffer(w, to.context, s), row_stats = stats_buffer(w, to.row_stats, s);
    Buffer<2> suspects = suspects_buffer(w, s);
    DeviceCall call;
    scores.set(call);
    masks.set(call);
    call.set(ATTNC_DEVICE_ARGUMENT_V, v);
    call.set(ATTNC_DEVICE_ARGUMENT_CONTEXT, context);
    call.set(ATTNC_DEVICE_ARGUMENT_ROW_STATS, row_stats);
    call.set(ATTNC_DEVICE_ARGUMENT_SUSPECTS, suspects);
    return w.run(kernel, call);
}

attnc_status run_decode(const DeviceWave& w, const Keys& keys, const Slice& s, const Results& to) {
    ScoreArguments scores(w, keys, s);
    MaskArguments masks(w, keys, s);
    Buffer<3> v = value_buffer(w, keys, s);
    Buffer<4> contexts = contexts_buffer(w, to, s), row_stats = part_stats_buffer(w, to, s);
    DeviceCall call;
    scores.set(call);
    masks.set(call);
    call.set(ATTNC_DEVICE_ARGUMENT_V, v);
    call.set(ATTNC_DEVICE_ARGUMENT_CONTEXT, contexts);
    call.set(ATTNC_DEVICE_ARGUMENT_ROW_STATS, row_stats);
    return w.run(ATTNC_DEVICE_KERNEL_ATTEND_DECODE, call);
}

// The call's keys, or an appended one, as one part.
attnc_status attend_whole(const DeviceWave& w, const Keys& keys, bool guards, const Results& to) {
    const bool masked = keys.flags != 0;
    const auto attend = [&](const Slice& s) {
        return run_attend(w, masked ? ATTNC_DEVICE_KERNEL_ATTEND_MASKED : ATTNC_DEVICE_KERNEL_ATTEND, keys, s,
                          to);
    };
    ATTNC_TRY(masked ? for_slices(w, attend) : for_heads(w, whole_wave(w), attend));
    if (!guards) return ATTNC_OK;
    ATTNC_TRY(find_suspects(w, keys, whole_wave(w), to.context));
    return for_slices(
        w, [&](const Slice& s) { return run_attend(w, ATTNC_DEVICE_KERNEL_ATTEND_GUARDED, keys, s, to); });
}

attnc_status merge(const DeviceWave& w, const Results& from, const Results& to) {
    const Slice all = whole_wave(w);
    const attnc_config& c = w.layer.config;
    Buffer<4> contexts = contexts_buffer(w, from, all), stats_in = part_stats_buffer(w, from, all);
    Buffer<3> context = context_buffer(w, to.context, all), row_stats = stats_buffer(w, to.row_stats, all);
    const void* logits = w.layer.sink_logits != nullptr ? w.layer.sink_logits : w.layer.anything();
    Buffer<1> sinks(on_device(logits), kFloat32, {{c.num_heads, 1}});
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_CONTEXTS, contexts);
    call.set(ATTNC_DEVICE_ARGUMENT_ROW_STATS_IN, stats_in);
    call.set(ATTNC_DEVICE_ARGUMENT_SINKS, sinks);
    call.set(ATTNC_DEVICE_ARGUMENT_CONTEXT, context);
    call.set(ATTNC_DEVICE_ARGUMENT_ROW_STATS, row_stats);
    return w.run(ATTNC_DEVICE_KERNEL_ATTEND_MERGE, call);
}

attnc_status fill_empty(const DeviceWave& w, const Keys& keys, const Results& results, const Slice& s) {
    Buffer<3> v = value_buffer(w, keys, s), context = context_buffer(w, results.context, s);
    Buffer<3> row_stats = stats_buffer(w, results.row_stats, s);
    Buffer<2> items = item_buffer(w, keys.table, s), key_runs = runs_buffer(w, keys, s);
    const auto seq_q = static_cast<int32_t>(w.request.seq_q);
    const auto policy = static_cast<int32_t>(w.layer.empty_rows);
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_ROW_STATS_IN, row_stats);
    call.set(ATTNC_DEVICE_ARGUMENT_V, v);
    call.set(ATTNC_DEVICE_ARGUMENT_ITEMS, items);
    call.set(ATTNC_DEVICE_ARGUMENT_SEQ_Q, seq_q);
    call.set(ATTNC_DEVICE_ARGUMENT_EMPTY_ROWS, policy);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_RUNS, key_runs);
    call.set(ATTNC_DEVICE_ARGUMENT_CONTEXT, context);
    return w.run(ATTNC_DEVICE_KERNEL_FILL_EMPTY, call);
}

attnc_status write_lse(const DeviceWave& w, const Slice& s) {
    const OutView& out = w.request.lse;
    Buffer<3> row_stats = stats_buffer(w, w.at<float>(w.plan.row_stats), s);
    Buffer<2> items = item_buffer(w, w.plan.call, s);
    Buffer<3> lse(on_device(out.data + (w.first + s.item) * out.batch_stride), kFloat32,
                  {{w.request.seq_q, 1}, {s.heads, out.head_stride}, {s.items, out.batch_stride}});
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_ROW_STATS_IN, row_stats);
    call.set(ATTNC_DEVICE_ARGUMENT_ITEMS, items);
    call.set(ATTNC_DEVICE_ARGUMENT_LSE, lse);
    return w.run(ATTNC_DEVICE_KERNEL_ATTEND_LSE, call);
}

attnc_status write_all_lse(const DeviceWave& w) {
    Slice s = whole_wave(w);
    if (fits(w.items, w.request.lse.batch_stride, kFloat)) return write_lse(w, s);
    for (s.items = 1; s.item < w.items; ++s.item) ATTNC_TRY(write_lse(w, s));
    return ATTNC_OK;
}

// Probabilities [item][head][query][key]; data is that of item 0 of the wave.
struct Probs {
    float* data;
    int64_t batch_stride, head_stride, row_stride;
    Buffer<4> buffer(const DeviceWave& w, const Slice& s, int64_t key, int64_t keys) const {
        return Buffer<4>(
            on_device(data + s.item * batch_stride + s.head * head_stride + key), kFloat32,
            {{keys, 1}, {w.request.seq_q, row_stride}, {s.heads, head_stride}, {s.items, batch_stride}});
    }
};

// Columns from `key` on of some items and heads.
attnc_status write_probs(const DeviceWave& w, const Keys& keys, const Slice& s, const Probs& to,
                         int64_t key) {
    ScoreArguments scores(w, keys, s);
    MaskArguments masks(w, keys, s);
    Buffer<3> row_stats = stats_buffer(w, w.at<float>(w.plan.row_stats), s);
    Buffer<4> probs = to.buffer(w, s, key, keys.seq);
    const auto policy = static_cast<int32_t>(w.layer.empty_rows);
    DeviceCall call;
    scores.set(call);
    masks.set(call);
    call.set(ATTNC_DEVICE_ARGUMENT_ROW_STATS_IN, row_stats);
    call.set(ATTNC_DEVICE_ARGUMENT_EMPTY_ROWS, policy);
    call.set(ATTNC_DEVICE_ARGUMENT_PROBS, probs);
    return w.run(ATTNC_DEVICE_KERNEL_ATTEND_PROBS, call);
}

attnc_status write_columns(const DeviceWave& w, const Slice& all, const Probs& to) {
    const int64_t seq_kv = w.request.seq_kv;
    return for_heads(w, all, [&](const Slice& s) {
        if (seq_kv > 0) ATTNC_TRY(write_probs(w, call_keys(w), s, to, 0));
        for (int64_t i = 0; i < w.layer.appended; ++i)
            ATTNC_TRY(write_probs(w, appended_key(w, i), s, to, seq_kv + i));
        return ATTNC_OK;
    });
}

attnc_status average(const DeviceWave& w, const Slice& s, const Probs& from) {
    const int64_t keys = w.request.seq_kv + w.layer.appended;
    const OutView& out = w.request.probs_averaged;
    Buffer<4> probs = from.buffer(w, s, 0, keys);
    Buffer<3> averaged(on_device(out.data + (w.first + s.item) * out.batch_stride), kFloat32,
                       {{keys, 1}, {w.request.seq_q, out.row_stride}, {s.items, out.batch_stride}});
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_PROBS, probs);
    call.set(ATTNC_DEVICE_ARGUMENT_AVERAGED, averaged);
    return w.run(ATTNC_DEVICE_KERNEL_AVERAGE_PROBS, call);
}

attnc_status write_all_probs(const DeviceWave& w) {
    const Request& r = w.request;
    const int64_t keys = r.seq_kv + w.layer.appended;
    if (keys == 0) return ATTNC_OK;
    const Probs given = {r.probs.data + w.first * r.probs.batch_stride, r.probs.batch_stride,
                         r.probs.head_stride, r.probs.row_stride};
    if (r.wants_probs) ATTNC_TRY(for_slices(w, [&](const Slice& s) { return write_columns(w, s, given); }));
    if (!w.plan.averages) return ATTNC_OK;
    Slice s = whole_wave(w);
    for (; s.item < w.items; s.item += s.items) {
        s.items = least(w.plan.average_items, w.items - s.item);
        if (!w.plan.owns_probs) {
            ATTNC_TRY(average(w, s, given));
            continue;
        }
        const int64_t head = r.seq_q * keys, item = w.layer.config.num_heads * head;
        const Probs own = {w.at<float>(w.plan.probs) - s.item * item, item, head, keys};
        ATTNC_TRY(write_columns(w, s, own));
        ATTNC_TRY(average(w, s, own));
    }
    return ATTNC_OK;
}

attnc_status write_scores(const DeviceWave& w) {
    const OutView& out = w.request.scores;
    const Keys keys = score_keys(w);
    const Probs to = {out.data + w.first * out.batch_stride, out.batch_stride, out.head_stride,
                      out.row_stride};
    return for_slices(w, [&](const Slice& s) {
        ScoreArguments arguments(w, keys, s);
        MaskArguments masks(w, keys, s);
        Buffer<4> scores = to.buffer(w, s, 0, keys.seq);
        DeviceCall call;
        arguments.set(call);
        masks.set(call);
        call.set(ATTNC_DEVICE_ARGUMENT_SCORES, scores);
        return w.run(ATTNC_DEVICE_KERNEL_ATTEND_SCORES, call);
    });
}

}  // namespace

attnc_status attend_items(const DeviceWave& w) {
    const DevicePlan& plan = w.plan;
    const Results whole = {w.at<float>(plan.context), w.at<float>(plan.row_stats), 1};
    const Results parts = {w.at<float>(plan.part_context), w.at<float>(plan.part_row_stats), plan.parts};
    const Results& first = plan.merges ? parts : whole;
    const Keys keys = call_keys(w);
    if (plan.decodes) {
        const Results splits = {first.context, first.row_stats, plan.splits};
        ATTNC_TRY(for_slices(w, [&](const Slice& s) { return run_decode(w, keys, s, splits); }));
    } else {
        ATTNC_TRY(attend_whole(w, keys, plan.guards, first));
    }
    for (int64_t i = 0; i < w.layer.appended; ++i) {
        const int64_t part = plan.splits + i, rows = w.queries.rows();
        ATTNC_TRY(attend_whole(
            w, appended_key(w, i), false,
            {first.context + part * rows * context_row(w), first.row_stats + part * 2 * head_stats(w), 1}));
    }
    if (plan.merges) ATTNC_TRY(merge(w, parts, whole));
    if (w.layer.empty_rows == ATTNC_EMPTY_ROWS_ZERO) return ATTNC_OK;
    return for_heads(w, whole_wave(w), [&](const Slice& s) { return fill_empty(w, keys, whole, s); });
}

attnc_status write_pairs(const DeviceWave& w) {
    if (w.request.wants_lse) ATTNC_TRY(write_all_lse(w));
    if (w.request.wants_probs || w.request.wants_averaged) ATTNC_TRY(write_all_probs(w));
    const bool scores = w.request.scores_stage != ATTNC_SCORES_NOT_GIVEN && w.request.seq_kv > 0;
    return scores ? write_scores(w) : ATTNC_OK;
}

}  // namespace attnc::cuda
