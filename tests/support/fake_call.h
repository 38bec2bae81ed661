// What a kernel of the fake library is called with, checked against its contract. For fake_*.cpp alone.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/halide_buffer.h"
#include "runtime/kernel_abi.h"

namespace attnc::test::fake {

// A buffer that a kernel takes, checked against what its contract says of it.
class View {
public:
    int64_t extent(int i) const { return buffer_->dim[i].extent; }
    int64_t stride(int i) const { return extent(i) == 1 ? 0 : buffer_->dim[i].stride; }
    uint64_t address() const { return reinterpret_cast<uint64_t>(buffer_->host); }
    template <typename T>
    T* at(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0, int64_t e = 0) const {
        const int64_t index[] = {a, b, c, d, e};
        int64_t offset = 0;
        for (int i = 0; i < buffer_->dimensions; ++i) offset += index[i] * stride(i);
        return reinterpret_cast<T*>(buffer_->host) + offset;
    }
    // Whether rows lie one after another.
    bool side_by_side() const { return extent(1) <= 1 || stride(1) == extent(0); }
    float& f(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0, int64_t e = 0) const {
        return *at<float>(a, b, c, d, e);
    }

private:
    friend class Call;
    const HalideBuffer* buffer_ = nullptr;
};

// The arguments of a call, in the order that tables name them; the first failure is kept.
class Call {
public:
    Call(int kernel, void** argv);
    ~Call();

    // Scratch in the order that the arena finds hardest: the first block goes first.
    void use_scratch();
    View buffer(int argument, const char* name, int rank, HalideType type = kFloat32,
                bool dense_inner = true);
    void want(const char* name, int64_t got, const char* what, int64_t wanted);
    int32_t integer(int argument) const { return *static_cast<const int32_t*>(slots_[argument]); }
    double wide_real(int argument) const { return *static_cast<const double*>(slots_[argument]); }
    float real(int argument) const { return *static_cast<const float*>(slots_[argument]); }
    uint64_t address(int argument) const { return *static_cast<const uint64_t*>(slots_[argument]); }
    int32_t code() const { return code_; }

private:
    void keep(int code) {
        if (code_ == 0) code_ = code;
    }
    void* context_;
    void* slots_[ATTNC_ARGUMENT_COUNT] = {};
    int32_t code_ = 0;
};

// The arguments of a kernel in the order of the tables here: the user context comes first, the rest backwards, so that only
// the table's order can be right.
const std::vector<int64_t>& arguments_of(int kernel);

}  // namespace attnc::test::fake
