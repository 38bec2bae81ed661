/* From nothing to a layer's first output: maps weights that lie in a file as they are given, makes the layer, runs one call
 * of 50 tokens, and prints the monotonic clock in nanoseconds. The bar compiles it beside a library of d512_h8_f32:
 * -include names the library's header, -DLIBRARY its function. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { kModel = 512, kTokens = 50, kMatrix = kModel * kModel };

static void stop(const char* what) {
    fprintf(stderr, "cold_start: %s\n", what);
    exit(1);
}

int main(int argc, char** argv) {
    if (argc != 2) stop("wanted: the file of weights");
    const size_t bytes = sizeof(float) * (4 * kMatrix + 4 * kModel);
    const int file = open(argv[1], O_RDONLY);
    const float* given = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (file < 0 || given == MAP_FAILED) stop("cannot map the weights");

    attnc_weights weights = ATTNC_WEIGHTS_INIT;
    weights.wq = attnc_tensor_2d(ATTNC_F32, given, kModel, kModel);
    weights.wk = attnc_tensor_2d(ATTNC_F32, given + kMatrix, kModel, kModel);
    weights.wv = attnc_tensor_2d(ATTNC_F32, given + 2 * kMatrix, kModel, kModel);
    weights.wo = attnc_tensor_2d(ATTNC_F32, given + 3 * kMatrix, kModel, kModel);
    const float* biases = given + 4 * kMatrix;
    weights.bq = attnc_tensor_1d(ATTNC_F32, biases, kModel);
    weights.bk = attnc_tensor_1d(ATTNC_F32, biases + kModel, kModel);
    weights.bv = attnc_tensor_1d(ATTNC_F32, biases + 2 * kModel, kModel);
    weights.bo = attnc_tensor_1d(ATTNC_F32, biases + 3 * kModel, kModel);

    attnc_error error;
    attnc_layer* layer;
    if (attnc_layer_create(LIBRARY(), &weights, NULL, &layer, &error) != ATTNC_OK) stop(error.text);
    static float x[kTokens * kModel], y[kTokens * kModel];
    for (int i = 0; i < kTokens * kModel; ++i) x[i] = (float)(i % 17 - 8) / 8;
    attnc_inputs inputs = ATTNC_INPUTS_INIT;
    inputs.query = attnc_tensor_3d(ATTNC_F32, x, 1, kTokens, kModel);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = attnc_tensor_3d(ATTNC_F32, y, 1, kTokens, kModel);
    attnc_run run = ATTNC_RUN_INIT;
    if (attnc_layer_workspace(layer, &inputs, &outputs, &run, &run.workspace_bytes, &error) != ATTNC_OK)
        stop(error.text);
    run.workspace = aligned_alloc(64, (run.workspace_bytes + 63) / 64 * 64);
    if (attnc_layer_forward(layer, &inputs, &outputs, &run, &error) != ATTNC_OK) stop(error.text);

    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%lld\n", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    return 0;
}
