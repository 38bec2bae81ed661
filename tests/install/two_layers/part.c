/* One library at work, compiled once for each: HEADER and LIBRARY are its own, CHECK is the name of the function here,
 * D_MODEL the layer's. With unit matrices for weights a batch of single tokens comes out as it went in, to the bit. */
#include <stdlib.h>
#include <string.h>

#include HEADER

enum { d = D_MODEL, items = 5 };

int CHECK(void);
int CHECK(void) {
    static float weight[d * d], x[items * d], out[items * d];
    for (int i = 0; i < d; ++i) weight[i * d + i] = 1.0f;
    for (int i = 0; i < items * d; ++i) x[i] = (float)(i % 997) - 498.0f;
    memset(out, 0, sizeof out);

    attnc_weights weights = ATTNC_WEIGHTS_INIT;
    weights.wq = weights.wk = weights.wv = weights.wo = attnc_tensor_2d(ATTNC_F32, weight, d, d);
    attnc_inputs inputs = ATTNC_INPUTS_INIT;
    inputs.query = attnc_tensor_3d(ATTNC_F32, x, items, 1, d);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = attnc_tensor_3d(ATTNC_F32, out, items, 1, d);
    attnc_run run = ATTNC_RUN_INIT;
    attnc_layer* layer = NULL;
    attnc_pool* pool = NULL;
    if (attnc_layer_create(LIBRARY(), &weights, NULL, &layer, NULL) != ATTNC_OK) return 1;
    if (attnc_pool_create(2, &pool, NULL) != ATTNC_OK) return 2;
    run.executor = attnc_pool_executor(pool);
    if (attnc_layer_workspace(layer, &inputs, &outputs, &run, &run.workspace_bytes, NULL) != ATTNC_OK)
        return 3;
    run.workspace = aligned_alloc(64, (run.workspace_bytes + 63) / 64 * 64);
    const attnc_status status = attnc_layer_forward(layer, &inputs, &outputs, &run, NULL);
    free(run.workspace);
    attnc_pool_destroy(pool);
    attnc_layer_destroy(layer);
    if (status != ATTNC_OK) return 4;
    return memcmp(x, out, sizeof x) == 0 ? 0 : 5;
}
