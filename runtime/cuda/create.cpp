// Making and destroying a layer on a device.
#include <stdlib.h>

#include "runtime/cuda/context.h"
#include "runtime/cuda/device_weights.h"
#include "runtime/device_library.h"
#include "runtime/text.h"

namespace attnc::cuda {
namespace {

// What a kernel takes is numbered in 32 bits, and heads are blocks along an axis of the grid.
attnc_status describe(attnc_error* error, DeviceLayer& layer) {
    const attnc_config& c = layer.config;
    if (c.num_heads > kMaxGrid) {
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {"the library has ", c.num_heads, " heads, on a device at most ", kMaxGrid});
    }
    layer.layout.tile_kv = layer.entry->layout.tile_kv;
    return ATTNC_OK;
}

// Rows of an item at most, so that no buffer between kernels reaches 2 GiB.
int64_t max_rows(const DeviceLayer& layer) {
    const auto features = [](int64_t heads, int64_t width) { return heads * width; };
    const int64_t q = features(layer.project_q.slot_planes, layer.qk_width);
    const int64_t k = features(layer.project_k.slot_planes, layer.qk_width);
    const int64_t v = features(layer.project_v.slot_planes, layer.v_width);
    const int64_t context = features(layer.config.num_heads, layer.v_width) * (1 + layer.appended);
    int64_t widest = q > k ? q : k;
    for (const int64_t other : {v, context}) {
        if (other > widest) widest = other;
    }
    return kMaxSpan / (widest * kFloat);
}

// The context that is current, or where none is the primary one of device 0.
attnc_status choose_context(attnc_error* error, DeviceLayer& layer) {
    const Driver& driver = layer.driver;
    ATTNC_CUDA_TRY(error, driver, Init, (0));
    ATTNC_CUDA_TRY(error, driver, CtxGetCurrent, (&layer.context));
    if (layer.context != nullptr) {
        ATTNC_CUDA_TRY(error, driver, CtxGetDevice, (&layer.device_number));
        return ATTNC_OK;
    }
    int count = 0;
    ATTNC_CUDA_TRY(error, driver, DeviceGetCount, (&count));
    if (count < 1) return fail(error, ATTNC_NO_DEVICE, {"the CUDA driver has no device"});
    ATTNC_CUDA_TRY(error, driver, DeviceGet, (&layer.device_number, 0));
    ATTNC_CUDA_TRY(error, driver, DevicePrimaryCtxRetain, (&layer.context, layer.device_number));
    layer.retained = true;
    return ATTNC_OK;
}

attnc_status load_modules(attnc_error* error, DeviceLayer& layer) {
    DeviceLimits limits;
    ATTNC_TRY(read_limits(error, layer.driver, layer.device_number, &limits));
    for (int kernel = 0; kernel < ATTNC_DEVICE_KERNEL_COUNT; ++kernel) {
        if (!device_calls(layer.config.flags, kernel)) continue;
        ATTNC_TRY(load_module(error, layer.driver, limits, layer.entry->kernels[kernel],
                              name_of_device_kernel(kernel), &layer.modules[kernel]));
    }
    return ATTNC_OK;
}

// The weights in device memory, by way of memory on the host.
attnc_status copy_weights(attnc_error* error, DeviceLayer& layer, const LayerSources& sources,
                          const DeviceParts& parts) {
    const Driver& driver = layer.driver;
    const auto bytes = static_cast<size_t>(parts.bytes);
    ATTNC_TRY(allocate_memory(error, driver, "a layer of ", bytes, &layer.memory));
    void* host = layer.allocator.allocate(layer.allocator.context, bytes, kAlignment);
    if (host == nullptr)
        return fail(error, ATTNC_OUT_OF_MEMORY, {"no memory to pack the weights in, of ", bytes, " bytes"});
    pack_device_parts(layer, sources, parts, static_cast<unsigned char*>(host));
    Result copied = driver.MemcpyHtoDAsync_v2(layer.memory, host, bytes, nullptr);
    const char* function = "cuMemcpyHtoDAsync_v2";
    if (copied == kSuccess) {
        // Other streams than this one don't wait for it.
        copied = driver.StreamSynchronize(nullptr);
        function = "cuStreamSynchronize";
    }
    layer.allocator.deallocate(layer.allocator.context, host, bytes);
    return check_result(error, driver, copied, function);
}

// Gives back what there is. The context is current.
void release(DeviceLayer& layer) {
    for (KernelModule& module : layer.modules) {
        if (module.module != nullptr) layer.driver.ModuleUnload(module.module);
    }
    if (layer.memory != 0) layer.driver.MemFree_v2(layer.memory);
}

// The same wherever the thread is. Where the context is gone, so is all that was in it.
void release_there(DeviceLayer& layer) {
    (void)in_context(nullptr, layer.driver, layer.context, [&layer] {
        layer.driver.CtxSynchronize();  // work that still reads the weights comes first
        release(layer);
        return ATTNC_OK;
    });
}

attnc_status fill_layer(attnc_error* error, DeviceLayer& layer, const LayerSources& sources,
                        const DeviceParts& parts) {
    ATTNC_TRY(load_driver(error, &layer.driver));
    const attnc_status chosen = choose_context(error, layer);
    bool whole = false;
    const attnc_status filled =
        chosen != ATTNC_OK ? chosen : in_context(error, layer.driver, layer.context, [&] {
            attnc_status status = load_modules(error, layer);
            if (status == ATTNC_OK) status = copy_weights(error, layer, sources, parts);
            whole = status == ATTNC_OK;
            if (!whole) release(layer);
            return status;
        });
    if (filled != ATTNC_OK && whole) release_there(layer);
    if (filled != ATTNC_OK && layer.retained) layer.driver.DevicePrimaryCtxRelease_v2(layer.device_number);
    return filled;
}

}  // namespace

attnc_status create_layer(attnc_error* error, const attnc_device_entry& entry, const LayerSources& sources,
                          attnc_layer** layer) {
    const attnc_allocator allocator = sources.described.allocator;
    constexpr size_t kBytes = (sizeof(DeviceLayer) + kAlignment - 1) / kAlignment * kAlignment;
    void* memory = allocator.allocate(allocator.context, kBytes, kAlignment);
    if (memory == nullptr)
        return fail(error, ATTNC_OUT_OF_MEMORY, {"no memory for a layer of ", kBytes, " bytes"});
    if (reinterpret_cast<uintptr_t>(memory) % kAlignment != 0) {
        allocator.deallocate(allocator.context, memory, kBytes);
        return fail(error, ATTNC_BAD_VALUE,
                    {"allocator.allocate returned memory that is not aligned to ", kAlignment, " bytes"});
    }
    auto* made = static_cast<DeviceLayer*>(memory);
    *made = {};
    static_cast<attnc_layer&>(*made) = sources.described;
    made->bytes = kBytes;
    made->entry = &entry;
    DeviceParts parts;
    attnc_status status = describe(error, *made);
    if (status == ATTNC_OK) status = take_device_parts(error, *made, sources, &parts);
    if (status == ATTNC_OK) {
        made->max_rows = max_rows(*made);
        status = fill_layer(error, *made, sources, parts);
    }
    if (status != ATTNC_OK) {
        allocator.deallocate(allocator.context, memory, kBytes);
        return status;
    }
    *layer = made;
    return ATTNC_OK;
}

void destroy_layer(attnc_layer* layer) {
    auto* made = static_cast<DeviceLayer*>(layer);
    const attnc_allocator allocator = made->allocator;
    release_there(*made);
    if (made->retained) made->driver.DevicePrimaryCtxRelease_v2(made->device_number);
    allocator.deallocate(allocator.context, made, made->bytes);
}

}  // namespace attnc::cuda
