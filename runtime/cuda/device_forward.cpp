// The calls of a layer on a device, and the table through which the rest of the runtime makes them.
#include "runtime/cuda/context.h"
#include "runtime/cuda/device_cache.h"
#include "runtime/cuda/device_rotate.h"
#include "runtime/cuda/device_wave.h"
#include "runtime/plan.h"

namespace attnc::cuda {
namespace {

Stream stream_of(void* stream) { return static_cast<Stream>(stream); }
Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

attnc_status run_wave(DeviceWave& wave) {
    ATTNC_TRY(fill_tables(wave));
    if (wave.plan.attends) ATTNC_TRY(make_masks(wave));
    ATTNC_TRY(project_tokens(wave));
    if (wave.plan.attends) {
        ATTNC_TRY(attend_items(wave));
        ATTNC_TRY(write_pairs(wave));
        ATTNC_TRY(write_output(wave));
    }
    return ATTNC_OK;
}

attnc_status run_waves(attnc_error* error, const DeviceLayer& layer, const Request& request,
                       const DevicePlan& plan, const attnc_run& run) {
    if (plan.bytes == 0) return ATTNC_OK;
    return in_context(error, layer.driver, layer.context, [&] {
        const auto wave_from = [&](int64_t first) {
            return begin_wave(error, layer, request, plan, run.workspace, stream_of(run.stream), first);
        };
        DeviceWave all = wave_from(0);
        all.items = request.batch;
        ATTNC_TRY(begin_cached(all));
        for (int64_t first = 0; first < request.batch; first += plan.wave_items) {
            DeviceWave wave = wave_from(first);
            ATTNC_TRY(run_wave(wave));
        }
        return end_cached(all);
    });
}

attnc_status workspace(const attnc_layer& layer, const attnc_inputs* inputs, const attnc_outputs* outputs,
                       const attnc_run* run, size_t* bytes, attnc_error* error) {
    Request request;
    DevicePlan plan;
    ATTNC_TRY(check_call(error, layer, inputs, outputs, run, DataNeed::kSizesOnly, &request));
    ATTNC_TRY(check_overlaps(error, *inputs, *outputs, nullptr, 0));
    ATTNC_TRY(plan_device_call(error, device_layer(layer), request, &plan));
    *bytes = static_cast<size_t>(plan.bytes);
    return ATTNC_OK;
}

attnc_status workspace_bound(const attnc_layer& layer, const attnc_limits& limits, size_t* bytes,
                             attnc_error* error) {
    DevicePlan plan;
    ATTNC_TRY(plan_device_bound(error, device_layer(layer), limits, &plan));
    *bytes = static_cast<size_t>(plan.bytes);
    return ATTNC_OK;
}

attnc_status forward(const attnc_layer& any_layer, const attnc_inputs* inputs, const attnc_outputs* outputs,
                     const attnc_run& run, attnc_error* error) {
    const DeviceLayer& layer = device_layer(any_layer);
    Request request;
    DevicePlan plan;
    ATTNC_TRY(check_call(error, layer, inputs, outputs, &run, DataNeed::kAll, &request));
    ATTNC_TRY(plan_device_call(error, layer, request, &plan));
    ATTNC_TRY(check_workspace(error, plan.bytes, kDeviceAlignment, run));
    ATTNC_TRY(check_overlaps(error, *inputs, *outputs, run.workspace, static_cast<size_t>(plan.bytes)));
    return run_waves(error, layer, request, plan, run);
}

attnc_status memory_workspace(const attnc_layer& layer, const attnc_inputs* inputs, attnc_cache* cache,
                              const attnc_run* run, size_t* bytes, attnc_error* error) {
    Request request;
    DevicePlan plan;
    ATTNC_TRY(check_memory(error, layer, inputs, cache, run, DataNeed::kSizesOnly, &request));
    ATTNC_TRY(plan_device_call(error, device_layer(layer), request, &plan));
    *bytes = static_cast<size_t>(plan.bytes);
    return ATTNC_OK;
}

attnc_status memory_project(const attnc_layer& any_layer, const attnc_inputs* inputs, attnc_cache* cache,
                            const attnc_run& run, attnc_error* error) {
    const DeviceLayer& layer = device_layer(any_layer);
    Request request;
    DevicePlan plan;
    ATTNC_TRY(check_memory(error, layer, inputs, cache, &run, DataNeed::kAll, &request));
    ATTNC_TRY(plan_device_call(error, layer, request, &plan));
    ATTNC_TRY(check_workspace(error, plan.bytes, kDeviceAlignment, run));
    attnc_inputs all = *inputs;
    all.cache = cache;
    const attnc_outputs none = ATTNC_OUTPUTS_INIT;
    ATTNC_TRY(check_overlaps(error, all, none, run.workspace, static_cast<size_t>(plan.bytes)));
    return run_waves(error, layer, request, plan, run);
}

bool is_there() {
    Driver driver;
    int count = 0;
    return load_driver(nullptr, &driver) == ATTNC_OK && driver.Init(0) == kSuccess &&
           driver.DeviceGetCount(&count) == kSuccess && count > 0;
}

attnc_status allocate(const attnc_layer& any_layer, size_t bytes, void** memory, attnc_error* error) {
    const DeviceLayer& layer = device_layer(any_layer);
    return in_context(error, layer.driver, layer.context, [&] {
        Address address = 0;
        ATTNC_TRY(allocate_memory(error, layer.driver, "", bytes, &address));
        *memory = reinterpret_cast<void*>(address);
        return ATTNC_OK;
    });
}

attnc_status free_memory(const attnc_layer& any_layer, void* memory, attnc_error* error) {
    const DeviceLayer& layer = device_layer(any_layer);
    return in_context(error, layer.driver, layer.context, [&] {
        return check_result(error, layer.driver, layer.driver.MemFree_v2(address_of(memory)), "cuMemFree_v2");
    });
}

attnc_status wait_for(attnc_error* error, const DeviceLayer& layer, void* stream) {
    ATTNC_CUDA_TRY(error, layer.driver, StreamSynchronize, (stream_of(stream)));
    return ATTNC_OK;
}

attnc_status copy_in(const attnc_layer& any_layer, void* to, const void* from, size_t bytes, void* stream,
                     attnc_error* error) {
    const DeviceLayer& layer = device_layer(any_layer);
    return in_context(error, layer.driver, layer.context, [&] {
        ATTNC_CUDA_TRY(error, layer.driver, MemcpyHtoDAsync_v2,
                       (address_of(to), from, bytes, stream_of(stream)));
        return wait_for(error, layer, stream);
    });
}

attnc_status copy_out(const attnc_layer& any_layer, void* to, const void* from, size_t bytes, void* stream,
                      attnc_error* error) {
    const DeviceLayer& layer = device_layer(any_layer);
    return in_context(error, layer.driver, layer.context, [&] {
        ATTNC_CUDA_TRY(error, layer.driver, MemcpyDtoHAsync_v2,
                       (to, address_of(from), bytes, stream_of(stream)));
        return wait_for(error, layer, stream);
    });
}

attnc_status synchronize(const attnc_layer& any_layer, void* stream, attnc_error* error) {
    const DeviceLayer& layer = device_layer(any_layer);
    return in_context(error, layer.driver, layer.context, [&] { return wait_for(error, layer, stream); });
}

}  // namespace
}  // namespace attnc::cuda

extern "C" const attnc_device_runtime attnc_abi1_cuda;
const attnc_device_runtime attnc_abi1_cuda = {
    .is_there = attnc::cuda::is_there,
    .create = attnc::cuda::create_layer,
    .destroy = attnc::cuda::destroy_layer,
    .workspace = attnc::cuda::workspace,
    .workspace_bound = attnc::cuda::workspace_bound,
    .forward = attnc::cuda::forward,
    .memory_workspace = attnc::cuda::memory_workspace,
    .memory_project = attnc::cuda::memory_project,
    .rotate_workspace = attnc::cuda::rotate_workspace,
    .rotate = attnc::cuda::rotate,
    .cache_part_bytes = sizeof(attnc::cuda::CachePart),
    .create_cache = attnc::cuda::create_cache,
    .check_cache = attnc::cuda::check_cache_context,
    .slot_keys = attnc::cuda::read_slot_keys,
    .set_slot_keys = attnc::cuda::write_slot_keys,
    .transfer = attnc::cuda::transfer_rows,
    .reorder = attnc::cuda::reorder_slots,
    .allocate = attnc::cuda::allocate,
    .free = attnc::cuda::free_memory,
    .copy_in = attnc::cuda::copy_in,
    .copy_out = attnc::cuda::copy_out,
    .synchronize = attnc::cuda::synchronize,
};
