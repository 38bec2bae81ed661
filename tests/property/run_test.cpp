// How a call behaves beside its result: it allocates nothing, leaves the processor's modes alone, takes strides.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/allocation_counter.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/libraries.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

// A layer ready to run again and again on one call's data.
class Prepared {
public:
    Prepared(const LayerCall& call, const std::string& target, int64_t threads) : call_(call) {
        attnc_error error = {};
        attnc_layer_options options = ATTNC_LAYER_OPTIONS_INIT;
        options.target = target.c_str();
        const attnc_weights weights = call_.weights();
        const attnc_library* library = library_of(call_.config);
        EXPECT_EQ(attnc_layer_create(library, &weights, &options, &layer_, &error), ATTNC_OK) << error.text;
        EXPECT_EQ(attnc_pool_create(threads, &pool_, &error), ATTNC_OK) << error.text;
        inputs_ = call_.inputs();
        const Sizes& s = call_.sizes;
        out_ = filled<float>({s.batch, s.seq_q, call_.config.d_model}, 0);
        probs_ = filled<float>({s.batch, call_.config.num_heads, s.seq_q, call_.keys()}, 0);
        lse_ = filled<float>({s.batch, call_.config.num_heads, s.seq_q}, 0);
        outputs_.out = out_.view(), outputs_.probs = probs_.view(), outputs_.lse = lse_.view();
        run_.executor = attnc_pool_executor(pool_);
        EXPECT_EQ(attnc_layer_workspace(layer_, &inputs_, &outputs_, &run_, &run_.workspace_bytes, &error),
                  ATTNC_OK)
            << error.text;
        workspace_ = std::make_unique<GuardedMemory>(run_.workspace_bytes, Placement::kAtEnd, 64);
        run_.workspace = workspace_->data();
    }
    ~Prepared() {
        attnc_layer_destroy(layer_);
        attnc_pool_destroy(pool_);
    }
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;

    attnc_status forward() { return attnc_layer_forward(layer_, &inputs_, &outputs_, &run_, &error_); }
    const char* error() const { return error_.text; }
    const std::vector<float>& out() const { return out_.values; }

private:
    LayerCall call_;
    attnc_layer* layer_ = nullptr;
    attnc_pool* pool_ = nullptr;
    attnc_inputs inputs_ = ATTNC_INPUTS_INIT;
    attnc_outputs outputs_ = ATTNC_OUTPUTS_INIT;
    attnc_run run_ = ATTNC_RUN_INIT;
    attnc_error error_ = {};
    Array<float> out_, probs_, lse_;
    std::unique_ptr<GuardedMemory> workspace_;
};

class Forward : public TargetTest {};
ATTNC_FOR_EACH_TARGET(Forward);

LayerCall busy_call() {
    LayerCall call = random_call("d48_h3_f32:b3_q37_kv70", 51);
    call.keep_mask = filled<uint8_t>({1, 1, 37, 70}, 1);
    call.keep_mask.at(0, 0, 3, 3) = 0;
    call.value.at(0, 3, 5) = std::numeric_limits<float>::quiet_NaN();  // some rows run a second time
    call.key_lengths = {{3}, {70, 5, 33}};
    call.query_lengths = {{3}, {37, 37, 2}};
    return call;
}

TEST_P(Forward, AllocatesNothing) {
    if (!counts_allocations()) GTEST_SKIP() << "a sanitizer replaces malloc";
    Prepared prepared(busy_call(), target(), 3);
    const int64_t before = allocations();
    attnc_status status = ATTNC_OK;
    for (int n = 0; n < 5 && status == ATTNC_OK; ++n) status = prepared.forward();
    const int64_t after = allocations();
    EXPECT_EQ(status, ATTNC_OK) << prepared.error();
    EXPECT_EQ(after - before, 0);
}

TEST(AllocationCounter, Counts) {
    if (!counts_allocations()) GTEST_SKIP() << "a sanitizer replaces malloc";
    const int64_t before = allocations();
    const auto memory = std::make_unique<std::vector<float>>(1000);
    EXPECT_EQ(allocations() - before, 2);
}

TEST_P(Forward, LeavesTheFloatingPointModesAsTheyWere) {
    Prepared prepared(busy_call(), target(), 1);
    ASSERT_EQ(prepared.forward(), ATTNC_OK) << prepared.error();
    const std::vector<float> usual = prepared.out();
    const unsigned int modes = _mm_getcsr();
    // Rounding towards zero, then flushing denormals: neither reaches the result, and both are there afterwards.
    for (const unsigned int changed : {modes | 0x6000U, modes | 0x8040U, modes & ~0x8040U}) {
        _mm_setcsr(changed);
        const attnc_status status = prepared.forward();
        const unsigned int after = _mm_getcsr();
        _mm_setcsr(modes);
        ASSERT_EQ(status, ATTNC_OK) << prepared.error();
        constexpr unsigned int kFlags = 0x3f;  // exceptions that occurred
        EXPECT_EQ(after & ~kFlags, changed & ~kFlags);
        EXPECT_TRUE(same_bits(usual, prepared.out()));
    }
}

TEST_P(Forward, CountsDenormalsAsZero) {
    LayerCall call = random_call("d48_h3_f32_noin_noout:b1_q5_kv7", 52);
    for (float& value : call.value.values) value *= 1e-40F;
    const RunResult got = run_call(call, target());
    ASSERT_EQ(got.status, ATTNC_OK) << got.error;
    for (const float y : got.out) EXPECT_EQ(y, 0.0F);
}

// Tokens inside wider rows, masks with their last dimensions broadcast by stride 0: as the dense ones.
TEST_P(Forward, TakesStrides) {
    LayerCall call = random_call("d36_h4_f32:b3_q8_kv17", 53);
    call.keep_mask = filled<uint8_t>({3, 4, 8, 17}, 1);
    for (int64_t n = 0; n < call.keep_mask.count(); ++n)
        call.keep_mask.values[static_cast<size_t>(n)] = n % 17 % 4 != 1;
    const RunResult dense = run_call(call, target());
    ASSERT_TRUE(matches_reference(call, dense, {.target = target()}));

    constexpr int64_t kRow = 64;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    attnc_inputs in = call.inputs();
    std::vector<std::vector<float>> wide;
    for (attnc_tensor* t : {&in.query, &in.key, &in.value}) {
        std::vector<float> rows(static_cast<size_t>(t->extent[0] * t->extent[1] * kRow), nan);
        for (int64_t row = 0; row < t->extent[0] * t->extent[1]; ++row) {
            std::memcpy(rows.data() + row * kRow, static_cast<const float*>(t->data) + row * 36,
                        36 * sizeof(float));
        }
        t->stride[0] = t->extent[1] * kRow, t->stride[1] = kRow;
        wide.push_back(std::move(rows));
        t->data = wide.back().data();
    }
    // The same values for all items, heads and rows: strides 0 over extents that are not 1.
    in.keep_mask.stride[0] = in.keep_mask.stride[1] = in.keep_mask.stride[2] = 0;
    const RunResult strided =
        run_layer(call.config, call.weights(), in, call.empty_rows, call.qk_scale, {}, {.target = target()});
    EXPECT_TRUE(same_bits(dense, strided));
}

TEST_P(Forward, TakesPackedProjectionsAndDefaultsForKeyAndValue) {
    LayerCall call = random_call("d48_h3_f32:b2_q19_kv19", 54);
    call.key = call.value = call.query;
    const RunResult separate = run_call(call, target());
    ASSERT_TRUE(matches_reference(call, separate, {.target = target()}));

    Array<float> weight = filled<float>({144, 48}, 0), bias = filled<float>({144}, 0);
    for (int n = 0; n < 3; ++n) {
        const Array<float>& w = n == 0 ? call.wq : n == 1 ? call.wk : call.wv;
        const Array<float>& b = n == 0 ? call.bq : n == 1 ? call.bk : call.bv;
        std::copy(w.values.begin(), w.values.end(), weight.values.begin() + n * 48 * 48);
        std::copy(b.values.begin(), b.values.end(), bias.values.begin() + n * 48);
    }
    attnc_weights packed = ATTNC_WEIGHTS_INIT;
    packed.in_proj_weight = weight.view(), packed.in_proj_bias = bias.view();
    packed.wo = call.wo.view(), packed.bo = call.bo.view();
    attnc_inputs in = call.inputs();
    in.key = in.value = {};
    EXPECT_TRUE(same_bits(separate, run_layer(call.config, packed, in, call.empty_rows, call.qk_scale, {},
                                              {.target = target()})));
}

TEST_P(Forward, TakesLayersWithoutBiases) {
    LayerCall call = random_call("d48_h3_f32:b2_q19_kv33", 55);
    call.bq = call.bo = {};
    EXPECT_TRUE(matches_reference(call, target()));
    call.bk = call.bv = {};
    EXPECT_TRUE(matches_reference(call, target()));
}

}  // namespace
}  // namespace attnc::test
