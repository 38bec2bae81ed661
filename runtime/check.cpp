#include "runtime/check.h"

namespace attnc {
namespace {

constexpr int kNameBytes = 24;

// "f32", or the number of a type that has no name.
void describe_dtype(char (&text)[kNameBytes], int32_t dtype) {
    if (const char* name = dtype_name(dtype)) {
        write_text(text, sizeof text, {name});
    } else {
        write_text(text, sizeof text, {dtype});
    }
}

// "3 [batch, seq, d_model]"
struct ShapeText {
    char text[128];
    size_t used;
    explicit ShapeText(std::initializer_list<Dim> dims)
        : used(write_text(text, sizeof text, {dims.size(), " ["})) {
        const char* separator = "";
        for (const Dim& dim : dims) {
            append({separator, dim.name});
            separator = ", ";
        }
        append({"]"});
    }
    void append(std::initializer_list<Piece> pieces) {
        used += write_text(text + used, sizeof text - used, pieces);
    }
};

attnc_status check_dtype(attnc_error* error, const TensorRule& rule, const attnc_tensor& t) {
    if (t.dtype == rule.dtype || t.dtype == rule.other_dtype) return ATTNC_OK;
    char got[kNameBytes];
    describe_dtype(got, t.dtype);
    if (rule.dtype == rule.other_dtype) {
        return fail(error, ATTNC_BAD_DTYPE,
                    {rule.name, " has type ", got, ", wanted ", dtype_name(rule.dtype)});
    }
    return fail(error, ATTNC_BAD_DTYPE,
                {rule.name, " has type ", got, ", wanted ", dtype_name(rule.dtype), " or ",
                 dtype_name(rule.other_dtype)});
}

attnc_status check_extents(attnc_error* error, const TensorRule& rule, const attnc_tensor& t,
                           std::initializer_list<Dim> dims) {
    int32_t i = 0;
    for (const Dim& dim : dims) {
        const int64_t extent = t.extent[i];
        if (extent < 0) {
            return fail(error, ATTNC_BAD_EXTENT,
                        {rule.name, " has extent ", extent, " in dimension ", i, " (", dim.name,
                         "), wanted 0 or more"});
        }
        if (dim.extent != kAny && extent != dim.extent && !(dim.broadcast && extent == 1)) {
            return fail(error, ATTNC_BAD_EXTENT,
                        {rule.name, " has extent ", extent, " in dimension ", i, " (", dim.name, "), wanted ",
                         dim.broadcast ? "1 or " : "", dim.extent});
        }
        ++i;
    }
    return ATTNC_OK;
}

// Each dimension's stride must step over all that the dimensions of smaller strides cover.
attnc_status check_no_self_overlap(attnc_error* error, const TensorRule& rule, const attnc_tensor& t) {
    bool done[ATTNC_MAX_RANK] = {};
    int64_t covered = 1;
    for (int32_t round = 0; round < t.rank; ++round) {
        int32_t least = -1;
        for (int32_t i = t.rank - 1; i >= 0; --i) {
            if (!done[i] && t.extent[i] > 1 && (least < 0 || t.stride[i] < t.stride[least])) least = i;
        }
        if (least < 0) break;
        done[least] = true;
        if (t.stride[least] < covered) {
            return fail(error, ATTNC_BAD_STRIDE,
                        {rule.name, " has stride ", t.stride[least], " in dimension ", least, ", wanted ",
                         covered, " or more so that elements do not overlap"});
        }
        covered += (t.extent[least] - 1) * t.stride[least];
    }
    return ATTNC_OK;
}

attnc_status check_strides(attnc_error* error, const TensorRule& rule, const attnc_tensor& t) {
    for (int32_t i = 0; i < t.rank; ++i) {
        if (t.stride[i] < 0) {
            return fail(error, ATTNC_BAD_STRIDE,
                        {rule.name, " has stride ", t.stride[i], " in dimension ", i, ", wanted 0 or more"});
        }
    }
    const int32_t inner = t.rank - 1;
    if (!rule.free_inner && t.extent[inner] > 1 && t.stride[inner] != 1) {
        return fail(error, ATTNC_BAD_STRIDE,
                    {rule.name, " has stride ", t.stride[inner], " in dimension ", inner, ", wanted 1"});
    }
    // The offset of the end, in bytes, and the address there.
    int64_t end = 1;
    bool overflow = false;
    for (int32_t i = 0; i < t.rank; ++i) {
        int64_t step = 0;
        overflow = overflow || __builtin_mul_overflow(t.extent[i] - 1, t.stride[i], &step) ||
                   __builtin_add_overflow(end, step, &end);
    }
    uintptr_t address = 0;
    overflow =
        overflow || __builtin_mul_overflow(end, dtype_bytes(t.dtype), &end) ||
        __builtin_add_overflow(reinterpret_cast<uintptr_t>(t.data), static_cast<uintptr_t>(end), &address);
    if (overflow) return fail(error, ATTNC_TOO_LARGE, {"the size of ", rule.name, " overflows"});
    return rule.output ? check_no_self_overlap(error, rule, t) : ATTNC_OK;
}

}  // namespace

bool is_empty(const attnc_tensor& t) {
    for (int32_t i = 0; i < t.rank; ++i) {
        if (t.extent[i] == 0) return true;
    }
    return false;
}

const char* dtype_name(int32_t dtype) {
    switch (dtype) {
        case ATTNC_F32:
            return "f32";
        case ATTNC_U8:
            return "u8";
        case ATTNC_I32:
            return "i32";
        case ATTNC_I64:
            return "i64";
        case ATTNC_F16:
            return "f16";
        case ATTNC_BF16:
            return "bf16";
        case ATTNC_F64:
            return "f64";
        default:
            return nullptr;
    }
}

int64_t dtype_bytes(int32_t dtype) {
    if (dtype == ATTNC_U8) return 1;
    return dtype == ATTNC_I64 || dtype == ATTNC_F64 ? 8 : 4;
}

int64_t last_element(const attnc_tensor& t) {
    int64_t last = 0;
    for (int32_t i = 0; i < t.rank; ++i) last += (t.extent[i] - 1) * t.stride[i];
    return last;
}

attnc_status check_rank(attnc_error* error, const char* name, const attnc_tensor& t,
                        std::initializer_list<Dim> dims, std::initializer_list<Dim> other_dims) {
    const auto rank = static_cast<size_t>(t.rank < 0 ? 0 : t.rank);
    if (rank == dims.size() || rank == other_dims.size()) return ATTNC_OK;
    return fail(
        error, ATTNC_BAD_RANK,
        {name, " has rank ", t.rank, ", wanted ", ShapeText(dims).text, " or ", ShapeText(other_dims).text});
}

attnc_status check_tensor(attnc_error* error, const TensorRule& rule, const attnc_tensor& t,
                          std::initializer_list<Dim> dims) {
    ATTNC_TRY(check_dtype(error, rule, t));
    if (t.reserved != 0)
        return fail(error, ATTNC_BAD_VALUE, {rule.name, " has reserved ", t.reserved, ", wanted 0"});
    if (t.rank < 0 || static_cast<size_t>(t.rank) != dims.size()) {
        return fail(error, ATTNC_BAD_RANK,
                    {rule.name, " has rank ", t.rank, ", wanted ", ShapeText(dims).text});
    }
    ATTNC_TRY(check_extents(error, rule, t, dims));
    if (is_empty(t)) return ATTNC_OK;
    ATTNC_TRY(check_strides(error, rule, t));
    if (rule.needs_data && t.data == nullptr) {
        return fail(error, ATTNC_NULL_ARGUMENT, {"the data of ", rule.name, " is null"});
    }
    return ATTNC_OK;
}

}  // namespace attnc
