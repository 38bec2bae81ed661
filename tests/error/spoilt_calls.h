// A layer creation and a call that are right, for tests that spoil one thing each.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/fake_run.h"

namespace attnc::test {

inline constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 2;

struct Failure {
    attnc_status status;
    std::string text;
    bool operator==(const Failure&) const = default;
    friend std::ostream& operator<<(std::ostream& to, const Failure& f) {
        return to << f.status << " " << f.text;
    }
};

// A layer creation to spoil.
struct Creation {
    Config config;
    LayerCall call;
    FakeLibrary library;
    attnc_weights weights;
    attnc_layer_options options = ATTNC_LAYER_OPTIONS_INIT;

    explicit Creation(std::string_view problem = "d32_h2_f32:b2_q5_kv7")
        : config(parse_problem(problem).config),
          call(random_call(problem, 1)),
          library(config),
          weights(call.weights()) {}
    Failure run() {
        attnc_error error = {};
        attnc_layer* layer = nullptr;
        const attnc_status status = attnc_layer_create(library.get(), &weights, &options, &layer, &error);
        EXPECT_EQ(layer == nullptr, status != ATTNC_OK);
        EXPECT_EQ(error.code, status);
        attnc_layer_destroy(layer);
        return {status, error.text};
    }
};

// A forward call to spoil.
struct Forward {
    LayerCall call;
    FakeLibrary library;
    LayerPointer layer;
    attnc_inputs in;
    attnc_outputs out = ATTNC_OUTPUTS_INIT;
    attnc_run run = ATTNC_RUN_INIT;
    std::vector<float> out_data, probs_data, averaged_data, lse_data;
    std::unique_ptr<unsigned char, decltype(&std::free)> workspace{nullptr, std::free};

    static constexpr size_t kWorkspace = 1 << 20;

    explicit Forward(std::string_view problem = "d32_h2_f32:b4_q5_kv7")
        : call(random_call(problem, 1)),
          library(call.config),
          layer(make_layer(library, call)),
          in(call.inputs()),
          workspace(static_cast<unsigned char*>(std::aligned_alloc(64, kWorkspace)), std::free) {
        const Config& c = call.config;
        const int64_t b = call.sizes.batch, q = call.sizes.seq_q, n = c.num_heads;
        const int64_t features = c.out_proj ? c.d_model : n * c.v_head_dim;
        out_data.assign(static_cast<size_t>(b * q * features), 7);
        probs_data.assign(static_cast<size_t>(b * n * q * call.keys()), 7);
        averaged_data.assign(static_cast<size_t>(b * q * call.keys()), 7);
        lse_data.assign(static_cast<size_t>(b * n * q), 7);
        out.out = attnc_tensor_3d(ATTNC_F32, out_data.data(), b, q, features);
        run.workspace = workspace.get();
        run.workspace_bytes = kWorkspace;
    }
    void ask_for_probs() {
        const int64_t b = call.sizes.batch, q = call.sizes.seq_q, n = call.config.num_heads;
        out.probs = attnc_tensor_4d(ATTNC_F32, probs_data.data(), b, n, q, call.keys());
        out.probs_averaged = attnc_tensor_3d(ATTNC_F32, averaged_data.data(), b, q, call.keys());
        out.lse = attnc_tensor_3d(ATTNC_F32, lse_data.data(), b, n, q);
    }
    // A failure writes nothing, and workspace() refuses what doesn't depend on data in the same words.
    Failure forward() {
        attnc_error error = {};
        const attnc_status status = attnc_layer_forward(layer.get(), &in, &out, &run, &error);
        EXPECT_EQ(error.code, status);
        if (status != ATTNC_OK && status != ATTNC_KERNEL_FAILED && status != ATTNC_EXECUTOR_FAILED) {
            for (const float value : out_data) EXPECT_EQ(value, 7);
        }
        return {status, error.text};
    }
    Failure sizes() {
        attnc_error error = {};
        size_t bytes = 0;
        const attnc_status status = attnc_layer_workspace(layer.get(), &in, &out, &run, &bytes, &error);
        return {status, error.text};
    }
    Failure both() {
        const Failure failure = forward();
        EXPECT_EQ(sizes(), failure);
        return failure;
    }
};

}  // namespace attnc::test
