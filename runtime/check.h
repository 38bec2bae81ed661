// Checks of one tensor of the API, each refusal with a sentence that names the tensor, what was got and what
// was wanted.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "runtime/attnc.h"
#include "runtime/text.h"

namespace attnc {

inline bool given(const attnc_tensor& t) { return t.rank != 0; }

struct Dim {
    const char* name;
    int64_t extent;          // wanted; kAny: any from 0
    bool broadcast = false;  // an extent of 1 will do too
};
inline constexpr int64_t kAny = -1;

struct TensorRule {
    const char* name;
    attnc_dtype dtype;
    attnc_dtype other_dtype;  // allowed too; the same as dtype where there is one
    bool free_inner = false;  // the inner stride needn't be 1
    bool output = false;      // no two elements may share memory
    bool needs_data = true;
};

// Everything about `t` but where its memory lies.
attnc_status check_tensor(attnc_error* error, const TensorRule& rule, const attnc_tensor& t,
                          std::initializer_list<Dim> dims);

// Refuses a rank other than those two; dims only name the dimensions.
attnc_status check_rank(attnc_error* error, const char* name, const attnc_tensor& t,
                        std::initializer_list<Dim> dims, std::initializer_list<Dim> other_dims);

// An enumerator as the number that the caller wrote, which may be none of the enumeration's.
template <typename Enum>
int number_of(const Enum& enumerator) {
    static_assert(sizeof(Enum) == sizeof(int));
    int number;
    __builtin_memcpy(&number, &enumerator, sizeof number);
    return number;
}

bool is_empty(const attnc_tensor& t);         // an extent is 0
const char* dtype_name(int32_t dtype);        // "f32"; null for an unknown one
int64_t dtype_bytes(int32_t dtype);           // of those that check_tensor lets pass
int64_t last_element(const attnc_tensor& t);  // offset in elements; the tensor is checked and not empty

}  // namespace attnc
