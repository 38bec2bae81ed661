#include "tests/cases/direct_call.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <new>

#include "tests/harness/libraries.h"

namespace attnc::test {

namespace {

LayerPointer created(const Config& config, const attnc_weights& weights, const attnc_layer_options& options) {
    attnc_error error = {};
    attnc_layer* layer = nullptr;
    EXPECT_EQ(attnc_layer_create(library_of(config), &weights, &options, &layer, &error), ATTNC_OK)
        << error.text;
    return LayerPointer(layer);
}

}  // namespace

LayerPointer make_layer(const LayerCall& call, const std::string& target, const attnc_allocator* allocator) {
    attnc_layer_options options = call.options();
    options.target = target.c_str();
    options.allocator = allocator;
    return created(call.config, call.weights(), options);
}

LayerPointer make_layer(const Config& config, const attnc_weights& weights, const std::string& target) {
    attnc_layer_options options = ATTNC_LAYER_OPTIONS_INIT;
    options.target = target.c_str();
    return created(config, weights, options);
}

PoolPointer make_pool(int64_t threads) {
    attnc_error error = {};
    attnc_pool* pool = nullptr;
    EXPECT_EQ(attnc_pool_create(threads, &pool, &error), ATTNC_OK) << error.text;
    return PoolPointer(pool);
}

// Without huge pages: one touched byte would take 2 MiB.
SparseMemory::SparseMemory(size_t bytes)
    : memory_(
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
      bytes_(bytes) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    madvise(memory_, bytes_, MADV_NOHUGEPAGE);
}

SparseMemory::~SparseMemory() { munmap(memory_, bytes_); }

void* Workspace::of(size_t bytes) {
    if (bytes > bytes_) {
        memory_ = std::make_unique<SparseMemory>(bytes);
        bytes_ = bytes;
    }
    return bytes == 0 ? nullptr : memory_->as<void>();
}

DirectResult forward(const attnc_layer* layer, const attnc_inputs& in, const attnc_outputs& out,
                     Workspace& workspace, const attnc_executor* executor) {
    attnc_error error = {};
    attnc_run run = ATTNC_RUN_INIT;
    run.executor = executor;
    attnc_status status = attnc_layer_workspace(layer, &in, &out, &run, &run.workspace_bytes, &error);
    if (status == ATTNC_OK) {
        run.workspace = workspace.of(run.workspace_bytes);
        status = attnc_layer_forward(layer, &in, &out, &run, &error);
    }
    return {status, error.text};
}

std::vector<float> forward(const attnc_layer* layer, const LayerCall& call, const attnc_executor* executor) {
    const int64_t features =
        call.config.out_proj ? call.config.d_model : call.config.num_heads * call.config.v_head_dim;
    Array<float> out = filled<float>({call.sizes.batch, call.sizes.seq_q, features}, 0);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = out.view();
    Workspace workspace;
    const DirectResult result = forward(layer, call.inputs(), outputs, workspace, executor);
    EXPECT_TRUE(result.ok()) << result.error;
    return result.ok() ? out.values : std::vector<float>();
}

}  // namespace attnc::test
