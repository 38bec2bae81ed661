// Libraries with CUDA code on the stand-in for the driver: what generated host code checks of its buffers, the geometry that it
// computes, and the PTX's functions and parameters fit what the runtime gives. Nothing is computed: the functions have no code
// here.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/driver/stand_in.h"
#include "tests/harness/cached_run.h"
#include "tests/harness/layer_call.h"
#include "tests/harness/libraries.h"

namespace attnc::test {
namespace {

struct LayerDelete {
    void operator()(attnc_layer* layer) const { attnc_layer_destroy(layer); }
};
struct Free {
    void operator()(void* memory) const { std::free(memory); }
};

class CudaObjects : public ::testing::TestWithParam<const char*> {
protected:
    void SetUp() override { stand_in::reset(); }
    void TearDown() override {
        EXPECT_EQ(stand_in::faults(), std::vector<std::string>());
        EXPECT_EQ(stand_in::live(), stand_in::Live());
    }

    // Launches of a call whose every launch must be accepted.
    static std::vector<stand_in::Launch> launches_of(const LayerCall& call) {
        const attnc_library* library = library_of(call.config, "", "cuda");
        const attnc_weights weights = call.weights();
        attnc_layer_options options = call.options();
        options.target = "cuda";
        attnc_error error = {};
        attnc_layer* made = nullptr;
        EXPECT_EQ(attnc_layer_create(library, &weights, &options, &made, &error), ATTNC_OK) << error.text;
        const std::unique_ptr<attnc_layer, LayerDelete> layer(made);
        if (layer == nullptr) return {};
        const attnc_inputs in = call.inputs();
        attnc_outputs out = ATTNC_OUTPUTS_INIT;
        const Config& c = call.config;
        const Sizes& s = call.sizes;
        std::vector<std::vector<float>> rooms;
        const auto room = [&](bool wanted, std::vector<int64_t> shape) {
            if (!wanted) return attnc_tensor{};
            const Array<float> array = filled<float>(std::move(shape), 0);
            attnc_tensor t = array.view();
            rooms.push_back(array.values);
            rooms.back().resize(rooms.back().size() + 1);
            t.data = rooms.back().data();
            return t;
        };
        out.out = room(true, {s.batch, s.seq_q, c.out_proj ? c.d_model : c.num_heads * c.v_head_dim});
        out.lse = room(call.lse, {s.batch, c.num_heads, s.seq_q});
        out.probs = room(call.probs, {s.batch, c.num_heads, s.seq_q, call.keys()});
        out.probs_averaged = room(call.probs_averaged, {s.batch, s.seq_q, call.keys()});
        out.scores =
            room(call.scores_stage != ATTNC_SCORES_NOT_GIVEN, {s.batch, c.num_heads, s.seq_q, s.seq_kv});
        out.scores_stage = call.scores_stage;
        attnc_run run = ATTNC_RUN_INIT;
        EXPECT_EQ(attnc_layer_workspace(layer.get(), &in, &out, &run, &run.workspace_bytes, &error), ATTNC_OK)
            << error.text;
        const std::unique_ptr<void, Free> workspace(std::aligned_alloc(256, run.workspace_bytes));
        run.workspace = workspace.get();
        stand_in::forget_calls();
        const std::string what = to_string(Problem{c, s});
        EXPECT_EQ(attnc_layer_forward(layer.get(), &in, &out, &run, &error), ATTNC_OK) << what << error.text;
        EXPECT_GE(stand_in::launches().size(), 4U) << what;
        return stand_in::launches();
    }
};

TEST_P(CudaObjects, TakeWhatTheRuntimeGives) {
    for (const char* sizes : {"b2_q20_kv20", "b1_q1_kv1", "b3_q7_kv200", "b2_q1_kv2000", "b2_q5_kv0",
                              "b70000_q1_kv1", "b2_q17000_kv3"}) {
        LayerCall call = everything(std::string(GetParam()) + ":" + sizes, 1);
        const Sizes& s = call.sizes;
        if (s.batch > 1000 || s.seq_q > 1000) {
            call.probs = call.probs_averaged = false;
            call.scores_stage = ATTNC_SCORES_NOT_GIVEN;
        }
        launches_of(call);
        call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        call.empty_rows = ATTNC_EMPTY_ROWS_MEAN_OF_VALUES;
        launches_of(call);
        call.query_lengths = filled<int64_t>({s.batch}, 1);
        call.key_lengths = filled<int64_t>({s.batch}, s.seq_kv / 2);
        if (call.config.masks) call.key_bias = filled<float>({s.batch, s.seq_kv}, 0);
        if (call.config.masks) call.keep_mask = filled<uint8_t>({1, 1, s.seq_q, 1}, 1);
        call.probs = false;
        launches_of(call);
    }
}

TEST_P(CudaObjects, SelfAttentionIsProjectedInOneLaunch) {
    LayerCall call = random_call(std::string(GetParam()) + ":b2_q20_kv20", 2);
    const size_t cross = launches_of(call).size();
    call.key = {}, call.value = {};
    const size_t self = launches_of(call).size();
    EXPECT_EQ(cross - self, call.config.in_proj ? 2U : 0U);
}

class CudaCaches : public CudaObjects {};

// What a cache adds to calls, and heads rotated by themselves.
TEST_P(CudaCaches, TakeWhatTheRuntimeGives) {
    LayerCall call = random_call(std::string(GetParam()) + ":b3_q40_kv40", 3);
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    call.window_left = 20;
    const attnc_library* library = library_of(call.config, "", "cuda");
    for (const attnc_cache_kind kind : {ATTNC_CACHE_SLOTS, ATTNC_CACHE_RING, ATTNC_CACHE_PAGED}) {
        CachedLayer layer(library, call, {kind, 5, 96}, "cuda");
        for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 30}, {30, 1}, {31, 9}}) {
            LayerCall part = part_of(call, {first, count, first, count});
            for (const bool lengths : {false, true}) {
                if (lengths) part.key_lengths = part.query_lengths = {{3}, {1, 0, 1}};
                stand_in::forget_calls();
                const RunResult got = layer.append(part, {4, 0, 2});
                EXPECT_EQ(got.status, ATTNC_OK) << got.error;
                EXPECT_GE(stand_in::launches().size(), 8U);
                EXPECT_EQ(layer.read(part).status, ATTNC_OK);
            }
        }
        if (call.config.in_proj) {
            EXPECT_EQ(layer.memory(call).status, ATTNC_OK);
        }
        if (kind != ATTNC_CACHE_SLOTS || call.config.rotary == Rotary::kNone) continue;
        size_t bytes = 0;
        ASSERT_EQ(attnc_layer_rotate_workspace(layer.layer(), nullptr, &bytes, nullptr), ATTNC_OK);
        const GuardedMemory workspace(bytes, Placement::kAtEnd, 256);
        std::vector<float> heads(3 * 40 * static_cast<size_t>(call.config.num_heads * call.config.head_dim));
        attnc_rotation rotation = ATTNC_ROTATION_INIT;
        rotation.heads = ATTNC_HEADS_QUERY;
        rotation.x = rotation.out =
            attnc_tensor_3d(ATTNC_F32, heads.data(), 3, 40, call.config.num_heads * call.config.head_dim);
        attnc_run run = ATTNC_RUN_INIT;
        run.workspace = workspace.data(), run.workspace_bytes = bytes;
        EXPECT_EQ(attnc_layer_rotate(layer.layer(), &rotation, &run, nullptr), ATTNC_OK);
        EXPECT_EQ(attnc_device_synchronize(layer.layer(), nullptr, nullptr), ATTNC_OK);
    }
}

INSTANTIATE_TEST_SUITE_P(Libraries, CudaCaches,
                         ::testing::Values("d128_h4_kv2_f32_rope_qknorm_cache_page16",
                                           "d128_h2_f32_noin_noout_sink_cache_page48"),
                         [](const auto& parameter) { return std::string(parameter.param); });

INSTANTIATE_TEST_SUITE_P(Libraries, CudaObjects,
                         ::testing::Values("d128_h2_f32_softcap_alibi_scores",
                                           "d128_h2_f32_rope_qknorm_sink_biaskv_noprobs",
                                           "d256_h2_hd128_f32_noin_noout_nomask_noprobs",
                                           "d128_h4_f32_scores_biaskv_cache"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace attnc::test
