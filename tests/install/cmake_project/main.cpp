// Value weights and output weights are the identity and keys are all alike: each output is the mean of the values.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "app_attention.h"
#include "attnc.hpp"
#include "other_attention.h"

int main() {
    constexpr int64_t d = APP_ATTENTION_D_MODEL;
    std::vector<float> zero(d * d, 0.0F), identity(d * d, 0.0F), x(2 * d), out(2 * d);
    for (int64_t i = 0; i < d; ++i) identity[i * d + i] = 1;
    for (int64_t i = 0; i < 2 * d; ++i) x[i] = static_cast<float>(i);

    attnc_weights weights = ATTNC_WEIGHTS_INIT;
    weights.wq = weights.wk = attnc_tensor_2d(ATTNC_F32, zero.data(), d, d);
    weights.wv = weights.wo = attnc_tensor_2d(ATTNC_F32, identity.data(), d, d);
    attnc_layer* layer = nullptr;
    attnc_error error;
    if (attnc_layer_create(app_attention(), &weights, nullptr, &layer, &error) != ATTNC_OK) {
        std::puts(error.text);
        return 1;
    }
    attnc_inputs inputs = ATTNC_INPUTS_INIT;
    inputs.query = attnc_tensor_3d(ATTNC_F32, x.data(), 1, 2, d);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = attnc_tensor_3d(ATTNC_F32, out.data(), 1, 2, d);
    attnc_run run = ATTNC_RUN_INIT;
    attnc_layer_workspace(layer, &inputs, &outputs, &run, &run.workspace_bytes, &error);
    void* workspace = std::aligned_alloc(64, (run.workspace_bytes + 63) / 64 * 64);
    run.workspace = workspace;
    if (attnc_layer_forward(layer, &inputs, &outputs, &run, &error) != ATTNC_OK) {
        std::puts(error.text);
        return 1;
    }
    for (int64_t i = 0; i < 2 * d; ++i) {
        const float want = static_cast<float>(i % d) + static_cast<float>(d) / 2;
        if (std::fabs(out[i] - want) > 1e-4F) {
            std::printf("out[%d] is %g, not %g\n", static_cast<int>(i), out[i], want);
            return 1;
        }
    }
    std::free(workspace);
    attnc_layer_destroy(layer);
    std::printf("%s and %s\n", attnc_library_problem(app_attention()),
                attnc_library_problem(other_attention()));
    return 0;
}
