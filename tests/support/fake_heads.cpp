#include <cmath>
#include <numbers>

#include "tests/support/fake_call.h"
#include "tests/support/fake_kernels.h"
#include "tests/support/fake_library.h"

namespace attnc::test::fake {
namespace {

template <bool pairs>
int32_t rotate(int kernel, void** argv) {
    Call call(kernel, argv);
    const View cos = call.buffer(ATTNC_ARGUMENT_COS_TABLE, "cos_table", 2);
    const View sin = call.buffer(ATTNC_ARGUMENT_SIN_TABLE, "sin_table", 2);
    const View y = call.buffer(ATTNC_ARGUMENT_Y, "y", 3);
    const int64_t turned = cos.extent(0);
    call.want("sin_table", sin.extent(0), "r of cos_table", turned);
    for (const View* table : {&cos, &sin}) call.want("a table", table->extent(1), "m of y", y.extent(1));
    if (2 * turned > y.extent(0)) call.want("y", y.extent(0), "two features a pair", 2 * turned);
    if (call.code() != 0) return call.code();
    for (int64_t h = 0; h < y.extent(2); ++h) {
        for (int64_t m = 0; m < y.extent(1); ++m) {
            for (int64_t r = 0; r < turned; ++r) {
                float& first = y.f(pairs ? 2 * r : r, m, h);
                float& second = y.f(pairs ? 2 * r + 1 : r + turned, m, h);
                const auto a = static_cast<double>(first), b = static_cast<double>(second);
                const auto c = static_cast<double>(cos.f(r, m)), s = static_cast<double>(sin.f(r, m));
                first = static_cast<float>(a * c - b * s);
                second = static_cast<float>(b * c + a * s);
            }
        }
    }
    return 0;
}

}  // namespace

int32_t project(int kernel, void** argv) {
    Call call(kernel, argv);
    call.use_scratch();
    const bool heads = kernel == ATTNC_KERNEL_PROJECT_HEADS || kernel == ATTNC_KERNEL_PROJECT_HEADS_TAIL;
    const View x = call.buffer(ATTNC_ARGUMENT_INPUT, "x", 2);
    const View w = call.buffer(ATTNC_ARGUMENT_WEIGHTS, "weights", 3);
    const View bias = call.buffer(ATTNC_ARGUMENT_BIAS_VECTOR, "bias_vector", 2);
    const View y = heads ? call.buffer(ATTNC_ARGUMENT_Y, "y", 5) : call.buffer(ATTNC_ARGUMENT_OUT, "out", 2);
    const int64_t inner = x.extent(0), rows = x.extent(1), panel = w.extent(0), panels = w.extent(2);
    call.want("weights", w.extent(1), "k of x", inner);
    call.want("bias_vector", bias.extent(0), "n of weights", panel);
    call.want("bias_vector", bias.extent(1), "p of weights", panels);
    if (heads) {
        call.want("y", y.extent(2), "m of x", rows);
        call.want("y", y.extent(0) * y.extent(1), "n of weights", panel);
        call.want("y", y.extent(3) * y.extent(4), "p of weights", panels);
        fake_counts().rows_projected += rows * panels;
    } else {
        call.want("out", y.extent(1), "m of x", rows);
        call.want("out", (y.extent(0) + panel - 1) / panel, "p of weights", panels);
    }
    if (call.code() != 0) return call.code();
    for (int64_t p = 0; p < panels; ++p) {
        for (int64_t n = 0; n < panel; ++n) {
            if (!heads && p * panel + n >= y.extent(0)) continue;
            for (int64_t m = 0; m < rows; ++m) {
                double sum = static_cast<double>(bias.f(n, p));
                for (int64_t k = 0; k < inner; ++k) {
                    sum += static_cast<double>(x.f(k, m)) * static_cast<double>(w.f(n, k, p));
                }
                const int64_t width = y.extent(0), c = y.extent(heads ? 3 : 0);
                float& to = heads ? y.f(n % width, n / width, m, p % c, p / c) : y.f(p * panel + n, m);
                to = static_cast<float>(sum);
            }
        }
    }
    return 0;
}

int32_t copy_heads(int kernel, void** argv) {
    Call call(kernel, argv);
    const View x = call.buffer(ATTNC_ARGUMENT_INPUT, "x", 3);
    const View y = call.buffer(ATTNC_ARGUMENT_Y, "y", 3);
    call.want("y", y.extent(1), "m of x", x.extent(1));
    call.want("y", y.extent(2), "h of x", x.extent(2));
    if (call.code() != 0) return call.code();
    for (int64_t h = 0; h < y.extent(2); ++h) {
        for (int64_t m = 0; m < y.extent(1); ++m) {
            for (int64_t d = 0; d < y.extent(0); ++d) y.f(d, m, h) = d < x.extent(0) ? x.f(d, m, h) : 0;
        }
    }
    return 0;
}

int32_t norm_heads(int kernel, void** argv) {
    Call call(kernel, argv);
    const View x = call.buffer(ATTNC_ARGUMENT_INPUT, "x", 3);
    const View weight = call.buffer(ATTNC_ARGUMENT_NORM_WEIGHT, "norm_weight", 1);
    const View y = call.buffer(ATTNC_ARGUMENT_Y, "y", 3);
    call.want("x", x.extent(0) % ATTNC_HEAD_ALIGN, "rest of a padded head", 0);
    call.want("norm_weight", weight.extent(0), "d of x", x.extent(0));
    for (int i = 0; i < 3; ++i) call.want("y", y.extent(i), "extent of x", x.extent(i));
    if (call.code() != 0) return call.code();
    for (int64_t h = 0; h < y.extent(2); ++h) {
        for (int64_t m = 0; m < y.extent(1); ++m) {
            double squares = static_cast<double>(call.real(ATTNC_ARGUMENT_EPSILON));
            for (int64_t d = 0; d < x.extent(0); ++d)
                squares += static_cast<double>(x.f(d, m, h)) * static_cast<double>(x.f(d, m, h));
            for (int64_t d = 0; d < x.extent(0); ++d) {
                const double value = static_cast<double>(x.f(d, m, h)) / std::sqrt(squares);
                y.f(d, m, h) = static_cast<float>(value * static_cast<double>(weight.f(d)));
            }
        }
    }
    return 0;
}

int32_t rotate_halves(int kernel, void** argv) { return rotate<false>(kernel, argv); }
int32_t rotate_pairs(int kernel, void** argv) { return rotate<true>(kernel, argv); }

int32_t rotary_angles(int kernel, void** argv) {
    Call call(kernel, argv);
    call.use_scratch();
    const View positions = call.buffer(ATTNC_ARGUMENT_POSITIONS, "positions", 1, kInt32);
    const View frequencies = call.buffer(ATTNC_ARGUMENT_FREQUENCIES, "frequencies", 1, kUint64);
    const View cos = call.buffer(ATTNC_ARGUMENT_COS_TABLE, "cos_table", 2);
    const View sin = call.buffer(ATTNC_ARGUMENT_SIN_TABLE, "sin_table", 2);
    for (const View* table : {&cos, &sin}) {
        call.want("a table", table->extent(0), "r of frequencies", frequencies.extent(0));
        call.want("a table", table->extent(1), "m of positions", positions.extent(0));
    }
    if (call.code() != 0) return call.code();
    const double magnitude = call.wide_real(ATTNC_ARGUMENT_MAGNITUDE);
    for (int64_t m = 0; m < positions.extent(0); ++m) {
        ++fake_counts().rows_angled;
        for (int64_t r = 0; r < frequencies.extent(0); ++r) {
            const auto position = static_cast<uint64_t>(int64_t{*positions.at<int32_t>(m)});
            const auto turns = static_cast<int64_t>(position * *frequencies.at<uint64_t>(r));
            const double angle = static_cast<double>(turns) * (2 * std::numbers::pi * 0x1p-64);
            cos.f(r, m) = static_cast<float>(std::cos(angle) * magnitude);
            sin.f(r, m) = static_cast<float>(std::sin(angle) * magnitude);
        }
    }
    return 0;
}

}  // namespace attnc::test::fake
