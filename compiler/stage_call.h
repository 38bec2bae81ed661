// One part of a layer's call, alone, on what the parts before it have left in the workspace: attention reads the planes of
// heads, padded and packed, that the projections write. Of a batch that goes through the workspace in waves, every wave finds
// there what the last one has left: other items' numbers in the same places.
#pragma once

#include <memory>

#include "compiler/layer_call.h"

namespace attnc {

enum class Stage { kProjectInputs, kAttend, kProjectOutput };
const char* stage_name(Stage stage);  // "project_inputs"
double operations_of(const CallOperations& operations, Stage stage);

class StageCall {
public:
    // Runs the parts before `stage`. `layer` lives longer, and nobody calls it in the meantime.
    StageCall(const LayerCall& layer, Stage stage);
    StageCall(const StageCall&) = delete;
    StageCall& operator=(const StageCall&) = delete;
    ~StageCall();

    void call();

private:
    struct State;
    std::unique_ptr<State> state_;
    Stage stage_;
};

}  // namespace attnc
