// Calls of layers on a device by commands and tests whose tensors are in the host's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "compiler/layer_data.h"
#include "runtime/attnc.h"

namespace attnc {

bool is_on_device(const attnc_layer* layer);

// Memory of a layer's device. Throws std::runtime_error.
class DeviceMemory {
public:
    DeviceMemory(const attnc_layer* layer, size_t bytes);
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    ~DeviceMemory();

    void* data() const { return data_; }
    void copy_in(const void* from, size_t bytes);
    void copy_out(void* to, size_t bytes) const;

private:
    const attnc_layer* layer_;
    void* data_ = nullptr;
};

// A tensor where calls of a layer want it: itself, or on a device a copy there, whose elements come back by copy_out. The host's
// memory must outlive it.
class PlacedTensor {
public:
    PlacedTensor(const attnc_layer* layer, const attnc_tensor& host);
    attnc_tensor view() const;
    void copy_out() const;

private:
    attnc_tensor host_;
    std::unique_ptr<DeviceMemory> memory_;  // null: the host's
};

// Workspace of a layer's calls, where they want it.
class PlacedWorkspace {
public:
    PlacedWorkspace(const attnc_layer* layer, size_t bytes);
    void* data() const { return device_ ? device_->data() : host_->data(); }

private:
    std::unique_ptr<AlignedBytes> host_;
    std::unique_ptr<DeviceMemory> device_;
};

// A cache of a layer in memory of its own.
class PlacedCache {
public:
    // Throws std::runtime_error.
    PlacedCache(const attnc_layer* layer, attnc_cache_options options);
    attnc_cache* cache() const { return cache_; }

private:
    std::unique_ptr<AlignedBytes> head_;
    std::unique_ptr<DeviceMemory> memory_;
    attnc_cache* cache_ = nullptr;
};

// Everything that a call takes, on the device. The host's memory must outlive it.
class DeviceCall {
public:
    DeviceCall(const attnc_layer* layer, const attnc_inputs& inputs, const attnc_outputs& outputs);

    void run();                 // returns when it is launched
    void wait() const;          // until it is done
    void copy_outputs() const;  // to the tensors that were given

private:
    struct Copy {
        attnc_tensor host;
        std::unique_ptr<DeviceMemory> memory;
    };
    void move(attnc_tensor& tensor, bool is_output);

    const attnc_layer* layer_;
    attnc_inputs inputs_;
    attnc_outputs outputs_;
    attnc_run run_ = ATTNC_RUN_INIT;
    std::vector<Copy> copies_;
    std::vector<size_t> results_;  // those of copies_ that are outputs
    std::unique_ptr<DeviceMemory> workspace_;
};

}  // namespace attnc
