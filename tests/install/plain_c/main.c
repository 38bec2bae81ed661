/* Plain C against a generated header, without attnc's CMake package. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app_attention.h"

enum { d = APP_ATTENTION_D_MODEL };

int main(void) {
    static float weight[d * d], x[3 * d], out[3 * d];
    for (int i = 0; i < 3 * d; ++i) x[i] = 1.0f;
    for (int i = 0; i < d; ++i) weight[i * d + i] = 1.0f;

    attnc_weights weights = ATTNC_WEIGHTS_INIT;
    weights.wq = weights.wk = weights.wv = weights.wo = attnc_tensor_2d(ATTNC_F32, weight, d, d);
    attnc_layer* layer = NULL;
    attnc_error error;
    if (attnc_layer_create(app_attention(), &weights, NULL, &layer, &error) != ATTNC_OK) {
        puts(error.text);
        return 1;
    }
    attnc_inputs inputs = ATTNC_INPUTS_INIT;
    inputs.query = attnc_tensor_3d(ATTNC_F32, x, 1, 3, d);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = attnc_tensor_3d(ATTNC_F32, out, 1, 3, d);
    attnc_run run = ATTNC_RUN_INIT;
    attnc_layer_workspace(layer, &inputs, &outputs, &run, &run.workspace_bytes, &error);
    run.workspace = aligned_alloc(64, (run.workspace_bytes + 63) / 64 * 64);
    if (attnc_layer_forward(layer, &inputs, &outputs, &run, &error) != ATTNC_OK) {
        puts(error.text);
        return 1;
    }
    for (int i = 0; i < 3 * d; ++i) {
        if (out[i] < 0.9999f || out[i] > 1.0001f) return 2;
    }
    free(run.workspace);
    attnc_layer_destroy(layer);
    printf("%s on %s\n", APP_ATTENTION_PROBLEM, attnc_library_target_name(app_attention(), 0));
    return 0;
}
