#include "runtime/project.h"

#include "runtime/arithmetic.h"
#include "runtime/cache_rows.h"
#include "runtime/call.h"
#include "runtime/library.h"

namespace attnc {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kMaxSpan = INT32_MAX;

// Weights of one piece of work: they stay in a core's L2, with some of the rows, while all chunks of rows stream past.
// Those of Q, K and V for one part of the heads may be more: the rows are then read once for all three.
constexpr int64_t kGroupBytes = 1 << 19;
constexpr int64_t kTogetherBytes = 3 << 18;

// Rows of one piece of work: enough to hide what a call costs, few enough that they stay in L2 beside the weights.
constexpr int64_t kChunkBytes = 1 << 18;
constexpr int64_t kLeastChunkRows = 24;

constexpr int64_t kTasksPerThread = 4;

// Divides panels into parts of at most `panels`, all about equal.
void split_panels(Projection& p, int64_t panels) {
    const int64_t per_head = p.heads.panels_per_head;
    // Strides between heads count too: the planes of one piece of work must span less than 2 GiB.
    const int64_t head_span = p.to.head_stride * p.heads.heads_per_panel * kFloat;
    const int64_t most_groups = p.heads_out && head_span > 0 ? most(kMaxSpan / head_span, 1) : p.heads.groups;
    if (panels >= per_head || p.steps.any()) {
        p.panel_parts = 1;
        p.group_parts = divide_up(p.heads.groups, least(most(panels / per_head, 1), most_groups));
    } else {
        p.panel_parts = divide_up(per_head, panels);
        p.group_parts = p.heads.groups;
    }
    p.panel_step = divide_up(per_head, p.panel_parts);
    p.panel_parts = divide_up(per_head, p.panel_step);
    p.group_step = divide_up(p.heads.groups, p.group_parts);
    p.group_parts = divide_up(p.heads.groups, p.group_step);
}

int64_t chunks_of(const Projection& p) {
    const int64_t row_bytes = (p.weights != nullptr ? p.weights->inner : p.features) * kFloat;
    const int64_t rows = most(kChunkBytes / row_bytes, kLeastChunkRows);
    return most((p.rows.total + rows / 2) / rows, 1);
}

// Whether two projections read the same rows of the same tokens.
bool same_rows(const Projection& a, const Projection& b) {
    return a.from.data == b.from.data && a.from.batch_stride == b.from.batch_stride &&
           a.from.row_stride == b.from.row_stride && a.rows.kind == b.rows.kind &&
           a.rows.total == b.rows.total;
}

// Lets pieces of work make the same part of the heads of Q, K and V, so that rows are read once for all three, if that
// leaves work for all threads and the weights of a part fit.
bool take_together(Projection* projections, int64_t count, int64_t concurrency) {
    int64_t fewest = projections[0].heads.groups, bytes = 0;
    for (int64_t i = 0; i < count; ++i) {
        const Projection& p = projections[i];
        if (p.weights == nullptr || !same_rows(p, projections[0])) return false;
        fewest = least(fewest, p.heads.groups);
        bytes += p.heads.panels() * p.weights->panel_bytes();
    }
    const int64_t chunks = chunks_of(projections[0]);
    for (int64_t parts = 1; parts <= fewest; ++parts) {
        bool even = bytes / parts <= kTogetherBytes &&
                    (concurrency == 1 || parts * chunks >= kTasksPerThread * concurrency);
        for (int64_t i = 0; i < count; ++i) even = even && projections[i].heads.groups % parts == 0;
        if (!even) continue;
        for (int64_t i = 0; i < count; ++i) {
            Projection& p = projections[i];
            split_panels(p, p.heads.panels() / parts);
            if (p.group_parts != parts || p.panel_parts != 1) return false;
            p.rows.chunks = chunks;
            p.together = i == 0 ? count : 0;
        }
        return true;
    }
    return false;
}

// Chooses pieces of work: panels in groups that fit L2, rows in chunks; smaller ones where threads would be
// idle.
void divide_work(Projection* projections, int64_t count, int64_t concurrency) {
    const auto work = [&] {
        int64_t sum = 0;
        for (int64_t i = 0; i < count; ++i) sum += projections[i].count();
        return sum;
    };
    bool smaller = count > 0 && !take_together(projections, count, concurrency);
    if (smaller) {
        for (int64_t i = 0; i < count; ++i) {
            Projection& p = projections[i];
            p.rows.chunks = chunks_of(p);
            split_panels(p,
                         p.weights != nullptr ? most(kGroupBytes / p.weights->panel_bytes(), 1) : INT64_MAX);
            p.together = 1;
        }
    }
    smaller = smaller && concurrency > 1;
    while (smaller && work() < kTasksPerThread * concurrency) {
        smaller = false;
        for (int64_t i = 0; i < count; ++i) {
            Projection& p = projections[i];
            const int64_t held = p.panel_step * p.group_step;
            const int64_t least_held = p.steps.any() ? p.heads.panels_per_head : 1;
            if (p.weights != nullptr && held > least_held) {
                split_panels(p, held / 2);
                smaller = true;
            } else if (p.rows.total / (2 * p.rows.chunks) >= kLeastChunkRows) {
                p.rows.chunks *= 2;
                smaller = true;
            }
        }
    }
    for (int64_t i = 0; i < count; ++i) {
        if (projections[i].rows.total == 0) projections[i].rows.chunks = 0;
    }
}

// The part of the panels, or heads, that a piece of work covers.
struct Part {
    int64_t first_panel, panels;  // within a head
    int64_t first_group, groups;
    int64_t chunk;
};

// Pieces of work in this order keep a group of panels in cache: all chunks of rows for one group, then the
// next group.
Part part_of(const Projection& p, int64_t index) {
    Part part = {};
    part.chunk = index % p.rows.chunks;
    const int64_t group = index / p.rows.chunks;
    part.first_panel = group % p.panel_parts * p.panel_step;
    part.panels = least(p.panel_step, p.heads.panels_per_head - part.first_panel);
    part.first_group = group / p.panel_parts * p.group_step;
    part.groups = least(p.group_step, p.heads.groups - part.first_group);
    return part;
}

const float* caller_row(const Projection& p, const Stretch& s) {
    return p.from.data + p.rows.origin(s.item) * p.from.batch_stride + s.item_row * p.from.row_stride;
}

float* caller_row_out(const Projection& p, const Stretch& s) {
    return p.to.data + p.rows.origin(s.item) * p.to.batch_stride + s.item_row * p.to.row_stride;
}

bool project_heads(const Wave& wave, const Projection& p, const Part& part, const Stretch& s, int kernel,
                   Worker& worker) {
    const PackedWeights& w = *p.weights;
    const HeadPanels& h = p.heads;
    const int64_t first = part.first_group * h.panels_per_head + part.first_panel;
    const int64_t panels = part.panels * part.groups;
    float* to = p.to.data + part.first_group * h.heads_per_panel * p.to.head_stride + s.row * h.width +
                part.first_panel * w.panel;
    Buffer<2> x(caller_row(p, s), kFloat32, {{w.inner, 1}, {s.count, p.from.row_stride}});
    Buffer<3> weights(w.panels + first * w.inner * w.panel, kFloat32,
                      {{w.panel, 1}, {w.inner, w.panel}, {panels, w.inner * w.panel}});
    Buffer<2> bias(w.bias + first * w.panel, kFloat32, {{w.panel, 1}, {panels, w.panel}});
    Buffer<5> y(to, kFloat32,
                {{h.columns, 1},
                 {h.heads_per_panel, p.to.head_stride},
                 {s.count, h.width},
                 {part.panels, w.panel},
                 {part.groups, h.heads_per_panel * p.to.head_stride}});
    KernelCall call;
    call.set(ATTNC_ARGUMENT_INPUT, x);
    call.set(ATTNC_ARGUMENT_WEIGHTS, weights);
    call.set(ATTNC_ARGUMENT_BIAS_VECTOR, bias);
    call.set(ATTNC_ARGUMENT_Y, y);
    return call.run(wave.layer.kernel(kernel), worker.task);
}

bool project_out(const Wave& wave, const Projection& p, const Part& part, const Stretch& s, int kernel,
                 Worker& worker) {
    const PackedWeights& w = *p.weights;
    const int64_t first_column = part.first_panel * w.panel;
    const int64_t columns = least(part.panels * w.panel, p.features - first_column);
    Buffer<2> x(p.from.data + s.row * p.from.row_stride, kFloat32,
                {{w.inner, 1}, {s.count, p.from.row_stride}});
    Buffer<3> weights(w.panels + part.first_panel * w.inner * w.panel, kFloat32,
                      {{w.panel, 1}, {w.inner, w.panel}, {part.panels, w.inner * w.panel}});
    Buffer<2> bias(w.bias + first_column, kFloat32, {{w.panel, 1}, {part.panels, w.panel}});
    Buffer<2> out(caller_row_out(p, s) + first_column, kFloat32, {{columns, 1}, {s.count, p.to.row_stride}});
    KernelCall call;
    call.set(ATTNC_ARGUMENT_INPUT, x);
    call.set(ATTNC_ARGUMENT_WEIGHTS, weights);
    call.set(ATTNC_ARGUMENT_BIAS_VECTOR, bias);
    call.set(ATTNC_ARGUMENT_OUT, out);
    return call.run(wave.layer.kernel(kernel), worker.task);
}

bool project(const Wave& wave, const Projection& p, const Part& part, const Stretch& s, Worker& worker,
             const char** refused) {
    const attnc_layout& l = wave.layer.layout;
    const RowSteps steps = p.heads_out ? row_steps(s.count, l.tile_rows, l.tail_rows)
                                       : row_steps(s.count, l.out_tile_rows, l.out_tail_rows);
    Stretch rest = s;
    const auto run = [&](int64_t count, int heads_kernel, int out_kernel) {
        if (count == 0) return true;
        const Stretch rows = {rest.item, rest.item_row, rest.row, count};
        rest = {rest.item, rest.item_row + count, rest.row + count, rest.count - count};
        *refused = name_of_kernel(p.heads_out ? heads_kernel : out_kernel);
        return p.heads_out ? project_heads(wave, p, part, rows, heads_kernel, worker)
                           : project_out(wave, p, part, rows, out_kernel, worker);
    };
    return run(steps.whole, ATTNC_KERNEL_PROJECT_HEADS, ATTNC_KERNEL_PROJECT_OUT) &&
           run(steps.tails, ATTNC_KERNEL_PROJECT_HEADS_TAIL, ATTNC_KERNEL_PROJECT_OUT_TAIL) &&
           run(steps.few, ATTNC_KERNEL_PROJECT_HEADS_TAIL, ATTNC_KERNEL_PROJECT_OUT_TAIL);
}

// One head at a time, so that no stride between heads is too large for a kernel.
bool copy_heads(const Wave& wave, const Projection& p, int64_t head, const Stretch& s, Worker& worker) {
    const float* from = p.heads_out ? caller_row(p, s) : p.from.data + s.row * p.from.row_stride;
    float* to = p.heads_out ? p.to.data + s.row * p.to.row_stride : caller_row_out(p, s);
    const int64_t width = p.heads.width;
    Buffer<3> x(from + head * p.from.head_stride, kFloat32,
                {{p.heads_out ? p.features : width, 1}, {s.count, p.from.row_stride}, {1, 0}});
    Buffer<3> y(to + head * p.to.head_stride, kFloat32,
                {{p.heads_out ? width : p.features, 1}, {s.count, p.to.row_stride}, {1, 0}});
    KernelCall call;
    call.set(ATTNC_ARGUMENT_INPUT, x);
    call.set(ATTNC_ARGUMENT_Y, y);
    const int kernel = p.heads_out ? ATTNC_KERNEL_SPLIT_HEADS : ATTNC_KERNEL_MERGE_HEADS;
    return call.run(wave.layer.kernel(kernel), worker.task);
}

// Normalises and rotates the heads that a call has just written.
bool finish_heads(const Wave& wave, const Projection& p, const Part& part, const Stretch& s, Worker& worker,
                  const char** refused) {
    const int64_t first = part.first_group * p.heads.heads_per_panel;
    const int64_t heads = least(part.groups * p.heads.heads_per_panel, p.real_heads - first);
    float* data = p.to.data + first * p.to.head_stride + s.row * p.heads.width;
    return run_head_steps(wave.layer, p.steps, {data, s.count, heads, p.to.head_stride}, s.row, worker.task,
                          refused);
}

// What a piece of work made of keys or values goes into the cache.
void keep_part(const Wave& wave, const Projection& p, const Part& part, const Stretch& s) {
    const HeadPanels& h = p.heads;
    const int64_t heads = wave.layer.config.num_kv_heads;
    const int64_t first = part.first_group * h.heads_per_panel;
    const int64_t end = least(first + part.groups * h.heads_per_panel, heads);  // the others are padding
    const int64_t panel = h.width / h.panels_per_head;
    for (int64_t head = first; head < end; ++head) {
        keep_rows(wave, {p.to.data + head * p.to.head_stride + s.row * h.width, s.item, s.item_row, s.count,
                         head, part.first_panel * panel, part.panels * panel, p.keeps == Keeps::kValues});
    }
}

bool run_part(const Wave& wave, const Projection& p, Worker& worker, int64_t index, const char** refused) {
    const Part part = part_of(p, index);
    const int64_t end = chunk_begin(p.rows, part.chunk + 1);
    for (int64_t row = chunk_begin(p.rows, part.chunk); row < end;) {
        const Stretch s = stretch_at(p.rows, row, end);
        bool done = true;
        if (p.weights == nullptr) {
            *refused = name_of_kernel(p.heads_out ? ATTNC_KERNEL_SPLIT_HEADS : ATTNC_KERNEL_MERGE_HEADS);
            for (int64_t h = part.first_group; done && h < part.first_group + part.groups; ++h) {
                done = copy_heads(wave, p, h, s, worker);
            }
        } else {
            done = project(wave, p, part, s, worker, refused);
        }
        if (!done) return false;
        if (p.steps.any() && !finish_heads(wave, p, part, s, worker, refused)) return false;
        if (p.keeps != Keeps::kNothing) keep_part(wave, p, part, s);
        row += s.count;
    }
    return true;
}

bool run_projection(const Wave& wave, const void* data, Worker& worker, int64_t index, const char** refused) {
    const auto* const first = static_cast<const Projection*>(data);
    for (const Projection* p = first; p != first + first->together; ++p) {
        if (!run_part(wave, *p, worker, index, refused)) return false;
    }
    return true;
}

Rows make_rows(const Wave& wave, RowKind kind, int64_t batch_stride, int64_t row_stride,
               int64_t workspace_stride) {
    const int64_t call_rows = least(safe_rows(row_stride, kFloat), safe_rows(workspace_stride, kFloat));
    const int64_t total = kind == RowKind::kQueries ? wave.q_rows : wave.new_rows;
    return {wave.items, wave.item_count, kind, total, 1, batch_stride, row_stride, call_rows};
}

struct InSide {
    bool wanted;
    RowKind kind;
    Keeps keeps;
    const TokenView& from;
    const PackedWeights& weights;
    const HeadPanels& heads;
    int64_t offset, plane_rows, real_heads, features;
    HeadSteps steps;
};

Projection make_in_projection(const Wave& wave, const InSide& side) {
    Projection p = {};
    const bool projects = wave.layer.has(ATTNC_CONFIG_IN_PROJ);
    const int64_t width = side.heads.width;
    p.rows = make_rows(wave, side.kind, side.from.batch_stride, side.from.row_stride, width);
    p.weights = projects ? &side.weights : nullptr;
    p.from = side.from;
    p.to = {wave.at<float>(side.offset), 0, side.plane_rows * width, width};
    p.heads_out = true;
    p.keeps = side.keeps;
    p.heads = side.heads;
    p.real_heads = side.real_heads;
    p.features = side.features;
    p.steps = side.steps;
    return p;
}

}  // namespace

int64_t plan_in_projections(const Wave& wave, Projection* projections) {
    const attnc_layer& l = wave.layer;
    const attnc_config& c = l.config;
    const Request& r = wave.request;
    const Plan& plan = wave.plan;
    const RowKind keys = r.cache ? RowKind::kAppended : RowKind::kKeys;
    const HeadSteps q_steps = {l.q_norm, angles_of(wave, false)}, k_steps = {l.k_norm, angles_of(wave, true)};
    const InSide sides[] = {
        {plan.copies_q, RowKind::kQueries, Keeps::kNothing, r.query, l.wq, l.q_heads, plan.q, plan.rows_q,
         c.num_heads, c.head_dim, q_steps},
        {plan.copies_k, keys, r.cache ? Keeps::kKeys : Keeps::kNothing, r.key, l.wk, l.k_heads, plan.k,
         plan.rows_kv, c.num_kv_heads, c.head_dim, k_steps},
        {plan.copies_v,
         keys,
         r.cache ? Keeps::kValues : Keeps::kNothing,
         r.value,
         l.wv,
         l.v_heads,
         plan.v,
         plan.rows_kv,
         c.num_kv_heads,
         c.v_head_dim,
         {}},
    };
    int64_t count = 0;
    for (const InSide& side : sides) {
        if (side.wanted) projections[count++] = make_in_projection(wave, side);
    }
    divide_work(projections, count, plan.concurrency);
    return count;
}

int64_t plan_out_projection(const Wave& wave, Projection* projection) {
    const attnc_layer& l = wave.layer;
    if (!wave.plan.owns_context) return 0;
    const bool projects = l.has(ATTNC_CONFIG_OUT_PROJ);
    const int64_t context_stride = l.config.num_heads * l.v_width;
    const OutView& out = wave.request.out;
    Projection& p = *projection = {};
    p.rows = make_rows(wave, RowKind::kQueries, out.batch_stride, out.row_stride, context_stride);
    p.weights = projects ? &l.wo : nullptr;
    if (wave.q_rows > wave.plan.rows_context) {  // one long item
        p.rows.first_query = wave.first_query;
        p.rows.total = least(wave.end_query, wave.q_rows) - wave.first_query;
    }
    p.from = {wave.at<float>(wave.plan.context), 0, l.v_width, context_stride};
    p.to = out;
    p.heads_out = false;
    p.heads = head_panels(l.config.num_heads, l.v_width, l.v_width);
    p.features = l.config.v_head_dim;
    if (projects) {
        p.heads = {0, l.wo.panel, 1, l.wo.count, 1};  // all panels side by side, as of one wide head
        p.features = l.config.d_model;
    }
    divide_work(projection, 1, wave.plan.concurrency);
    return 1;
}

WorkList work_of(const Projection& projection) { return {projection.count(), run_projection, &projection}; }

}  // namespace attnc
