// Calls straight through the C API, on memory that the test chooses: for what the harness, which copies every tensor
// between guard pages, can't show.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "runtime/attnc.h"
#include "tests/harness/layer_call.h"

namespace attnc::test {

struct LayerDelete {
    void operator()(attnc_layer* layer) const { attnc_layer_destroy(layer); }
};
using LayerPointer = std::unique_ptr<attnc_layer, LayerDelete>;

struct PoolDelete {
    void operator()(attnc_pool* pool) const { attnc_pool_destroy(pool); }
};
using PoolPointer = std::unique_ptr<attnc_pool, PoolDelete>;

// Null, and a failure of the test, where the runtime refuses.
LayerPointer make_layer(const LayerCall& call, const std::string& target,
                        const attnc_allocator* allocator = nullptr);
LayerPointer make_layer(const Config& config, const attnc_weights& weights, const std::string& target);
PoolPointer make_pool(int64_t threads);

// Memory without its pages: bytes are zero until they are written, and untouched pages take no room. A span of many
// GiB costs what is written in it.
class SparseMemory {
public:
    explicit SparseMemory(size_t bytes);
    SparseMemory(const SparseMemory&) = delete;
    SparseMemory& operator=(const SparseMemory&) = delete;
    ~SparseMemory();
    template <typename T>
    T* as() const {
        return static_cast<T*>(memory_);
    }

private:
    void* memory_;
    size_t bytes_;
};

// Workspace of a caller: grows to what a call needs, and is kept.
class Workspace {
public:
    void* of(size_t bytes);

private:
    std::unique_ptr<SparseMemory> memory_;
    size_t bytes_ = 0;
};

// The status and sentence of one forward.
struct DirectResult {
    attnc_status status = ATTNC_OK;
    std::string error;
    bool ok() const { return status == ATTNC_OK; }
};
DirectResult forward(const attnc_layer* layer, const attnc_inputs& in, const attnc_outputs& out,
                     Workspace& workspace, const attnc_executor* executor = nullptr);

// `out` alone, into memory of its own; empty, and a failure of the test, where the runtime refuses.
std::vector<float> forward(const attnc_layer* layer, const LayerCall& call,
                           const attnc_executor* executor = nullptr);

}  // namespace attnc::test
