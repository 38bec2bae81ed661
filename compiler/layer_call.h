// A layer of a library with everything that its calls need, to be called again and again: for what times libraries.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compiler/device_call.h"
#include "compiler/layer_data.h"
#include "runtime/attnc.h"
#include "stages/config.h"

namespace attnc {

struct LayerCallSetup {
    Problem problem;
    Config used;  // options that the library has and this does not are left unused
    const attnc_library* library = nullptr;
    std::string target;                        // empty: the best that this CPU runs; "cuda": on its device
    const attnc_executor* executor = nullptr;  // null: the calling thread
    // What calls have beside their tokens and their out; its memory outlives the call. May be empty.
    std::function<void(attnc_inputs&, attnc_outputs&)> adjust;
    // Of tokens and outputs, that calls use in turn so that a small problem doesn't find its own in the cache.
    int64_t most_sets = 16;
};

// The layer that is called, with weights of its own; to be destroyed. Throws std::runtime_error.
attnc_layer* new_layer(const LayerCallSetup& setup);

class LayerCall {
public:
    // Throws std::runtime_error.
    explicit LayerCall(const LayerCallSetup& setup);
    LayerCall(const LayerCall&) = delete;
    LayerCall& operator=(const LayerCall&) = delete;
    ~LayerCall();

    void call();  // on a device until it is done

    const Problem& problem() const { return problem_; }
    const attnc_layer* layer() const { return layer_; }
    const attnc_run& run() const { return run_; }
    // Of the first of the sets of tokens and outputs that calls use in turn.
    const attnc_inputs& inputs() const { return sets_.front()->inputs; }
    const attnc_outputs& outputs() const { return sets_.front()->outputs; }

private:
    struct Set {
        LayerTokens tokens;
        std::vector<float> out;
        attnc_inputs inputs = ATTNC_INPUTS_INIT;
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        std::unique_ptr<DeviceCall> device;  // all of it there; null: on a CPU
        Set(const LayerCallSetup& setup, uint64_t seed);
    };

    Problem problem_;
    attnc_layer* layer_ = nullptr;
    std::vector<std::unique_ptr<Set>> sets_;
    std::unique_ptr<AlignedBytes> workspace_;
    attnc_run run_ = ATTNC_RUN_INIT;
    size_t next_ = 0;
};

// Floating-point operations of a call: 2 for each multiply-add of the projections and of the query and key pairs that
// are visible. Softmax counts nothing.
struct CallOperations {
    double project_inputs = 0, attend = 0, project_output = 0;
    double all() const { return project_inputs + attend + project_output; }
};
CallOperations call_operations(const Problem& problem);

}  // namespace attnc
