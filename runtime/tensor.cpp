// Helpers of the C API for making tensors, masks and biases.
#include "runtime/attnc.h"
#include "runtime/check.h"

namespace {

attnc_tensor dense(attnc_dtype dtype, const void* data, int32_t rank, const int64_t* extents) {
    attnc_tensor t = {};
    t.data = const_cast<void*>(data);
    t.dtype = dtype;
    t.rank = rank;
    uint64_t stride = 1;  // wraps where the size overflows, which the call that takes the tensor refuses
    for (int32_t i = rank - 1; i >= 0; --i) {
        t.extent[i] = extents[i];
        t.stride[i] = static_cast<int64_t>(stride);
        stride *= static_cast<uint64_t>(extents[i]);
    }
    return t;
}

bool has(const attnc_tensor& t, int dimension) {
    return t.rank >= 1 && t.rank <= ATTNC_MAX_RANK && dimension >= 0 && dimension < t.rank;
}

attnc_tensor no_tensor() {
    attnc_tensor t = {};
    t.rank = -1;
    return t;
}

template <typename T>
void keep_mask_from(const T* from, uint8_t* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] != T{0} ? 1 : 0;
}

}  // namespace

extern "C" {

attnc_tensor attnc_tensor_1d(attnc_dtype dtype, const void* data, int64_t e0) {
    const int64_t extents[] = {e0};
    return dense(dtype, data, 1, extents);
}

attnc_tensor attnc_tensor_2d(attnc_dtype dtype, const void* data, int64_t e0, int64_t e1) {
    const int64_t extents[] = {e0, e1};
    return dense(dtype, data, 2, extents);
}

attnc_tensor attnc_tensor_3d(attnc_dtype dtype, const void* data, int64_t e0, int64_t e1, int64_t e2) {
    const int64_t extents[] = {e0, e1, e2};
    return dense(dtype, data, 3, extents);
}

attnc_tensor attnc_tensor_4d(attnc_dtype dtype, const void* data, int64_t e0, int64_t e1, int64_t e2,
                             int64_t e3) {
    const int64_t extents[] = {e0, e1, e2, e3};
    return dense(dtype, data, 4, extents);
}

attnc_tensor attnc_tensor_transpose(attnc_tensor tensor, int dimension, int other) {
    if (!has(tensor, dimension) || !has(tensor, other)) return no_tensor();
    attnc_tensor result = tensor;
    result.extent[dimension] = tensor.extent[other], result.extent[other] = tensor.extent[dimension];
    result.stride[dimension] = tensor.stride[other], result.stride[other] = tensor.stride[dimension];
    return result;
}

attnc_tensor attnc_tensor_select(attnc_tensor tensor, int dimension, int64_t index) {
    if (!has(tensor, dimension) || tensor.rank == 1 || index < 0 || index >= tensor.extent[dimension])
        return no_tensor();
    attnc_tensor result = tensor;
    const int64_t bytes = attnc::dtype_bytes(tensor.dtype);
    if (tensor.data != nullptr) {
        result.data = static_cast<unsigned char*>(tensor.data) + index * tensor.stride[dimension] * bytes;
    }
    --result.rank;
    for (int i = dimension; i < result.rank; ++i) {
        result.extent[i] = tensor.extent[i + 1];
        result.stride[i] = tensor.stride[i + 1];
    }
    result.extent[result.rank] = result.stride[result.rank] = 0;
    return result;
}

void attnc_keep_mask_from_i64(const int64_t* from, uint8_t* to, int64_t count) {
    keep_mask_from(from, to, count);
}
void attnc_keep_mask_from_i32(const int32_t* from, uint8_t* to, int64_t count) {
    keep_mask_from(from, to, count);
}
void attnc_keep_mask_from_f32(const float* from, uint8_t* to, int64_t count) {
    keep_mask_from(from, to, count);
}

void attnc_bias_from_scaled_mask(const float* mask, float factor, float* bias, int64_t count) {
    for (int64_t i = 0; i < count; ++i) bias[i] = mask[i] * factor;
}

}  // extern "C"
