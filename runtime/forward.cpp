// A call from its arguments to its outputs: checks, plan, then for each wave of items the stages of the
// layer.
#include "runtime/attend.h"
#include "runtime/cache_rows.h"
#include "runtime/carve.h"
#include "runtime/decode.h"
#include "runtime/masks.h"
#include "runtime/plan.h"
#include "runtime/probs.h"
#include "runtime/project.h"
#include "runtime/request.h"
#include "runtime/rotary.h"
#include "runtime/stage.h"
#include "runtime/text.h"

namespace attnc {
namespace {

// Items first .. of the batch, as many as the workspace holds; only valid rows get a place there.
void begin_wave(Wave& wave, int64_t first) {
    const Request& r = wave.request;
    const Plan& plan = wave.plan;
    const int64_t left = r.batch - first;
    const int64_t most = left < plan.wave_items ? left : plan.wave_items;
    wave.item_count = wave.q_rows = wave.kv_rows = wave.new_rows = wave.most_splits = 0;
    int64_t runs = 0, split_rows = 0;
    for (int64_t i = 0; i < most; ++i) {
        Item& item = wave.items[i] = make_item(wave.layer, r, first + i);
        const int64_t projected = r.cache ? item.new_keys : item.kv_used();
        if (wave.q_rows + item.q_length > plan.rows_q || wave.new_rows + projected > plan.rows_kv) return;
        ++wave.item_count;
        item.q_row = wave.q_rows;
        item.kv_row = wave.kv_rows;
        item.new_row = wave.new_rows;
        item.run_row = runs;
        wave.q_rows += item.q_length;
        wave.kv_rows += item.kv_used();
        wave.new_rows += projected;
        runs += runs_of(item);
        item.split_row = split_rows;
        if (!has_few_queries(wave.layer, item)) continue;
        const int64_t splits = splits_of(wave.layer, item).count;
        if (splits > wave.most_splits) wave.most_splits = splits;
        split_rows += splits * wave.layer.config.num_heads * item.q_length;
    }
}

attnc_status run_wave(attnc_error* error, const Wave& wave) {
    const WorkList angles[] = {query_angles_work(wave), key_angles_work(wave)};
    ATTNC_TRY(run_stage(error, wave, angles, 2));

    Projection in[3];
    WorkList first[5];
    const int64_t projections = plan_in_projections(wave, in);
    int64_t lists = 0;
    first[lists++] = key_addend_work(wave);
    first[lists++] = key_runs_work(wave);
    for (int64_t i = 0; i < projections; ++i) {
        if (in[i].together > 0) first[lists++] = work_of(in[i]);
    }
    ATTNC_TRY(run_stage(error, wave, first, lists));
    if (wave.request.seq_q == 0) return ATTNC_OK;

    const WorkList second[] = {attend_work(wave), decode_work(wave), empty_tails_work(wave)};
    ATTNC_TRY(run_stage(error, wave, second, 3));
    const WorkList joins = join_splits_work(wave);
    if (joins.count > 0) ATTNC_TRY(run_stage(error, wave, &joins, 1));

    Projection out;
    WorkList third[2] = {average_probs_work(wave)};
    if (plan_out_projection(wave, &out) != 0) third[1] = work_of(out);
    return run_stage(error, wave, third, 2);
}

attnc_status run_waves(attnc_error* error, const attnc_layer& layer, const Request& request, const Plan& plan,
                       void* memory) {
    auto* workspace = static_cast<unsigned char*>(memory);
    Wave wave{.layer = layer,
              .request = request,
              .plan = plan,
              .masks = use_masks(request),
              .workspace = workspace,
              .items = reinterpret_cast<Item*>(workspace + plan.items)};
    forget_overwritten(request);
    for (int64_t first = 0; first < request.batch; first += wave.item_count) {
        begin_wave(wave, first);
        wave.keys_share_angles = keys_share_angles(wave);
        ATTNC_TRY(run_wave(error, wave));
    }
    keep_lengths(request);
    return ATTNC_OK;
}

attnc_status check_limits(attnc_error* error, const attnc_layer& layer, const attnc_limits* limits) {
    if (limits == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"limits is null"});
    if (limits->struct_size != sizeof(attnc_limits)) {
        return fail(
            error, ATTNC_BAD_STRUCT_SIZE,
            {"struct_size of attnc_limits is ", limits->struct_size, ", wanted ", sizeof(attnc_limits)});
    }
    const struct {
        const char* name;
        int64_t value, most;
    } numbers[] = {{"max_batch", limits->max_batch, INT64_MAX},
                   {"max_seq_q", limits->max_seq_q, layer.max_rows},
                   {"max_seq_kv", limits->max_seq_kv, layer.max_rows},
                   {"max_concurrency", limits->max_concurrency, INT64_MAX}};
    for (const auto& number : numbers) {
        if (number.value < 1) {
            return fail(error, ATTNC_BAD_VALUE, {number.name, " is ", number.value, ", wanted 1 or more"});
        }
        if (number.value > number.most) {
            return fail(error, ATTNC_TOO_LARGE,
                        {number.name, " is ", number.value, ", at most ", number.most});
        }
    }
    return ATTNC_OK;
}

}  // namespace
}  // namespace attnc

using namespace attnc;

extern "C" attnc_status attnc_layer_workspace(const attnc_layer* layer, const attnc_inputs* inputs,
                                              const attnc_outputs* outputs, const attnc_run* run,
                                              size_t* bytes, attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (bytes == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"bytes is null"});
    Request request;
    Plan plan;
    ATTNC_TRY(check_call(error, *layer, inputs, outputs, run, DataNeed::kSizesOnly, &request));
    ATTNC_TRY(check_overlaps(error, *inputs, *outputs, nullptr, 0));
    ATTNC_TRY(plan_call(error, *layer, request, &plan));
    *bytes = static_cast<size_t>(plan.bytes);
    return ATTNC_OK;
}

extern "C" attnc_status attnc_layer_workspace_bound(const attnc_layer* layer, const attnc_limits* limits,
                                                    size_t* bytes, attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (bytes == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"bytes is null"});
    Plan plan;
    ATTNC_TRY(check_limits(error, *layer, limits));
    ATTNC_TRY(plan_bound(error, *layer, *limits, &plan));
    *bytes = static_cast<size_t>(plan.bytes);
    return ATTNC_OK;
}

extern "C" attnc_status attnc_layer_forward(const attnc_layer* layer, const attnc_inputs* inputs,
                                            const attnc_outputs* outputs, const attnc_run* run,
                                            attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (run == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"run is null"});
    Request request;
    Plan plan;
    ATTNC_TRY(check_call(error, *layer, inputs, outputs, run, DataNeed::kAll, &request));
    ATTNC_TRY(plan_call(error, *layer, request, &plan));
    ATTNC_TRY(check_workspace(error, plan, *run));
    ATTNC_TRY(check_overlaps(error, *inputs, *outputs, run->workspace, static_cast<size_t>(plan.bytes)));
    if (plan.bytes == 0) return ATTNC_OK;
    return run_waves(error, *layer, request, plan, run->workspace);
}

extern "C" attnc_status attnc_memory_workspace(const attnc_layer* layer, const attnc_inputs* inputs,
                                               attnc_cache* cache, const attnc_run* run, size_t* bytes,
                                               attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (bytes == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"bytes is null"});
    Request request;
    Plan plan;
    ATTNC_TRY(check_memory(error, *layer, inputs, cache, run, DataNeed::kSizesOnly, &request));
    ATTNC_TRY(plan_call(error, *layer, request, &plan));
    *bytes = static_cast<size_t>(plan.bytes);
    return ATTNC_OK;
}

extern "C" attnc_status attnc_memory_project(const attnc_layer* layer, const attnc_inputs* inputs,
                                             attnc_cache* cache, const attnc_run* run, attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (run == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"run is null"});
    Request request;
    Plan plan;
    ATTNC_TRY(check_memory(error, *layer, inputs, cache, run, DataNeed::kAll, &request));
    ATTNC_TRY(plan_call(error, *layer, request, &plan));
    ATTNC_TRY(check_workspace(error, plan, *run));
    attnc_inputs all = *inputs;
    all.cache = cache;
    const attnc_outputs none = ATTNC_OUTPUTS_INIT;
    ATTNC_TRY(check_overlaps(error, all, none, run->workspace, static_cast<size_t>(plan.bytes)));
    if (plan.bytes == 0) return ATTNC_OK;
    return run_waves(error, *layer, request, plan, run->workspace);
}
