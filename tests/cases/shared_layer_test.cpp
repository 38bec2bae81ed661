// One layer that many threads use at once, over kernels in plain C++: what of the runtime they share is seen by the
// sanitizers (uxlfoundation/oneDNN#4381, #5393, microsoft/onnxruntime#13571).
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/harness/guarded_memory.h"
#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

bool forward(const attnc_layer* layer, const LayerCall& call, std::vector<float>& got) {
    const attnc_inputs in = call.inputs();
    Array<float> out = filled<float>({call.sizes.batch, call.sizes.seq_q, call.config.d_model}, 0);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = out.view();
    attnc_run run = ATTNC_RUN_INIT;
    if (attnc_layer_workspace(layer, &in, &outputs, &run, &run.workspace_bytes, nullptr) != ATTNC_OK)
        return false;
    const GuardedMemory workspace(run.workspace_bytes, Placement::kAtEnd, 64);
    run.workspace = workspace.data();
    if (attnc_layer_forward(layer, &in, &outputs, &run, nullptr) != ATTNC_OK) return false;
    got = out.values;
    return true;
}

TEST(SharedLayer, ServesManyThreadsAtOnce) {
    std::vector<LayerCall> calls;
    for (const int64_t seq : {1, 3, 5, 6}) {
        LayerCall call = random_call(parse_config("d8_h2_f32"), {2, seq, seq}, 43);
        call.key_lengths = {{2}, {seq, (seq + 1) / 2}};
        calls.push_back(call);
    }
    const FakeLibrary library(calls[0].config);
    const LayerPointer layer = make_layer(library, calls[0]);
    ASSERT_NE(layer, nullptr);
    std::vector<std::vector<float>> want(calls.size());
    for (size_t n = 0; n < calls.size(); ++n) ASSERT_TRUE(forward(layer.get(), calls[n], want[n]));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            for (size_t n = 0; n < 1000; ++n) {
                const size_t which = (n + t) % calls.size();
                std::vector<float> got;
                if (!forward(layer.get(), calls[which], got) || got != want[which]) ++wrong;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace attnc::test
