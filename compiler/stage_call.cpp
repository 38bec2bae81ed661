#include "compiler/stage_call.h"

#include "runtime/plan.h"
#include "runtime/request.h"
#include "runtime/wave.h"

namespace attnc {

namespace {

using Part = attnc_status (*)(attnc_error*, const Wave&);

Part part_of(Stage stage) {
    switch (stage) {
        case Stage::kProjectInputs:
            return project_inputs;
        case Stage::kAttend:
            return attend;
        case Stage::kProjectOutput:
            return project_output;
    }
    return nullptr;
}

// For all queries of a long item, which the workspace takes in parts.
void run_part(Stage stage, Wave& wave) {
    attnc_error error;
    first_queries(wave);
    do {
        check_status(part_of(stage)(&error, wave), error, stage_name(stage));
    } while (stage != Stage::kProjectInputs && next_queries(wave));
}

template <typename Run>
void for_each_wave(Wave& wave, const Run& run) {
    for (int64_t first = 0; first < wave.request.batch; first += wave.item_count) {
        begin_wave(wave, first);
        run();
    }
}

}  // namespace

struct StageCall::State {
    Request request;
    Plan plan;
    std::unique_ptr<Wave> wave;
};

const char* stage_name(Stage stage) {
    constexpr const char* kNames[] = {"project_inputs", "attend", "project_output"};
    return kNames[static_cast<int>(stage)];
}

double operations_of(const CallOperations& operations, Stage stage) {
    const double all[] = {operations.project_inputs, operations.attend, operations.project_output};
    return all[static_cast<int>(stage)];
}

StageCall::StageCall(const LayerCall& layer, Stage stage) : state_(std::make_unique<State>()), stage_(stage) {
    State& s = *state_;
    attnc_error error;
    check_status(check_call(&error, *layer.layer(), &layer.inputs(), &layer.outputs(), &layer.run(),
                            DataNeed::kAll, &s.request),
                 error, "check_call");
    check_status(plan_call(&error, *layer.layer(), s.request, &s.plan), error, "plan_call");
    s.wave = std::make_unique<Wave>(make_wave(*layer.layer(), s.request, s.plan, layer.run().workspace));
    for_each_wave(*s.wave, [&] {
        for (const Stage before : {Stage::kProjectInputs, Stage::kAttend}) {
            if (before < stage) run_part(before, *s.wave);
        }
    });
}

StageCall::~StageCall() = default;

void StageCall::call() {
    Wave& wave = *state_->wave;
    for_each_wave(wave, [&] { run_part(stage_, wave); });
}

}  // namespace attnc
