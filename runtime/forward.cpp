// A call from its arguments to its outputs: checks, plan, then for each wave of items the parts of the layer.
#include "runtime/cache_rows.h"
#include "runtime/carve.h"
#include "runtime/device_runtime.h"
#include "runtime/plan.h"
#include "runtime/request.h"
#include "runtime/stage.h"
#include "runtime/text.h"
#include "runtime/wave.h"

namespace attnc {
namespace {

attnc_status run_wave(attnc_error* error, Wave& wave) {
    ATTNC_TRY(project_inputs(error, wave));
    if (wave.request.seq_q == 0) return ATTNC_OK;
    do {
        ATTNC_TRY(attend(error, wave));
        ATTNC_TRY(project_output(error, wave));
    } while (next_queries(wave));
    return ATTNC_OK;
}

attnc_status run_waves(attnc_error* error, const attnc_layer& layer, const Request& request, const Plan& plan,
                       void* memory) {
    Wave wave = make_wave(layer, request, plan, memory);
    forget_overwritten(request);
    for (int64_t first = 0; first < request.batch; first += wave.item_count) {
        begin_wave(wave, first);
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
    // On a device, keys that stay need no rows in the workspace.
    const bool keeps = layer.device != nullptr && layer.has(ATTNC_CONFIG_CACHE);
    const int64_t most_keys = keeps ? kNoLastKey - 1 : layer.max_rows;
    const struct {
        const char* name;
        int64_t value, most;
    } numbers[] = {{"max_batch", limits->max_batch, INT64_MAX},
                   {"max_seq_q", limits->max_seq_q, layer.max_rows},
                   {"max_seq_kv", limits->max_seq_kv, most_keys},
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
    if (layer->device != nullptr)
        return layer->device->runtime->workspace(*layer, inputs, outputs, run, bytes, error);
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
    ATTNC_TRY(check_limits(error, *layer, limits));
    if (layer->device != nullptr)
        return layer->device->runtime->workspace_bound(*layer, *limits, bytes, error);
    Plan plan;
    ATTNC_TRY(plan_bound(error, *layer, *limits, &plan));
    *bytes = static_cast<size_t>(plan.bytes);
    return ATTNC_OK;
}

extern "C" attnc_status attnc_layer_forward(const attnc_layer* layer, const attnc_inputs* inputs,
                                            const attnc_outputs* outputs, const attnc_run* run,
                                            attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (run == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"run is null"});
    if (layer->device != nullptr)
        return layer->device->runtime->forward(*layer, inputs, outputs, *run, error);
    Request request;
    Plan plan;
    ATTNC_TRY(check_call(error, *layer, inputs, outputs, run, DataNeed::kAll, &request));
    ATTNC_TRY(plan_call(error, *layer, request, &plan));
    ATTNC_TRY(check_workspace(error, plan.bytes, kAlignment, *run));
    ATTNC_TRY(check_overlaps(error, *inputs, *outputs, run->workspace, static_cast<size_t>(plan.bytes)));
    if (plan.bytes == 0) return ATTNC_OK;
    return run_waves(error, *layer, request, plan, run->workspace);
}

extern "C" attnc_status attnc_memory_workspace(const attnc_layer* layer, const attnc_inputs* inputs,
                                               attnc_cache* cache, const attnc_run* run, size_t* bytes,
                                               attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (bytes == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"bytes is null"});
    if (layer->device != nullptr)
        return layer->device->runtime->memory_workspace(*layer, inputs, cache, run, bytes, error);
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
    if (layer->device != nullptr)
        return layer->device->runtime->memory_project(*layer, inputs, cache, *run, error);
    Request request;
    Plan plan;
    ATTNC_TRY(check_memory(error, *layer, inputs, cache, run, DataNeed::kAll, &request));
    ATTNC_TRY(plan_call(error, *layer, request, &plan));
    ATTNC_TRY(check_workspace(error, plan.bytes, kAlignment, *run));
    attnc_inputs all = *inputs;
    all.cache = cache;
    const attnc_outputs none = ATTNC_OUTPUTS_INIT;
    ATTNC_TRY(check_overlaps(error, all, none, run->workspace, static_cast<size_t>(plan.bytes)));
    if (plan.bytes == 0) return ATTNC_OK;
    return run_waves(error, *layer, request, plan, run->workspace);
}
