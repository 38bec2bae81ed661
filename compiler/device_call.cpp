#include "compiler/device_call.h"

#include <algorithm>
#include <string_view>

#include "compiler/targets.h"

namespace attnc {

namespace {

// Bytes from the first element to the end of the last one that the strides reach.
size_t span_bytes(const attnc_tensor& tensor) {
    int64_t elements = 1;
    for (int n = 0; n < tensor.rank; ++n) {
        if (tensor.extent[n] == 0) return 0;
        elements += (tensor.extent[n] - 1) * tensor.stride[n];
    }
    const size_t element = tensor.dtype == ATTNC_U8                                 ? 1
                           : tensor.dtype == ATTNC_I64 || tensor.dtype == ATTNC_F64 ? 8
                                                                                    : 4;
    return static_cast<size_t>(elements) * element;
}

}  // namespace

bool is_on_device(const attnc_layer* layer) {
    return std::string_view(attnc_layer_target(layer)) == kCudaTarget;
}

DeviceMemory::DeviceMemory(const attnc_layer* layer, size_t bytes) : layer_(layer) {
    attnc_error error;
    // A pointer that is not null, of no bytes too.
    check_status(attnc_device_allocate(layer, std::max<size_t>(bytes, 1), &data_, &error), error,
                 "attnc_device_allocate");
}

DeviceMemory::~DeviceMemory() { attnc_device_free(layer_, data_, nullptr); }

void DeviceMemory::copy_in(const void* from, size_t bytes) {
    attnc_error error;
    check_status(attnc_device_copy_in(layer_, data_, from, bytes, nullptr, &error), error,
                 "attnc_device_copy_in");
}

void DeviceMemory::copy_out(void* to, size_t bytes) const {
    attnc_error error;
    check_status(attnc_device_copy_out(layer_, to, data_, bytes, nullptr, &error), error,
                 "attnc_device_copy_out");
}

PlacedTensor::PlacedTensor(const attnc_layer* layer, const attnc_tensor& host) : host_(host) {
    if (host.rank == 0 || !is_on_device(layer)) return;
    memory_ = std::make_unique<DeviceMemory>(layer, span_bytes(host));
    if (const size_t bytes = span_bytes(host); bytes > 0) memory_->copy_in(host.data, bytes);
}

attnc_tensor PlacedTensor::view() const {
    attnc_tensor tensor = host_;
    if (memory_) tensor.data = memory_->data();
    return tensor;
}

void PlacedTensor::copy_out() const {
    if (const size_t bytes = memory_ ? span_bytes(host_) : 0; bytes > 0) memory_->copy_out(host_.data, bytes);
}

PlacedWorkspace::PlacedWorkspace(const attnc_layer* layer, size_t bytes) {
    if (is_on_device(layer)) {
        device_ = std::make_unique<DeviceMemory>(layer, bytes);
    } else {
        host_ = std::make_unique<AlignedBytes>(bytes);
    }
}

PlacedCache::PlacedCache(const attnc_layer* layer, attnc_cache_options options) {
    attnc_error error;
    size_t bytes = 0;
    check_status(attnc_cache_bytes(layer, &options, &bytes, &error), error, "attnc_cache_bytes");
    check_status(attnc_cache_device_bytes(layer, &options, &options.device_bytes, &error), error,
                 "attnc_cache_device_bytes");
    head_ = std::make_unique<AlignedBytes>(bytes);
    if (options.device_bytes > 0) {
        memory_ = std::make_unique<DeviceMemory>(layer, options.device_bytes);
        options.device_memory = memory_->data();
    }
    check_status(attnc_cache_create(layer, &options, head_->data(), bytes, &cache_, &error), error,
                 "attnc_cache_create");
}

DeviceCall::DeviceCall(const attnc_layer* layer, const attnc_inputs& inputs, const attnc_outputs& outputs)
    : layer_(layer), inputs_(inputs), outputs_(outputs) {
    attnc_inputs& in = inputs_;
    for (attnc_tensor* tensor : {&in.query,           &in.key,
                                 &in.value,           &in.keep_mask,
                                 &in.drop_mask,       &in.bias,
                                 &in.key_keep_mask,   &in.key_drop_mask,
                                 &in.key_bias,        &in.key_lengths,
                                 &in.query_lengths,   &in.causal_offsets,
                                 &in.block_keep_mask, &in.query_cu_seqlens,
                                 &in.key_cu_seqlens,  &in.position_offsets,
                                 &in.query_positions, &in.key_positions,
                                 &in.cache_slots,     &in.block_table,
                                 &in.cache_lengths}) {
        move(*tensor, false);
    }
    attnc_outputs& out = outputs_;
    for (attnc_tensor* tensor : {&out.out, &out.probs, &out.probs_averaged, &out.lse, &out.scores})
        move(*tensor, true);
    attnc_error error;
    check_status(attnc_layer_workspace(layer, &inputs_, &outputs_, &run_, &run_.workspace_bytes, &error),
                 error, "attnc_layer_workspace");
    workspace_ = std::make_unique<DeviceMemory>(layer, run_.workspace_bytes);
    run_.workspace = workspace_->data();
}

// Tensors of one memory stay so: query, key and value that are the same are self-attention.
void DeviceCall::move(attnc_tensor& tensor, bool is_output) {
    if (tensor.rank == 0) return;
    const size_t bytes = span_bytes(tensor);
    const auto same = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& copy) {
        return copy.host.data == tensor.data && span_bytes(copy.host) == bytes;
    });
    if (same != copies_.end() && !is_output) {
        tensor.data = same->memory->data();
        return;
    }
    if (is_output) results_.push_back(copies_.size());
    copies_.push_back({tensor, std::make_unique<DeviceMemory>(layer_, bytes)});
    // Outputs too: what lies between their rows comes back as it was.
    if (bytes > 0) copies_.back().memory->copy_in(tensor.data, bytes);
    tensor.data = copies_.back().memory->data();
}

void DeviceCall::run() {
    attnc_error error;
    check_status(attnc_layer_forward(layer_, &inputs_, &outputs_, &run_, &error), error,
                 "attnc_layer_forward");
}

void DeviceCall::wait() const {
    attnc_error error;
    check_status(attnc_device_synchronize(layer_, nullptr, &error), error, "attnc_device_synchronize");
}

void DeviceCall::copy_outputs() const {
    for (const size_t n : results_) {
        const Copy& copy = copies_[n];
        if (const size_t bytes = span_bytes(copy.host); bytes > 0)
            copy.memory->copy_out(copy.host.data, bytes);
    }
}

}  // namespace attnc
