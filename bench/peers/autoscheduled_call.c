/* One call of what attnc_bench_autoschedule compiled, behind the functions that the other layers have. Compiled with it
 * into a shared object: BATCH, SEQ and D_MODEL are the size that it is for. */
#include <HalideRuntime.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "autoscheduled.h"

struct weights {
    const float *wq, *wk, *wv, *wo, *bq, *bk, *bv, *bo;
};

struct call {
    const float* query;
    const float* key;
    float* out;
    float* probs;
};

struct tensor {
    halide_buffer_t buffer;
    halide_dimension_t dim[3];
};

static struct weights own;

void* bench_autoscheduled_create(const void* problem, const struct weights* weights, int64_t threads,
                                 char* error) {
    (void)problem;
    (void)error;
    own = *weights;
    halide_set_num_threads((int)threads);
    return &own;
}

static halide_buffer_t* tensor(struct tensor* to, const float* data, int rank, int e0, int e1, int e2) {
    const int extent[3] = {e0, e1, e2};
    int stride = 1;
    *to = (struct tensor){{0}, {{0}}};
    for (int i = 0; i < rank; ++i) {
        to->dim[i].extent = extent[i];
        to->dim[i].stride = stride;
        stride *= extent[i];
    }
    to->buffer.host = (uint8_t*)data;
    to->buffer.type.code = halide_type_float;
    to->buffer.type.bits = 32;
    to->buffer.type.lanes = 1;
    to->buffer.dimensions = rank;
    to->buffer.dim = to->dim;
    return &to->buffer;
}

int bench_autoscheduled_call(void* layer, const struct call* call, char* error) {
    struct tensor x, out, w[4], b[4];
    const float* matrices[4] = {own.wq, own.wk, own.wv, own.wo};
    const float* vectors[4] = {own.bq, own.bk, own.bv, own.bo};
    (void)layer;
    tensor(&x, call->query, 3, D_MODEL, SEQ, BATCH);
    tensor(&out, call->out, 3, D_MODEL, SEQ, BATCH);
    for (int i = 0; i < 4; ++i) {
        tensor(&w[i], matrices[i], 2, D_MODEL, D_MODEL, 1);
        tensor(&b[i], vectors[i], 1, D_MODEL, 1, 1);
    }
    const int failed =
        attnc_bench_autoscheduled(&x.buffer, &w[0].buffer, &w[1].buffer, &w[2].buffer, &w[3].buffer,
                                  &b[0].buffer, &b[1].buffer, &b[2].buffer, &b[3].buffer, &out.buffer);
    if (failed) snprintf(error, 100, "the autoscheduled pipeline returned %d", failed);
    return failed;
}

void bench_autoscheduled_destroy(void* layer) { (void)layer; }
