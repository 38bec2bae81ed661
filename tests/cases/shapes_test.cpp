// Faults that users of other attention layers met with shapes, tails, strides and addresses, each with its public report.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cases/direct_call.h"
#include "tests/harness/guarded_memory.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

class ShapeCases : public TargetTest {
protected:
    RunResult run(const LayerCall& call, Placement placement = Placement::kAtEnd) const {
        RunResult result = run_call(call, {.target = target(), .placement = placement});
        EXPECT_EQ(result.status, ATTNC_OK) << result.error;
        return result;
    }
    // The call's outputs for other views of its inputs.
    RunResult run(const LayerCall& call, const attnc_inputs& inputs) const {
        return run_layer(call.config, call.weights(), inputs, call.empty_rows, 0, {}, {.target = target()});
    }
};
ATTNC_FOR_EACH_TARGET(ShapeCases);

// Empty tensors led to a division by zero, to weights of None and to a failed reshape (pytorch/pytorch#141219, #174950,
// #192651).
TEST_P(ShapeCases, EmptySizesAreNoDivisionByZero) {
    for (const Sizes sizes : {Sizes{0, 3, 4}, Sizes{2, 0, 4}, Sizes{2, 3, 0}, Sizes{0, 0, 0}}) {
        LayerCall call = random_call(parse_config("d16_h2_f32"), sizes, 17);
        call.probs = call.probs_averaged = call.lse = true;
        const RunResult got = run(call);
        EXPECT_TRUE(matches_reference(call, got, {.target = target()})) << to_string(sizes);
        for (size_t n = 0; n < got.out.size(); ++n)
            EXPECT_EQ(got.out[n], call.bo.values[n % 16]);  // no keys: bo
    }
}

// The same where what is empty has no memory at all, and the workspace neither, if it isn't needed.
TEST_P(ShapeCases, EmptyTensorsMayBeNull) {
    for (const Sizes sizes : {Sizes{0, 3, 4}, Sizes{2, 0, 4}, Sizes{2, 3, 0}, Sizes{0, 0, 0}}) {
        const LayerCall call = random_call(parse_config("d16_h2_f32"), sizes, 18);
        const LayerPointer layer = make_layer(call, target());
        attnc_inputs in = call.inputs();
        Array<float> out = filled<float>({sizes.batch, sizes.seq_q, 16}, 7);
        Array<float> probs = filled<float>({sizes.batch, 2, sizes.seq_q, sizes.seq_kv}, 7);
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = out.view(), outputs.probs = probs.view();
        for (attnc_tensor* t : {&in.query, &in.key, &in.value, &outputs.out, &outputs.probs}) {
            for (int n = 0; n < t->rank; ++n) t->data = t->extent[n] == 0 ? nullptr : t->data;
        }
        Workspace workspace;
        const DirectResult result = forward(layer.get(), in, outputs, workspace);
        EXPECT_TRUE(result.ok()) << to_string(sizes) << ": " << result.error;
        for (size_t n = 0; n < out.values.size(); ++n) EXPECT_EQ(out.values[n], call.bo.values[n % 16]);
    }
}

// Heads of a multiple of 16 features that is none of 32 crashed (openvinotoolkit/openvino#24627).
TEST_P(ShapeCases, HeadSizesOfOddMultiplesOfSixteenStayInside) {
    for (const int64_t head_dim : {16, 48, 80, 112, 144}) {
        Config config;
        config.num_heads = 2;
        config.head_dim = head_dim;
        config.in_proj = config.out_proj = false;
        for (const int64_t seq_q : {1, 2}) {
            for (const int64_t seq_kv : {31, 32, 33}) {
                LayerCall call = random_call(config, {1, seq_q, seq_kv}, 19);
                const RunResult got = run(call);
                EXPECT_TRUE(matches_reference(call, got, {.target = target()})) << head_dim;
                EXPECT_TRUE(same_bits(got, run(call, Placement::kAtStart)));
            }
        }
    }
}

// A matrix of 3 rows known at run time only, and a product of 1 x 1 with 1 x 200 (uxlfoundation/oneDNN#1873, #5158).
TEST_P(ShapeCases, SmallAndUnevenSizesWork) {
    for (int64_t seq = 1; seq <= 33; ++seq) {
        EXPECT_TRUE(matches_reference(random_call(parse_config("d20_h4_f32"), {1, seq, seq}, 21), target()))
            << seq;
    }
    EXPECT_TRUE(matches_reference(random_call("d1_h1_f32:b1_q1_kv1", 22), target()));
    EXPECT_TRUE(matches_reference(random_call("d1_h1_f32:b1_q1_kv200", 23), target()));
}

// A tail of K with a larger leading dimension took the padding for data (uxlfoundation/oneDNN#3060): rows of 36
// features 64 apart, with NaN between them.
TEST_P(ShapeCases, PaddingBetweenRowsIsNotRead) {
    LayerCall call = random_call("d36_h4_f32:b1_q3_kv36", 24);
    attnc_inputs in = call.inputs();
    std::vector<std::vector<float>> wide;
    for (attnc_tensor* t : {&in.query, &in.key, &in.value}) {
        std::vector<float> rows(static_cast<size_t>(t->extent[1] * 64),
                                std::numeric_limits<float>::quiet_NaN());
        for (int64_t row = 0; row < t->extent[1]; ++row) {
            std::memcpy(rows.data() + row * 64, static_cast<const float*>(t->data) + row * 36,
                        36 * sizeof(float));
        }
        t->stride[0] = t->extent[1] * 64, t->stride[1] = 64;
        wide.push_back(std::move(rows));
        t->data = wide.back().data();
    }
    EXPECT_TRUE(same_bits(run(call), run(call, in)));
}

// Inner strides other than 1 gave wrong numbers (pytorch/pytorch#187506): here they are refused.
TEST_P(ShapeCases, InnerStrideOfTwoIsRefused) {
    LayerCall call = random_call("d16_h2_f32:b1_q4_kv4", 25);
    attnc_inputs in = call.inputs();
    std::vector<float> twice(4 * 16 * 2);
    in.query.data = twice.data();
    in.query.stride[0] = 128, in.query.stride[1] = 32, in.query.stride[2] = 2;
    const RunResult got = run(call, in);
    EXPECT_EQ(got.status, ATTNC_BAD_STRIDE);
    EXPECT_NE(got.error, "");
}

// Inputs that are not contiguous gave garbage (pytorch/pytorch#112577): query, key and value side by side in one buffer
// [batch, seq, 3, features], as a fused projection leaves them.
TEST_P(ShapeCases, ViewsOfAFusedBufferAreHonoured) {
    LayerCall call = random_call("d48_h3_f32_noin_noout:b4_q8_kv8", 26);
    std::vector<float> fused(4 * 8 * 3 * 48);
    attnc_inputs in = call.inputs();
    int part = 0;
    for (attnc_tensor* t : {&in.query, &in.key, &in.value}) {
        for (int64_t row = 0; row < 4 * 8; ++row) {
            std::memcpy(fused.data() + (row * 3 + part) * 48, static_cast<const float*>(t->data) + row * 48,
                        48 * sizeof(float));
        }
        t->data = fused.data() + part++ * 48;
        t->stride[0] = 8 * 3 * 48, t->stride[1] = 3 * 48;
    }
    EXPECT_TRUE(same_bits(run(call), run(call, in)));
}

// A padded batch stride was taken for a contiguous one where a ratio matched by chance (uxlfoundation/oneDNN#5556):
// items of 8 rows of 62 features, 4 times as far apart as they are long.
TEST_P(ShapeCases, BatchStrideThatIsAMultipleOfAnItemIsHonoured) {
    for (const char* problem : {"d62_h2_f32:b4_q8_kv8", "d62_h2_f32_noin_noout:b4_q8_kv8"}) {
        const LayerCall call = random_call(problem, 30);
        const LayerPointer layer = make_layer(call, target());
        constexpr int64_t kItem = 8 * 62, kStride = 4 * kItem;
        attnc_inputs in = call.inputs();
        std::vector<float> wide(3 * kStride + kItem, std::numeric_limits<float>::quiet_NaN());
        for (int64_t item = 0; item < 4; ++item) {
            std::memcpy(wide.data() + item * kStride, call.query.values.data() + item * kItem,
                        kItem * sizeof(float));
        }
        in.query.data = wide.data();
        in.query.stride[0] = kStride;
        std::vector<float> out(wide.size(), -1);
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = attnc_tensor_3d(ATTNC_F32, out.data(), 4, 8, 62);
        outputs.out.stride[0] = kStride;
        Workspace workspace;
        const DirectResult result = forward(layer.get(), in, outputs, workspace);
        ASSERT_TRUE(result.ok()) << result.error;
        const std::vector<float> want = run(call).out;
        for (int64_t item = 0; item < 4; ++item) {
            const auto first = out.begin() + item * kStride;
            EXPECT_TRUE(same_bits({first, first + kItem},
                                  {want.begin() + item * kItem, want.begin() + (item + 1) * kItem}));
            for (auto gap = first + kItem; item < 3 && gap != first + kStride; ++gap) ASSERT_EQ(*gap, -1);
        }
    }
}

// A tensor on memory that is `offset` floats off an alignment of 64 bytes, with rows 3 floats further apart.
class Shifted {
public:
    Shifted(attnc_tensor& t, int64_t offset) {
        const int inner = t.rank - 1;
        const int64_t row = t.extent[inner];
        int64_t rows = 1;
        for (int n = 0; n < inner; ++n) rows *= t.extent[n];
        const int64_t stride = inner > 0 ? row + 3 : row;
        memory_.reset(static_cast<float*>(
            std::aligned_alloc(64, static_cast<size_t>(rows * stride + offset + 15) / 16 * 64)));
        for (int64_t n = 0; n < rows; ++n) {
            std::memcpy(memory_.get() + offset + n * stride, static_cast<const float*>(t.data) + n * row,
                        static_cast<size_t>(row) * sizeof(float));
        }
        t.data = memory_.get() + offset;
        for (int n = inner - 1; n >= 0; --n) {
            t.stride[n] = n == inner - 1 ? stride : t.stride[n + 1] * t.extent[n + 1];
        }
    }

private:
    struct Free {
        void operator()(float* memory) const { std::free(memory); }
    };
    std::unique_ptr<float, Free> memory_;
};

// Aligned vector loads from memory that isn't aligned crashed, for callers' pointers only (halide/Halide#6046, #2478,
// #2422): by 4, 8 and 20 bytes off, one pointer at a time, then all of them.
TEST_P(ShapeCases, UnalignedPointersWork) {
    for (const char* problem : {"d20_h4_f32:b1_q9_kv11", "d32_h2_f32_noin_noout:b1_q9_kv11"}) {
        LayerCall call = random_call(problem, 27);
        call.bias = random_array({1, call.config.num_heads, 9, 11}, 28, 1);
        const RunResult usual = run(call);
        const int64_t features = call.query.shape[2];
        for (const int64_t offset : {1, 2, 5}) {
            constexpr int kTensors = 11;
            for (int which = 0; which <= kTensors; ++which) {
                attnc_weights w = call.weights();
                attnc_inputs in = call.inputs();
                Array<float> out = filled<float>({1, 9, features}, 0);
                attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
                outputs.out = out.view();
                attnc_tensor* const tensors[kTensors] = {&in.query, &in.key, &in.value,   &in.bias,
                                                         &w.wq,     &w.wk,   &w.wv,       &w.wo,
                                                         &w.bq,     &w.bo,   &outputs.out};
                std::vector<Shifted> shifted;
                for (int n = 0; n < kTensors; ++n) {
                    if ((which == n || which == kTensors) && tensors[n]->rank > 0)
                        shifted.emplace_back(*tensors[n], offset);
                }
                const LayerPointer layer = make_layer(call.config, w, target());
                Workspace workspace;
                const DirectResult result = forward(layer.get(), in, outputs, workspace);
                ASSERT_TRUE(result.ok()) << result.error;
                std::vector<float> got;
                for (int64_t i = 0; i < 9; ++i) {
                    const float* row =
                        static_cast<const float*>(outputs.out.data) + i * outputs.out.stride[1];
                    got.insert(got.end(), row, row + features);
                }
                EXPECT_TRUE(same_bits(usual.out, got))
                    << problem << ", tensor " << which << ", " << offset * 4 << " bytes";
            }
        }
    }
}

// Memory of exactly the bytes asked for, between guard pages.
struct GuardedAllocator {
    Placement placement;
    std::unique_ptr<GuardedMemory> memory;
    static void* allocate(void* context, size_t bytes, size_t alignment) {
        auto& self = *static_cast<GuardedAllocator*>(context);
        self.memory = std::make_unique<GuardedMemory>(bytes, self.placement, alignment);
        return self.memory->data();
    }
    static void deallocate(void* context, void*, size_t) {
        static_cast<GuardedAllocator*>(context)->memory.reset();
    }
};

// Vector code read in front of an allocation and relied on the allocator's slack (halide/Halide#3738): tensors, workspace
// and the layer itself begin behind a guard page, or end before one.
TEST_P(ShapeCases, NothingIsReadInFrontOfABuffer) {
    for (const int64_t head_dim : {3, 16, 20}) {
        for (const bool projected : {true, false}) {
            Config config;
            config.num_heads = 2;
            config.head_dim = head_dim;
            if (projected) config.d_model = 2 * head_dim;
            config.in_proj = config.out_proj = projected;
            for (int64_t seq = 1; seq <= 17; seq += 2) {
                LayerCall call = random_call(config, {1, seq, seq}, 29);
                const RunResult got = run(call, Placement::kAtStart);
                EXPECT_TRUE(same_bits(got, run(call, Placement::kAtEnd))) << head_dim << ", " << seq;
                for (const Placement placement : {Placement::kAtStart, Placement::kAtEnd}) {
                    GuardedAllocator guarded{placement, nullptr};
                    const attnc_allocator allocator = {&guarded, GuardedAllocator::allocate,
                                                       GuardedAllocator::deallocate};
                    const LayerPointer layer = make_layer(call, target(), &allocator);
                    EXPECT_TRUE(same_bits(got.out, forward(layer.get(), call)));
                }
            }
        }
    }
}

// What a sentence gave depended on the others in its batch (OpenNMT/CTranslate2#546).
TEST_P(ShapeCases, PaddedSentencesEqualTheirSoloRuns) {
    LayerCall call = random_call("d48_h3_f32:b3_q12_kv12", 40);
    call.key_lengths = call.query_lengths = {{3}, {3, 7, 12}};
    for (const float padding : {0.0F, 1e30F, std::numeric_limits<float>::quiet_NaN()}) {
        for (int64_t item = 0; item < 3; ++item) {
            for (int64_t s = call.key_lengths.at(item); s < 12; ++s) {
                for (int64_t c = 0; c < 48; ++c) {
                    for (auto* tokens : {&call.query, &call.key, &call.value})
                        tokens->at(item, s, c) = padding;
                }
            }
        }
        const RunResult batch = run(call);
        for (int64_t item = 0; item < 3; ++item) {
            const int64_t length = call.key_lengths.at(item);
            LayerCall alone = item_of(call, item);
            alone.sizes = {1, length, length};
            alone.key_lengths = alone.query_lengths = {};
            for (auto* tokens : {&alone.query, &alone.key, &alone.value}) {
                tokens->shape[1] = length;
                tokens->values.resize(static_cast<size_t>(length * 48));
            }
            std::vector<float> want = run(alone).out;
            want.resize(12 * 48, 0.0F);  // rows past the length
            const auto first = batch.out.begin() + item * 12 * 48;
            EXPECT_TRUE(same_bits({first, first + 12 * 48}, want))
                << "padding " << padding << ", item " << item;
        }
    }
}

}  // namespace
}  // namespace attnc::test
