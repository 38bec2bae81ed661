// What is inside of a fake device: the arguments of its kernels, launches' parameters, and what a launch does. For
// fake_device*.cpp alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/halide_buffer.h"
#include "runtime/kernel_abi.h"
#include "tests/support/fake_device.h"

namespace attnc::test {

constexpr int kMostParameters = 24;  // of a kernel

enum class Kind { kFloats, kBytes, kInts, kWides, kInt, kFloat, kDouble };
inline bool is_buffer(Kind kind) { return kind <= Kind::kWides; }

// An argument of a kernel; of a buffer its rank, and whether its rows of features are aligned, or its strides all free.
enum class Form { kDense, kFeatures, kFree };
struct Rule {
    int argument;
    const char* name;
    Kind kind;
    int rank = 0;
    Form form = Form::kDense;
};

// Of a kernel in the order of a launch's parameters. key_runs comes last: a library without cache doesn't take it, and its
// parameter is null then.
const std::vector<Rule>& rules(int kernel);
HalideType type_of(Kind kind);

// Dimensions of a launch's buffers, by their arguments; the last parameter.
struct Shapes {
    int32_t extent[kMostParameters][4];
    int32_t stride[kMostParameters][4];
    int32_t option;  // rotate_heads: pairs are features 2 i and 2 i + 1; attend_merge: there are sinks
};

// ---- the device's side

struct DeviceView {
    unsigned char* data = nullptr;
    size_t size = 4;
    const int32_t *extents = nullptr, *strides = nullptr;
    int64_t extent(int dim) const { return extents[dim]; }
    template <typename T>
    T& at(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0) const {
        const int64_t offset = a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
        return *reinterpret_cast<T*>(data + offset * static_cast<int64_t>(size));
    }
    float& f(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0) const { return at<float>(a, b, c, d); }
    int32_t& i(int64_t a, int64_t b = 0) const { return at<int32_t>(a, b); }
};

// The parameters of a launch by their arguments.
class DeviceArguments {
public:
    DeviceArguments(int kernel, void** parameters) : rules_(rules(kernel)), parameters_(parameters) {
        std::memcpy(&shapes_, parameters[rules_.size()], sizeof shapes_);
    }
    DeviceView view(int argument) const {
        const size_t i = index(argument);
        uintptr_t address = 0;
        std::memcpy(&address, parameters_[i], sizeof address);
        return {reinterpret_cast<unsigned char*>(address), type_of(rules_[i].kind).bits / size_t{8},
                shapes_.extent[i], shapes_.stride[i]};
    }
    template <typename T>
    T scalar(int argument) const {
        T value;
        std::memcpy(&value, parameters_[index(argument)], sizeof value);
        return value;
    }
    int32_t integer(int argument) const { return scalar<int32_t>(argument); }
    bool option() const { return shapes_.option != 0; }

private:
    size_t index(int argument) const {
        size_t i = 0;
        while (rules_[i].argument != argument) ++i;
        return i;
    }
    const std::vector<Rule>& rules_;
    void** parameters_;
    Shapes shapes_;
};

#define VIEW(id) a.view(ATTNC_DEVICE_ARGUMENT_##id)
#define INTEGER(id) a.integer(ATTNC_DEVICE_ARGUMENT_##id)
#define REAL(id) a.scalar<float>(ATTNC_DEVICE_ARGUMENT_##id)

inline int64_t clamped(int64_t value, int64_t low, int64_t high) {
    return std::max(low, std::min(value, high));
}

// What the launches of each kernel do.
void fill_items(const DeviceArguments& a);
void fill_key_bias(const DeviceArguments& a);
void fill_key_blocks(const DeviceArguments& a);
void fill_cache(const DeviceArguments& a);
void fill_runs(const DeviceArguments& a);
void fill_positions(const DeviceArguments& a);
void clear_rows(const DeviceArguments& a);
void append_rows(const DeviceArguments& a);
void keep_lengths(const DeviceArguments& a);
void project_heads(const DeviceArguments& a);
void project_out(const DeviceArguments& a);
void split_heads(const DeviceArguments& a);
void merge_heads(const DeviceArguments& a);
void norm_heads(const DeviceArguments& a);
void rotary_angles(const DeviceArguments& a);
void rotary_rows(const DeviceArguments& a);
void rotate_heads(const DeviceArguments& a);
void attend(const DeviceArguments& a, int kernel);  // attend, attend_masked, attend_guarded, attend_decode
void attend_suspects(const DeviceArguments& a);
void attend_merge(const DeviceArguments& a);
void fill_empty(const DeviceArguments& a);
void attend_lse(const DeviceArguments& a);
void attend_probs(const DeviceArguments& a);
void attend_scores(const DeviceArguments& a);
void average_probs(const DeviceArguments& a);

}  // namespace attnc::test
