#include "tests/support/device_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace attnc::test {

void DeviceTest::begin(const std::vector<stand_in::DeviceSpec>& devices) {
    stand_in::reset(devices);
    for (const FakeDeviceFunction& f : fake_device_functions()) stand_in::set_code(f.name, f.code);
}

FakeLayout DeviceCallRun::layout() {
    FakeLayout layout;
    layout.device = true;
    return layout;
}

DeviceCallRun::DeviceCallRun(LayerCall call)
    : call_(std::move(call)), library(call_.config, layout()), inputs(call_.inputs()) {
    const Config& c = call_.config;
    const Sizes& s = call_.sizes;
    outputs.out = room(out_, {s.batch, s.seq_q, c.out_proj ? c.d_model : c.num_heads * c.v_head_dim});
    if (call_.probs) outputs.probs = room(probs_, {s.batch, c.num_heads, s.seq_q, call_.keys()});
    if (call_.probs_averaged) outputs.probs_averaged = room(averaged_, {s.batch, s.seq_q, call_.keys()});
    if (call_.lse) outputs.lse = room(lse_, {s.batch, c.num_heads, s.seq_q});
    if (call_.scores_stage != ATTNC_SCORES_NOT_GIVEN)
        outputs.scores = room(scores_, {s.batch, c.num_heads, s.seq_q, s.seq_kv});
    outputs.scores_stage = call_.scores_stage;
    create();
}

DeviceCallRun::~DeviceCallRun() {
    layer.reset();  // waits for work that has the rest
    std::free(workspace_);
}

attnc_tensor DeviceCallRun::room(std::vector<float>& values, std::vector<int64_t> shape) {
    Array<float> array = filled<float>(std::move(shape), 0);
    values = std::move(array.values);
    attnc_tensor t = Array<float>{array.shape, {}}.view();
    t.data = values.data();
    return t;
}

attnc_status DeviceCallRun::create(const char* target) {
    error = {};
    layer = make_layer(library, call_, &error, target);
    return status = layer != nullptr ? ATTNC_OK : error.code;
}

attnc_status DeviceCallRun::launch() {
    size_t bytes = 0;
    const attnc_status planned = attnc_layer_workspace(layer.get(), &inputs, &outputs, &run, &bytes, &error);
    if (planned != ATTNC_OK) return planned;
    stand_in::synchronize();  // work that still has the old workspace
    std::free(workspace_);
    workspace_ = bytes > 0 ? std::aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr;
    run.workspace = workspace_;
    run.workspace_bytes = bytes;
    const size_t before = stand_in::launches().size();
    const attnc_status launched = attnc_layer_forward(layer.get(), &inputs, &outputs, &run, &error);
    functions_.clear();
    const std::string prefix = "_kernel_";
    const std::vector<stand_in::Launch> all = stand_in::launches();
    for (size_t i = before; i < all.size(); ++i) functions_.push_back(all[i].function.substr(prefix.size()));
    return launched;
}

attnc_status DeviceCallRun::wait() { return attnc_device_synchronize(layer.get(), run.stream, &error); }

attnc_status DeviceCallRun::forward() {
    const attnc_status launched = launch();
    return launched != ATTNC_OK ? launched : wait();
}

FakeResult DeviceCallRun::result() const {
    return {ATTNC_OK, "", out_, probs_, averaged_, lse_, scores_, run.workspace_bytes};
}

int64_t DeviceCallRun::launched(const std::string& function) const {
    return std::count(functions_.begin(), functions_.end(), function);
}

}  // namespace attnc::test
