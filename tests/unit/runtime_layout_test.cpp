// Layouts other than batch, rows, features: they are views, and a call on them has the bits of the dense one.
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "tests/harness/guarded_memory.h"
#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

std::vector<float> forward(const LayerCall& call, const attnc_inputs& in, const attnc_tensor& out) {
    const FakeLibrary library(call.config);
    const LayerPointer layer = make_layer(library, call);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = out;
    attnc_run run = ATTNC_RUN_INIT;
    attnc_error error = {};
    EXPECT_EQ(attnc_layer_workspace(layer.get(), &in, &outputs, &run, &run.workspace_bytes, &error), ATTNC_OK)
        << error.text;
    const GuardedMemory workspace(run.workspace_bytes, Placement::kAtEnd, 64);
    run.workspace = workspace.data();
    EXPECT_EQ(attnc_layer_forward(layer.get(), &in, &outputs, &run, &error), ATTNC_OK) << error.text;
    // In the order of the view's dimensions.
    std::vector<float> values;
    int64_t total = 1;
    for (int i = 0; i < out.rank; ++i) total *= out.extent[i];
    for (int64_t n = 0; n < total; ++n) {
        int64_t rest = n, offset = 0;
        for (int i = out.rank; i-- > 0; rest /= out.extent[i]) offset += rest % out.extent[i] * out.stride[i];
        values.push_back(static_cast<const float*>(out.data)[offset]);
    }
    return values;
}

void expect_equal(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
        EXPECT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i])) << i;
}

Array<float> sequence_first(const Array<float>& tokens) {
    const int64_t batch = tokens.shape[0], seq = tokens.shape[1], features = tokens.shape[2];
    Array<float> result = filled<float>({seq, batch, features}, 0);
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t i = 0; i < seq; ++i) {
            for (int64_t f = 0; f < features; ++f) result.at(i, b, f) = tokens.at(b, i, f);
        }
    }
    return result;
}

TEST(Layouts, SequenceFirstTokensAreATransposedView) {
    const LayerCall call = random_call("d32_h2_f32:b3_q6_kv9", 1);
    Array<float> dense = filled<float>({3, 6, 32}, 0), out = filled<float>({6, 3, 32}, 0);
    const Array<float> query = sequence_first(call.query), key = sequence_first(call.key),
                       value = sequence_first(call.value);
    attnc_inputs in = call.inputs();
    in.query = attnc_tensor_transpose(query.view(), 0, 1);
    in.key = attnc_tensor_transpose(key.view(), 0, 1);
    in.value = attnc_tensor_transpose(value.view(), 0, 1);
    expect_equal(forward(call, in, attnc_tensor_transpose(out.view(), 0, 1)),
                 forward(call, call.inputs(), dense.view()));
}

TEST(Layouts, PackedQueryKeyValueIsThreeViews) {
    for (const char* const problem : {"d32_h2_f32_noin_noout:b2_q7_kv7", "d24_h2_f32_noin_noout:b2_q7_kv7"}) {
        const LayerCall call = random_call(problem, 2);
        const int64_t heads = 2, features = call.config.head_dim;
        Array<float> qkv = filled<float>({2, 7, 3, heads, features}, 0);
        for (int64_t b = 0; b < 2; ++b) {
            for (int64_t i = 0; i < 7; ++i) {
                for (int64_t n = 0; n < heads * features; ++n) {
                    qkv.at(b, i, 0, n / features, n % features) = call.query.at(b, i, n);
                    qkv.at(b, i, 1, n / features, n % features) = call.key.at(b, i, n);
                    qkv.at(b, i, 2, n / features, n % features) = call.value.at(b, i, n);
                }
            }
        }
        attnc_inputs in = call.inputs();
        const auto part = [&](int64_t which) {
            return attnc_tensor_transpose(attnc_tensor_select(qkv.view(), 2, which), 1, 2);
        };
        in.query = part(0), in.key = part(1), in.value = part(2);
        Array<float> out = filled<float>({2, 7, heads, features}, 0);
        Array<float> dense = filled<float>({2, 7, heads * features}, 0);
        forward(call, in, attnc_tensor_transpose(out.view(), 1, 2));
        forward(call, call.inputs(), dense.view());
        expect_equal(out.values, dense.values);
    }
}

TEST(Layouts, AViewThatCannotBeHasARankThatIsRefused) {
    Array<float> tensor = filled<float>({2, 3, 4}, 0);
    EXPECT_EQ(attnc_tensor_transpose(tensor.view(), 0, 3).rank, -1);
    EXPECT_EQ(attnc_tensor_transpose(tensor.view(), -1, 0).rank, -1);
    EXPECT_EQ(attnc_tensor_select(tensor.view(), 1, 3).rank, -1);
    EXPECT_EQ(attnc_tensor_select(tensor.view(), 3, 0).rank, -1);
    EXPECT_EQ(attnc_tensor_select(tensor.view(), 0, -1).rank, -1);
    const attnc_tensor middle = attnc_tensor_select(tensor.view(), 1, 2);
    EXPECT_EQ(middle.rank, 2);
    EXPECT_EQ(middle.extent[0], 2);
    EXPECT_EQ(middle.extent[1], 4);
    EXPECT_EQ(middle.stride[0], 12);
    EXPECT_EQ(middle.data, tensor.values.data() + 8);
}

}  // namespace
}  // namespace attnc::test
