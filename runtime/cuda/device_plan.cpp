#include "runtime/cuda/device_plan.h"

#include "runtime/arithmetic.h"
#include "runtime/carve.h"
#include "runtime/key_blocks.h"
#include "runtime/plan.h"
#include "runtime/text.h"

namespace attnc::cuda {
namespace {

// Rows of a wave: enough to fill a large device with projections, few enough that the workspace of a large batch stays small.
// An item longer than that is a wave by itself.
constexpr int64_t kWaveRows = 16384;

// Bytes of the results of splits, of probabilities that are only averaged, and of masks that are made of the call's; an item
// alone may need more.
constexpr int64_t kSplitBytes = int64_t{256} << 20;
constexpr int64_t kAverageBytes = int64_t{256} << 20;
constexpr int64_t kMaskBytes = int64_t{256} << 20;
// The same of the tables of items' runs of keys.
constexpr int64_t kRunBytes = int64_t{256} << 20;
constexpr int64_t kInt = sizeof(int32_t);

int64_t wave_rows(const DeviceLayer& layer) { return least(kWaveRows, layer.max_rows); }

// a * b, or what of int64_t is nearest.
int64_t product(int64_t a, int64_t b) {
    int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
}

// Gives every part that the plan needs its place.
attnc_status lay_out(attnc_error* error, const DeviceLayer& layer, DevicePlan& plan) {
    const int64_t heads = layer.config.num_heads;
    Carver carver(kDeviceAlignment);
    plan.call = take_table(carver, plan.wave_items);
    if (plan.packed) plan.all = take_table(carver, 1);
    if (layer.appended > 0) plan.appended = take_table(carver, plan.wave_items);
    if (plan.opens) plan.open = take_table(carver, plan.wave_items);
    if (plan.counts_apart) plan.fresh = take_table(carver, plan.wave_items);
    if (plan.cached) {
        for (int64_t* offset : {&plan.held, &plan.counts, &plan.slots})
            *offset = carver.take(kInt, {plan.batch});
    }
    if (plan.run_count > 0) {
        plan.key_runs = carver.take(kInt, {plan.run_count});
        plan.appended_runs = carver.take(kInt, {plan.wave_items});
    }
    plan.suspects = carver.take(sizeof(int32_t), {plan.wave_items, heads});
    plan.q = carver.take(kFloat, {layer.project_q.slot_planes, plan.rows_q, layer.qk_width});
    plan.k = carver.take(kFloat, {layer.project_k.slot_planes, plan.rows_kv, layer.qk_width});
    plan.v = carver.take(kFloat, {layer.project_v.slot_planes, plan.rows_kv, layer.v_width});
    if (layer.rotates()) {
        plan.q_angles = carver.take(kFloat, {2, plan.rows_q, layer.rotary.pairs});
        plan.k_angles = carver.take(kFloat, {2, plan.rows_kv, layer.rotary.pairs});
        if (plan.packed) plan.q_positions = carver.take(kInt, {plan.rows_q});
        if (plan.packed) plan.k_positions = carver.take(kInt, {plan.rows_kv});
    }
    if (plan.part_floats > 0) {
        plan.part_context = carver.take(kFloat, {plan.part_floats});
        plan.part_row_stats = carver.take(kFloat, {plan.part_stats});
    }
    plan.context = carver.take(kFloat, {plan.rows_q, heads, layer.v_width});
    plan.row_stats = carver.take(kFloat, {2, heads, plan.rows_q});
    if (plan.owns_probs) plan.probs = carver.take(kFloat, {plan.probs_floats});
    plan.key_bias = carver.take(kFloat, {plan.key_bias_floats});
    plan.key_blocks = carver.take(1, {plan.key_blocks_bytes});
    if (carver.overflow()) return fail(error, ATTNC_TOO_LARGE, {"the size of the workspace overflows"});
    plan.bytes = carver.bytes();
    return ATTNC_OK;
}

int32_t flags_of(const DeviceLayer& layer, const Request& r) {
    int32_t flags = 0;
    if (layer.softcap != 0) flags |= ATTNC_MASK_SOFTCAP;
    if (layer.alibi_slopes != nullptr) flags |= ATTNC_MASK_ALIBI;
    const MaskUse use = use_masks(r);
    if (use.key_addend) flags |= ATTNC_MASK_KEY_BIAS;
    if (use.bias) flags |= ATTNC_MASK_BIAS;
    if (use.keep) flags |= ATTNC_MASK_KEEP;
    if (use.drop) flags |= ATTNC_MASK_DROP;
    if (use.blocks) flags |= ATTNC_MASK_BLOCKS;
    return flags;
}

// Of a call with a cache all items' numbers are in one table, and those of the caller may be int64.
attnc_status check_batch(attnc_error* error, const DevicePlan& plan) {
    constexpr int64_t kWide = sizeof(int64_t);
    if (!plan.cached || plan.batch <= kMaxSpan / kWide) return ATTNC_OK;
    return fail(error, ATTNC_TOO_LARGE,
                {"batch is ", plan.batch, ", in a call with a cache on a device at most ", kMaxSpan / kWide});
}

// Rows and heads of an item's tokens, or of its outputs, within what a kernel's buffer can span.
struct Tokens {
    const char* name;
    int64_t rows, row_stride, heads, head_stride;
};
attnc_status check_tokens(attnc_error* error, const DeviceLayer& layer, const Request& r) {
    const int64_t heads = layer.config.num_heads, kv_heads = layer.config.num_kv_heads;
    const Tokens all[] = {{"query", r.seq_q, r.query.row_stride, heads, r.query.head_stride},
                          {"key", r.seq_new, r.key.row_stride, kv_heads, r.key.head_stride},
                          {"value", r.seq_new, r.value.row_stride, kv_heads, r.value.head_stride},
                          {"out", r.seq_q, r.out.row_stride, heads, r.out.head_stride},
                          {"lse", r.seq_q, 1, heads, r.wants_lse ? r.lse.head_stride : 0}};
    for (const Tokens& t : all) {
        if (fits(t.rows, t.row_stride, kFloat) && fits(t.heads, t.head_stride, kFloat)) continue;
        return fail(error, ATTNC_TOO_LARGE,
                    {"an item of ", t.name, " spans more than 2 GiB, on a device at most that"});
    }
    if (fits(r.cache.table_pages, r.cache.page_stride, kInt)) return ATTNC_OK;
    return fail(error, ATTNC_TOO_LARGE,
                {"an item of block_table spans more than 2 GiB, on a device at most that"});
}

// Items and heads of a launch with an element for each pair of query and key, as far as each limit lets them.
struct PairLimits {
    int64_t items, heads;

    void limit(int64_t batch_stride, int64_t head_stride, int64_t size) {
        if (batch_stride > 0) items = least(items, most(kMaxSpan / (batch_stride * size), 1));
        if (head_stride > 0) heads = least(heads, most(kMaxSpan / (head_stride * size), 1));
    }
};

struct PairView {
    const char* name;
    int64_t batch_stride, head_stride, query_stride, key_stride, size;
    bool used;
};

attnc_status limit_pairs(attnc_error* error, const DeviceLayer& layer, const Request& r, DevicePlan& plan) {
    const bool scores = r.scores_stage != ATTNC_SCORES_NOT_GIVEN;
    const auto mask = [](const char* name, const MaskView& m, int64_t size) {
        return PairView{name, m.batch_stride, m.head_stride, m.query_stride, m.key_stride, size, m.present};
    };
    const auto output = [](const char* name, const OutView& o, bool used) {
        return PairView{name, o.batch_stride, o.head_stride, o.row_stride, 1, kFloat, used};
    };
    const PairView views[] = {mask("keep_mask", r.keep_mask, 1),
                              mask("drop_mask", r.drop_mask, 1),
                              mask("bias", r.bias, kFloat),
                              mask("key_keep_mask", r.key_keep_mask, 1),
                              mask("key_drop_mask", r.key_drop_mask, 1),
                              mask("key_bias", r.key_bias, kFloat),
                              mask("block_keep_mask", r.block_keep_mask.view, 1),
                              output("probs", r.probs, r.wants_probs),
                              output("probs_averaged", r.probs_averaged, r.wants_averaged),
                              output("scores", r.scores, scores)};
    const int64_t heads = layer.config.num_heads, pairs = product(r.seq_q, r.seq_kv + layer.appended);
    PairLimits limits = {plan.wave_items, heads};
    limits.limit(plan.made_key_bias.batch_stride, 0, kFloat);
    limits.limit(plan.made_key_blocks.batch_stride, plan.made_key_blocks.head_stride, 1);
    for (const PairView& view : views) {
        if (!view.used) continue;
        limits.limit(view.batch_stride, view.head_stride, view.size);
        if (!fits(r.seq_q, view.query_stride, view.size) || !fits(r.seq_kv, view.key_stride, view.size)) {
            return fail(error, ATTNC_TOO_LARGE,
                        {view.name, " has more than 2 GiB for a head of an item, on a device"});
        }
    }
    const bool by_blocks = scores || r.wants_probs || r.wants_averaged;
    if ((by_blocks || plan.mask_flags != 0 || plan.guards) && pairs > kMaxSpan) {
        return fail(error, ATTNC_TOO_LARGE,
                    {"a head of an item has ", r.seq_q, " times ", r.seq_kv,
                     " pairs of query and key, on a device at most ", kMaxSpan});
    }
    if (by_blocks && divide_up(r.seq_kv, layer.entry->layout.tile_kv) > kMaxGrid) {
        return fail(error, ATTNC_TOO_LARGE,
                    {"seq_kv is ", r.seq_kv, ", for probabilities and scores on a device at most ",
                     kMaxGrid * layer.entry->layout.tile_kv});
    }
    plan.pair_heads = pairs > 0 ? most(least(limits.heads, kMaxSpan / pairs), 1) : limits.heads;
    // Whole groups of heads that share one of K and V, or a part of one group.
    const int64_t group = layer.group();
    if (plan.pair_heads > group) plan.pair_heads = plan.pair_heads / group * group;
    const int64_t of_item = product(pairs, plan.pair_heads);
    plan.pair_items = plan.pair_heads < heads
                          ? 1
                          : most(least(limits.items, of_item > 0 ? kMaxSpan / of_item : limits.items), 1);
    return ATTNC_OK;
}

// Probabilities of all heads of an item, in bytes.
int64_t item_probs(const DeviceLayer& layer, int64_t seq_q, int64_t seq_kv) {
    return product(product(layer.config.num_heads * kFloat, seq_q), seq_kv + layer.appended);
}

attnc_status plan_averages(attnc_error* error, const DeviceLayer& layer, const Request& r, DevicePlan& plan) {
    plan.averages = r.wants_averaged;
    plan.owns_probs = r.wants_averaged && !r.wants_probs;
    if (!plan.averages) return ATTNC_OK;
    const int64_t bytes = item_probs(layer, r.seq_q, r.seq_kv);
    if (plan.pair_heads < layer.config.num_heads || bytes > kMaxSpan) {
        return fail(error, ATTNC_TOO_LARGE,
                    {"probabilities of all heads of an item have ", bytes,
                     " bytes, which can be averaged on a device up to 2 GiB"});
    }
    plan.average_items = plan.pair_items;
    if (plan.owns_probs && bytes > 0)
        plan.average_items = least(plan.pair_items, most(kAverageBytes / bytes, 1));
    plan.probs_floats = product(plan.average_items, bytes / kFloat);
    return ATTNC_OK;
}

// Bytes of the contexts of all parts of `rows` rows.
int64_t part_bytes(const DeviceLayer& layer, int64_t rows, int64_t parts) {
    return product(product(layer.config.num_heads * layer.v_width * kFloat, rows), parts);
}

// Whether attend_decode makes the attention of items of these sizes, and in how many splits of keys. By the sizes of an item
// alone, so that bits don't depend on the batch.
struct Splits {
    bool decodes;
    int64_t count;
};
Splits splits_of(const DeviceLayer& layer, int64_t seq_q, int64_t seq_kv) {
    const attnc_device_layout& l = layer.entry->layout;
    const int64_t count = divide_up(seq_kv, l.split_kv);
    const bool few = product(seq_q, layer.group()) <= l.decode_rows && seq_kv > 0 && count <= kMaxGrid &&
                     part_bytes(layer, seq_q, count + layer.appended) <= kMaxSpan;
    return few ? Splits{true, count} : Splits{false, 1};
}

// A part of the workspace for results of parts.
void set_parts(const DeviceLayer& layer, int64_t rows, int64_t parts, DevicePlan& plan) {
    plan.part_floats = most(plan.part_floats, part_bytes(layer, rows, parts) / kFloat);
    plan.part_stats = most(plan.part_stats, product(2 * layer.config.num_heads * rows, parts));
}

// Bytes for each item of the masks that are made, whichever are more.
int64_t made_bytes(const DevicePlan& plan) {
    return most(product(plan.made_key_bias.batch_stride, kFloat), plan.made_key_blocks.batch_stride);
}

void plan_waves(const DeviceLayer& layer, const Request& r, DevicePlan& plan) {
    const int64_t longest = most(most(r.seq_q, r.seq_new), 1);
    plan.wave_items = least(r.batch, most(wave_rows(layer) / longest, 1));
    if (plan.merges) {
        const int64_t bytes = part_bytes(layer, r.seq_q, plan.parts);
        plan.wave_items = least(plan.wave_items, most(kSplitBytes / bytes, 1));
    }
    // Positions are pairs of int32 where they are int64.
    for (const RowNumbers* rows : {&r.query_positions, &r.key_positions}) {
        if (rows->present && rows->batch_stride > 0)
            plan.wave_items = least(plan.wave_items, most(kMaxSpan / rows->batch_stride / 8, 1));
    }
    if (const int64_t bytes = made_bytes(plan); bytes > 0)
        plan.wave_items = least(plan.wave_items, most(kMaskBytes / bytes, 1));
    if (r.cache.table_stride > 0)
        plan.wave_items = least(plan.wave_items, most(kMaxSpan / kInt / r.cache.table_stride, 1));
    if (plan.runs > 0) plan.wave_items = least(plan.wave_items, most(kRunBytes / (plan.runs * kInt), 1));
    plan.rows_q = plan.wave_items * r.seq_q;
    plan.rows_kv = plan.wave_items * most(r.seq_new, 1);
}

attnc_status plan_packed(attnc_error* error, const DeviceLayer& layer, const Request& r, DevicePlan& plan) {
    plan.wave_items = r.batch;
    plan.rows_q = r.total_q, plan.rows_kv = most(r.total_kv, 1);
    if (r.batch > kMaxGrid) {
        return fail(error, ATTNC_TOO_LARGE,
                    {"a packed batch has ", r.batch, " items, on a device at most ", kMaxGrid});
    }
    if (const int64_t bytes = made_bytes(plan); r.batch > 1 && product(r.batch, bytes) > kMaskBytes) {
        return fail(error, ATTNC_TOO_LARGE,
                    {"masks of a packed batch need ", product(r.batch, bytes),
                     " bytes of the workspace, on a device at most ", kMaskBytes});
    }
    if (const int64_t bytes = product(product(r.batch, plan.runs), kInt); r.batch > 1 && bytes > kRunBytes) {
        return fail(error, ATTNC_TOO_LARGE,
                    {"tables of a packed batch need ", bytes, " bytes of the workspace, on a device at most ",
                     kRunBytes});
    }
    // Each item has blocks of threads for all rows.
    const int64_t rows = most(r.seq_q, r.seq_new);
    const int64_t blocks = product(r.batch, divide_up(rows, layer.entry->layout.tile_q));
    if (blocks <= INT32_MAX) return ATTNC_OK;
    return fail(error, ATTNC_TOO_LARGE,
                {"a packed batch has ", r.batch, " items and ", rows,
                 " rows, more than a device can launch at once"});
}

// Everything per key becomes one number to add, unless it is one that can be added where it lies.
MaskView plan_key_bias(const Request& r) {
    const MaskUse use = use_masks(r);
    if (!use.key_addend || use.in_place != nullptr) return {};
    MaskView made = {};
    made.present = made.per_key = true;
    made.batch_stride = use.addend_by_item ? r.seq_kv : 0;
    made.key_stride = 1;
    return made;
}

MaskView plan_key_blocks(const DeviceLayer& layer, const Request& r) {
    const BlockMask& blocks = r.block_keep_mask;
    if (!blocks.view.present || (blocks.block_q == kGranule && blocks.block_kv == kGranule)) return {};
    MaskView made = {};
    made.present = true;
    made.key_stride = 1;
    made.query_stride = divide_up(r.seq_kv, kGranule);
    const int64_t head = product(made.query_stride, divide_up(r.seq_q, kGranule));
    const bool by_head = blocks.view.head_stride != 0, by_item = blocks.view.batch_stride != 0;
    made.head_stride = by_head ? head : 0;
    made.batch_stride = by_item ? product(by_head ? layer.config.num_heads : 1, head) : 0;
    return made;
}

// Room for the masks that are made of those of a wave.
void set_made(const DeviceLayer& layer, const Request& r, DevicePlan& plan) {
    const MaskView &bias = plan.made_key_bias, &blocks = plan.made_key_blocks;
    if (bias.present) plan.key_bias_floats = most(r.seq_kv, product(plan.wave_items, bias.batch_stride));
    if (!blocks.present) return;
    const int64_t head = product(blocks.query_stride, divide_up(r.seq_q, kGranule));
    plan.key_blocks_bytes = most(most(head, product(layer.config.num_heads, blocks.head_stride)),
                                 product(plan.wave_items, blocks.batch_stride));
}

// Whether as many of an item's new keys count as of its queries.
bool same_counts(const Request& r) {
    const ItemNumbers &q = r.query_lengths, &k = r.key_lengths;
    return r.seq_q == r.seq_new && q.present == k.present && q.data == k.data && q.wide == k.wide;
}

// Where the keys lie, and by what attention finds them.
void choose_keys(const DeviceLayer& layer, const Request& r, DevicePlan& plan) {
    plan.batch = r.batch;
    plan.packed = r.query_starts.present || r.key_starts.present;
    plan.attends = r.seq_q > 0;
    plan.cached = r.cache && r.seq_kv > 0;
    plan.appends = plan.cached && r.cache.appends && r.seq_new > 0;
    plan.counts_apart = plan.appends && (plan.packed || !same_counts(r));
    if (layer.has(ATTNC_CONFIG_CACHE)) plan.runs = divide_up(most(r.seq_kv, 1), kRunKeys);
    plan.launch_heads = layer.config.num_heads;
    if (!plan.cached) return;
    const int64_t plane = r.cache.cache->rows * most(layer.qk_width, layer.v_width) * kFloat;
    plan.launch_heads = least(plan.launch_heads, kMaxSpan / plane * layer.group());
}

// What is done with the queries, by the request alone.
void choose_steps(const DeviceLayer& layer, const Request& r, DevicePlan& plan) {
    constexpr int32_t kDropping =
        ATTNC_MASK_KEY_BIAS | ATTNC_MASK_BIAS | ATTNC_MASK_KEEP | ATTNC_MASK_DROP | ATTNC_MASK_BLOCKS;
    const bool has_keys = r.seq_kv > 0;
    const bool has_interval = r.causal != ATTNC_CAUSAL_NONE || layer.window != ATTNC_WINDOW_NOT_GIVEN;
    const bool before_biases =
        r.scores_stage == ATTNC_SCORES_SCALED || r.scores_stage == ATTNC_SCORES_SOFTCAPPED;
    plan.mask_flags = has_keys ? flags_of(layer, r) : 0;
    if (has_keys) plan.made_key_bias = plan_key_bias(r);
    if (has_keys) plan.made_key_blocks = plan_key_blocks(layer, r);
    const Splits splits = splits_of(layer, r.seq_q, r.seq_kv);
    plan.decodes = splits.decodes && (plan.mask_flags & ATTNC_MASK_BLOCKS) == 0;
    plan.splits = plan.decodes ? splits.count : 1;
    plan.parts = plan.splits + layer.appended;
    plan.merges = plan.parts > 1 || layer.sinks != nullptr;
    plan.guards = has_keys && !plan.decodes && (has_interval || (plan.mask_flags & kDropping) != 0);
    plan.opens = has_keys && has_interval && before_biases;
}

}  // namespace

ItemTable take_table(Carver& carver, int64_t items) {
    ItemTable table;
    table.items = carver.take(sizeof(int32_t), {items, ATTNC_ITEM_COLUMNS});
    table.query_counts = carver.take(sizeof(int32_t), {items});
    table.key_counts = carver.take(sizeof(int32_t), {items});
    return table;
}

bool fits(int64_t count, int64_t stride, int64_t size) {
    return count <= 1 || product(count, product(stride, size)) <= kMaxSpan;
}

attnc_status plan_device_call(attnc_error* error, const DeviceLayer& layer, const Request& r,
                              DevicePlan* plan) {
    *plan = {};
    choose_keys(layer, r, *plan);
    if (r.batch == 0 || (!plan->attends && !plan->appends)) {
        *plan = {};
        return ATTNC_OK;
    }
    ATTNC_TRY(check_batch(error, *plan));
    if (plan->attends) choose_steps(layer, r, *plan);
    if (plan->packed) {
        ATTNC_TRY(plan_packed(error, layer, r, *plan));
    } else {
        plan_waves(layer, r, *plan);
    }
    plan->run_count = plan->wave_items * plan->runs;
    if (plan->merges) set_parts(layer, plan->rows_q, plan->parts, *plan);
    set_made(layer, r, *plan);
    ATTNC_TRY(check_tokens(error, layer, r));
    ATTNC_TRY(limit_pairs(error, layer, r, *plan));
    ATTNC_TRY(plan_averages(error, layer, r, *plan));
    return lay_out(error, layer, *plan);
}

attnc_status plan_device_bound(attnc_error* error, const DeviceLayer& layer, const attnc_limits& limits,
                               DevicePlan* plan) {
    *plan = {};
    // Waves never hold more rows than one item or wave_rows, whichever is more; packed batches are one item here.
    const auto rows = [&](int64_t seq) {
        return least(product(limits.max_batch, seq), most(wave_rows(layer), least(seq, layer.max_rows)));
    };
    plan->packed = true;
    plan->batch = limits.max_batch;
    plan->wave_items = least(limits.max_batch, kMaxGrid);
    plan->rows_q = rows(limits.max_seq_q);
    plan->rows_kv = rows(limits.max_seq_kv);
    plan->opens = layer.has(ATTNC_CONFIG_SCORES);
    if (layer.has(ATTNC_CONFIG_CACHE)) {
        plan->cached = plan->counts_apart = true;
        const int64_t runs = divide_up(limits.max_seq_kv, kRunKeys);
        plan->run_count = least(product(limits.max_batch, runs), most(kRunBytes / kInt, runs));
    }
    const int64_t few = least(limits.max_seq_q, layer.entry->layout.decode_rows / layer.group());
    const int64_t splits = divide_up(limits.max_seq_kv, layer.entry->layout.split_kv) + layer.appended;
    // Of a wave of items with few queries, and of one without.
    const int64_t item = least(part_bytes(layer, few, splits), kMaxSpan);
    const int64_t wave = least(product(limits.max_batch, item), most(item, kSplitBytes));
    const int64_t whole = part_bytes(layer, plan->rows_q, 1 + layer.appended);
    plan->part_floats = most(wave, whole) / kFloat;
    plan->part_stats = divide_up(2 * plan->part_floats, layer.v_width);
    if (layer.has(ATTNC_CONFIG_MASKS)) {
        const auto made = [&](int64_t of_item) {
            return least(product(limits.max_batch, of_item), most(of_item, kMaskBytes));
        };
        const int64_t granules =
            product(divide_up(limits.max_seq_q, kGranule), divide_up(limits.max_seq_kv, kGranule));
        plan->key_bias_floats = divide_up(made(product(limits.max_seq_kv, kFloat)), kFloat);
        plan->key_blocks_bytes = made(product(layer.config.num_heads, granules));
    }
    if (layer.has(ATTNC_CONFIG_PROBS)) {
        plan->owns_probs = true;
        const int64_t bytes = least(item_probs(layer, limits.max_seq_q, limits.max_seq_kv), kMaxSpan);
        plan->probs_floats = least(product(limits.max_batch, bytes), most(bytes, kAverageBytes)) / kFloat;
    }
    return lay_out(error, layer, *plan);
}

}  // namespace attnc::cuda
