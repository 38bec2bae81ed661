/* One program with two libraries of one configuration, and with a Halide kernel and Halide's own runtime. */
#include <stdio.h>
#include <string.h>

#include "HalideRuntime.h"
#include "first_attention.h"
#include "host_kernel.h"
#include "second_attention.h"

enum { features = 16, rows = 3, heads = 2 };

static halide_buffer_t buffer(float* data, halide_dimension_t* dim) {
    const int extent[3] = {features, rows, heads};
    halide_buffer_t b;
    memset(&b, 0, sizeof b);
    for (int n = 0, stride = 1; n < 3; stride *= extent[n++]) {
        memset(&dim[n], 0, sizeof dim[n]);
        dim[n].extent = extent[n];
        dim[n].stride = stride;
    }
    b.host = (uint8_t*)data;
    b.type.code = halide_type_float;
    b.type.bits = 32;
    b.type.lanes = 1;
    b.dimensions = 3;
    b.dim = dim;
    return b;
}

int main(void) {
    if (first_attention() == second_attention()) return 1;
    if (strcmp(attnc_library_problem(first_attention()), attnc_library_problem(second_attention())) != 0)
        return 2;
    for (int which = 0; which < 2; ++which) {
        static float weight[32 * 32];
        attnc_weights weights = ATTNC_WEIGHTS_INIT;
        weights.wq = weights.wk = weights.wv = weights.wo = attnc_tensor_2d(ATTNC_F32, weight, 32, 32);
        attnc_layer* layer = NULL;
        const attnc_library* library = which == 0 ? first_attention() : second_attention();
        if (attnc_layer_create(library, &weights, NULL, &layer, NULL) != ATTNC_OK) return 3;
        attnc_layer_destroy(layer);
    }

    static float x[features * rows * heads], y[features * rows * heads];
    for (int i = 0; i < features * rows * heads; ++i) x[i] = (float)i;
    halide_dimension_t x_dim[3], y_dim[3];
    halide_buffer_t in = buffer(x, x_dim), out = buffer(y, y_dim);
    if (host_kernel(&in, &out) != 0) return 4;
    if (memcmp(x, y, sizeof x) != 0) return 5;
    puts("two libraries and a Halide of the host's own");
    return 0;
}
