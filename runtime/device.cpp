// Memory of a layer's device, for programs that have no other way to it.
#include "runtime/device_runtime.h"
#include "runtime/layer.h"
#include "runtime/text.h"

using namespace attnc;

namespace {

attnc_status check_device_layer(attnc_error* error, const attnc_layer* layer) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    if (layer->device != nullptr) return ATTNC_OK;
    return fail(error, ATTNC_NO_DEVICE,
                {"the layer runs on target ", layer->target->name, ", not on a device"});
}

attnc_status check_copy(attnc_error* error, const attnc_layer* layer, const void* to, const void* from,
                        size_t bytes) {
    ATTNC_TRY(check_device_layer(error, layer));
    if (bytes == 0) return ATTNC_OK;
    if (to == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"to is null"});
    if (from == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"from is null"});
    return ATTNC_OK;
}

}  // namespace

extern "C" attnc_status attnc_device_allocate(const attnc_layer* layer, size_t bytes, void** memory,
                                              attnc_error* error) {
    if (memory == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"memory is null"});
    *memory = nullptr;
    ATTNC_TRY(check_device_layer(error, layer));
    return bytes == 0 ? ATTNC_OK : layer->device->runtime->allocate(*layer, bytes, memory, error);
}

extern "C" attnc_status attnc_device_free(const attnc_layer* layer, void* memory, attnc_error* error) {
    ATTNC_TRY(check_device_layer(error, layer));
    return memory == nullptr ? ATTNC_OK : layer->device->runtime->free(*layer, memory, error);
}

extern "C" attnc_status attnc_device_copy_in(const attnc_layer* layer, void* to, const void* from,
                                             size_t bytes, void* stream, attnc_error* error) {
    ATTNC_TRY(check_copy(error, layer, to, from, bytes));
    return bytes == 0 ? ATTNC_OK : layer->device->runtime->copy_in(*layer, to, from, bytes, stream, error);
}

extern "C" attnc_status attnc_device_copy_out(const attnc_layer* layer, void* to, const void* from,
                                              size_t bytes, void* stream, attnc_error* error) {
    ATTNC_TRY(check_copy(error, layer, to, from, bytes));
    return bytes == 0 ? ATTNC_OK : layer->device->runtime->copy_out(*layer, to, from, bytes, stream, error);
}

extern "C" attnc_status attnc_device_synchronize(const attnc_layer* layer, void* stream, attnc_error* error) {
    ATTNC_TRY(check_device_layer(error, layer));
    return layer->device->runtime->synchronize(*layer, stream, error);
}
