/* One self-attention layer in plain C: out [32, 50, 512] and the attention weights [32, 8, 50, 50]. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "c_layer_attention.h" /* d_model 512, num_heads 8; written by attnc build */

enum { kBatch = 32, kSeq = 50, kModel = 512, kHeads = 8, kCount = kBatch * kSeq * kModel };

static float tokens[kCount], matrices[4][kModel * kModel], out[kCount], probs[kBatch * kHeads * kSeq][kSeq];

/* Numbers between -scale and scale, the same in every run. */
static void fill_randomly(float* numbers, int count, float scale) {
    static uint32_t state = 1;
    for (int i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = ((float)(state >> 8) / 8388608.0f - 1.0f) * scale;
    }
}

int main(void) {
    fill_randomly(tokens, kCount, 1.7f);
    attnc_weights weights = ATTNC_WEIGHTS_INIT; /* [out_features, in_features] each; no biases here */
    attnc_tensor* const linear[] = {&weights.wq, &weights.wk, &weights.wv, &weights.wo};
    for (int i = 0; i < 4; ++i) {
        fill_randomly(matrices[i], kModel * kModel, 0.08f);
        *linear[i] = attnc_tensor_2d(ATTNC_F32, matrices[i], kModel, kModel);
    }
    attnc_inputs inputs = ATTNC_INPUTS_INIT;
    inputs.query = attnc_tensor_3d(ATTNC_F32, tokens, kBatch, kSeq, kModel); /* key, value: the same */
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = attnc_tensor_3d(ATTNC_F32, out, kBatch, kSeq, kModel);
    outputs.probs = attnc_tensor_4d(ATTNC_F32, probs, kBatch, kHeads, kSeq, kSeq);
    attnc_run run = ATTNC_RUN_INIT; /* no executor: this thread alone */

    attnc_error error = {ATTNC_OUT_OF_MEMORY, "out of memory"};
    attnc_layer* layer = NULL;
    if (attnc_layer_create(c_layer_attention(), &weights, NULL, &layer, &error) != ATTNC_OK ||
        attnc_layer_workspace(layer, &inputs, &outputs, &run, &run.workspace_bytes, &error) != ATTNC_OK ||
        !(run.workspace = aligned_alloc(64, (run.workspace_bytes + 63) / 64 * 64)) ||
        attnc_layer_forward(layer, &inputs, &outputs, &run, &error) != ATTNC_OK)
        return fprintf(stderr, "c_layer: %s\n", error.text), 1;

    double squares = 0, worst = 0; /* worst: largest distance of a row of weights from the sum 1 */
    for (int i = 0; i < kCount; ++i) squares += (double)out[i] * out[i];
    for (int row = 0; row < kBatch * kHeads * kSeq; ++row) {
        double sum = 0;
        for (int j = 0; j < kSeq; ++j) sum += probs[row][j];
        worst = fabs(sum - 1) <= worst ? worst : fabs(sum - 1); /* a NaN stays */
    }
    printf("out [%d, %d, %d], root mean square %.5f\n", kBatch, kSeq, kModel, sqrt(squares / kCount));
    printf("weights [%d, %d, %d, %d], rows sum to 1 within %.1e\n", kBatch, kHeads, kSeq, kSeq, worst);
    free(run.workspace);
    attnc_layer_destroy(layer);
    return worst < 1e-5 ? 0 : 1;
}
