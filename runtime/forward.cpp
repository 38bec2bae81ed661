// A call from its arguments to its outputs: checks, plan, then for each wave of items the stages of the
// layer.
#include "runtime/attend.h"
#include "runtime/carve.h"
#include "runtime/masks.h"
#include "runtime/plan.h"
#include "runtime/probs.h"
#include "runtime/project.h"
#include "runtime/request.h"
#include "runtime/stage.h"
#include "runtime/text.h"

namespace attnc {
namespace {

// a + b, or what of int64_t is nearest.
int64_t saturated_sum(int64_t a, int64_t b) {
    int64_t sum = 0;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return b < 0 ? INT64_MIN : INT64_MAX;
}

int32_t within_limits(int64_t key) {
    if (key > kNoLastKey) return kNoLastKey;
    return key < kNoFirstKey ? kNoFirstKey : static_cast<int32_t>(key);
}

// Query i's own key is i + diagonal. Where a call names no diagonal, a window counts from the bottom-right one.
int64_t diagonal(const Request& r, const Item& item) {
    switch (r.causal) {
        case ATTNC_CAUSAL_TOP_LEFT:
            return 0;
        case ATTNC_CAUSAL_OFFSET:
            return r.causal_offsets.at(item.number);
        default:
            return int64_t{item.kv_length} - item.q_length;
    }
}

// The item's interval of keys, from its lengths, the diagonal and the layer's window.
void set_interval(const attnc_layer& layer, const Request& r, Item& item) {
    const int64_t own = diagonal(r, item);
    item.first_key = kNoFirstKey;
    item.last_key = kNoLastKey;
    if ((layer.window & ATTNC_WINDOW_LEFT) != 0)
        item.first_key = within_limits(saturated_sum(own, -layer.window_left));
    if (r.causal != ATTNC_CAUSAL_NONE) {
        item.last_key = within_limits(saturated_sum(own, 1));
    } else if ((layer.window & ATTNC_WINDOW_RIGHT) != 0) {
        item.last_key = within_limits(saturated_sum(saturated_sum(own, layer.window_right), 1));
    }
}

// Items first .. of the batch, as many as the workspace holds; only valid rows get a place there.
void begin_wave(Wave& wave, int64_t first) {
    const Request& r = wave.request;
    const bool needs_all_keys = wave.layer.empty_rows == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES;
    const int64_t left = r.batch - first, tile = wave.layer.layout.tile_kv;
    const int64_t most = left < wave.plan.wave_items ? left : wave.plan.wave_items;
    wave.item_count = wave.q_rows = wave.kv_rows = 0;
    for (int64_t i = 0; i < most; ++i) {
        Item& item = wave.items[i];
        item.number = first + i;
        item.q_origin = r.query_starts.present ? r.query_starts.at(item.number) : item.number;
        item.kv_origin = r.key_starts.present ? r.key_starts.at(item.number) : item.number;
        item.q_length = static_cast<int32_t>(r.query_lengths.present ? r.query_lengths.at(item.number)
                                                                     : query_rows_of(r, item.number));
        item.kv_length = static_cast<int32_t>(r.key_lengths.present ? r.key_lengths.at(item.number)
                                                                    : key_rows_of(r, item.number));
        set_interval(wave.layer, r, item);
        const KeyInterval seen = visible_keys({&item, 0, 0, item.q_length});
        item.kv_first = item.kv_end = 0;
        if (item.q_length > 0) {
            item.kv_first = needs_all_keys ? 0 : static_cast<int32_t>(seen.first / tile * tile);
            item.kv_end = needs_all_keys ? item.kv_length : static_cast<int32_t>(seen.end);
        }
        if (wave.q_rows + item.q_length > wave.plan.rows_q ||
            wave.kv_rows + item.kv_used() > wave.plan.rows_kv)
            return;
        ++wave.item_count;
        item.q_row = wave.q_rows;
        item.kv_row = wave.kv_rows;
        wave.q_rows += item.q_length;
        wave.kv_rows += item.kv_used();
    }
}

attnc_status run_wave(attnc_error* error, const Wave& wave) {
    Projection in[3];
    WorkList first[4];
    const int64_t projections = plan_in_projections(wave, in);
    int64_t lists = 0;
    first[lists++] = key_addend_work(wave);
    for (int64_t i = 0; i < projections; ++i) first[lists++] = work_of(in[i]);
    ATTNC_TRY(run_stage(error, wave, first, lists));

    const WorkList second[] = {attend_work(wave), empty_tails_work(wave)};
    ATTNC_TRY(run_stage(error, wave, second, 2));

    Projection out;
    WorkList third[2] = {average_probs_work(wave)};
    if (plan_out_projection(wave, &out) != 0) third[1] = work_of(out);
    return run_stage(error, wave, third, 2);
}

attnc_status check_workspace(attnc_error* error, const Plan& plan, const attnc_run& run) {
    if (plan.bytes == 0) return ATTNC_OK;
    if (run.workspace == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"run.workspace is null"});
    if (reinterpret_cast<uintptr_t>(run.workspace) % kAlignment != 0) {
        return fail(error, ATTNC_WORKSPACE_MISALIGNED,
                    {"run.workspace is not aligned to ", kAlignment, " bytes"});
    }
    if (run.workspace_bytes < static_cast<size_t>(plan.bytes)) {
        return fail(error, ATTNC_WORKSPACE_TOO_SMALL,
                    {"run.workspace has ", run.workspace_bytes, " bytes, wanted ", plan.bytes});
    }
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
    auto* workspace = static_cast<unsigned char*>(run->workspace);
    Wave wave{.layer = *layer,
              .request = request,
              .plan = plan,
              .masks = use_masks(request),
              .workspace = workspace,
              .items = reinterpret_cast<Item*>(workspace + plan.items)};
    for (int64_t first = 0; first < request.batch; first += wave.item_count) {
        begin_wave(wave, first);
        ATTNC_TRY(run_wave(error, wave));
    }
    return ATTNC_OK;
}
