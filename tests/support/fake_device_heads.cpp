// Tokens, heads and positions of a fake device in plain C++.
#include <cmath>
#include <numbers>

#include "tests/support/fake_device_parts.h"

namespace attnc::test {
namespace {

// store(column, row, value) for all columns of all panels.
template <typename Store>
void project(const DeviceArguments& a, const Store& store) {
    const DeviceView x = VIEW(INPUT), weights = VIEW(WEIGHTS), bias = VIEW(BIAS_VECTOR),
                     lengths = VIEW(LENGTHS);
    const int64_t panel = weights.extent(0), seq = INTEGER(SEQ);
    for (int64_t m = 0; m < x.extent(1); ++m) {
        const int64_t item = m / seq;
        const bool counts = item < lengths.extent(0) && m % seq < lengths.i(item);
        if (counts) fake_device_counts().rows_projected += weights.extent(2);
        for (int64_t column = 0; column < panel * weights.extent(2); ++column) {
            const int64_t n = column % panel, p = column / panel;
            float sum = counts ? bias.f(n, p) : 0.0F;
            for (int64_t k = 0; counts && k < x.extent(0); ++k) sum += weights.f(n, k, p) * x.f(k, m);
            store(column, m, sum);
        }
    }
}

int64_t position(const DeviceArguments& a, int64_t m) {
    const DeviceView positions = VIEW(POSITIONS);
    const int64_t seq = positions.extent(0), i = m % seq, b = m / seq;
    const int32_t given = INTEGER(GIVEN);
    if ((given & ATTNC_GIVEN_POSITIONS) != 0) return positions.i(i, b);
    const int64_t row = INTEGER(FIRST_ROW) + i;
    return (given & ATTNC_GIVEN_POSITION_OFFSETS) != 0 ? VIEW(POSITION_OFFSETS).i(b) + row : row;
}

}  // namespace

void project_heads(const DeviceArguments& a) {
    const DeviceView y = VIEW(Y);
    project(a, [&](int64_t column, int64_t m, float value) {
        const int64_t plane = column / y.extent(0);
        if (plane < y.extent(2)) y.f(column % y.extent(0), m, plane) = value;
    });
}

void project_out(const DeviceArguments& a) {
    const DeviceView out = VIEW(OUT);
    project(a, [&](int64_t column, int64_t m, float value) {
        if (column < out.extent(0)) out.f(column, m) = value;
    });
}

void split_heads(const DeviceArguments& a) {
    const DeviceView x = VIEW(INPUT), lengths = VIEW(LENGTHS), y = VIEW(Y);
    const int64_t seq = x.extent(1);
    for (int64_t m = 0; m < y.extent(1); ++m) {
        const bool counts = m % seq < lengths.i(m / seq);
        for (int64_t h = 0; h < y.extent(2); ++h) {
            for (int64_t d = 0; d < y.extent(0); ++d)
                y.f(d, m, h) = counts && d < x.extent(0) ? x.f(d, m % seq, h, m / seq) : 0.0F;
        }
    }
}

void merge_heads(const DeviceArguments& a) {
    const DeviceView context = VIEW(CONTEXT), lengths = VIEW(LENGTHS), out = VIEW(OUT);
    const int64_t seq = out.extent(1);
    for (int64_t b = 0; b < out.extent(3); ++b) {
        for (int64_t h = 0; h < out.extent(2); ++h) {
            for (int64_t i = 0; i < seq; ++i) {
                for (int64_t d = 0; d < out.extent(0); ++d)
                    out.f(d, i, h, b) = i < lengths.i(b) ? context.f(d, h, b * seq + i) : 0.0F;
            }
        }
    }
}

void norm_heads(const DeviceArguments& a) {
    const DeviceView x = VIEW(INPUT), weight = VIEW(NORM_WEIGHT), y = VIEW(Y);
    for (int64_t h = 0; h < x.extent(2); ++h) {
        for (int64_t m = 0; m < x.extent(1); ++m) {
            auto sum = static_cast<double>(REAL(EPSILON));
            for (int64_t d = 0; d < x.extent(0); ++d) sum += std::pow(static_cast<double>(x.f(d, m, h)), 2);
            for (int64_t d = 0; d < x.extent(0); ++d)
                y.f(d, m, h) =
                    static_cast<float>(static_cast<double>(x.f(d, m, h) * weight.f(d)) / std::sqrt(sum));
        }
    }
}

void rotary_angles(const DeviceArguments& a) {
    const DeviceView cosines = VIEW(COS_TABLE), sines = VIEW(SIN_TABLE), frequencies = VIEW(FREQUENCIES);
    const auto magnitude = a.scalar<double>(ATTNC_DEVICE_ARGUMENT_MAGNITUDE);
    for (int64_t m = 0; m < cosines.extent(1); ++m) {
        for (int64_t r = 0; r < cosines.extent(0); ++r) {
            const uint64_t turns = frequencies.at<uint64_t>(r) * static_cast<uint64_t>(position(a, m));
            const double angle =
                static_cast<double>(static_cast<int64_t>(turns)) * 0x1p-64 * 2 * std::numbers::pi;
            cosines.f(r, m) = static_cast<float>(std::cos(angle) * magnitude);
            sines.f(r, m) = static_cast<float>(std::sin(angle) * magnitude);
        }
    }
}

void rotary_rows(const DeviceArguments& a) {
    const DeviceView cosines = VIEW(COS_TABLE), sines = VIEW(SIN_TABLE);
    const DeviceView from_cos = VIEW(TABLE_COS), from_sin = VIEW(TABLE_SIN);
    for (int64_t m = 0; m < cosines.extent(1); ++m) {
        const int64_t row = clamped(position(a, m), 0, from_cos.extent(1) - 1);
        for (int64_t r = 0; r < cosines.extent(0); ++r)
            cosines.f(r, m) = from_cos.f(r, row), sines.f(r, m) = from_sin.f(r, row);
    }
}

void rotate_heads(const DeviceArguments& a) {
    const DeviceView cosines = VIEW(COS_TABLE), sines = VIEW(SIN_TABLE), x = VIEW(INPUT), y = VIEW(Y);
    const int64_t pairs = cosines.extent(0);
    for (int64_t h = 0; h < x.extent(2); ++h) {
        for (int64_t m = 0; m < x.extent(1); ++m) {
            for (int64_t d = 2 * pairs; d < x.extent(0); ++d) y.f(d, m, h) = x.f(d, m, h);
            for (int64_t r = 0; r < pairs; ++r) {
                const int64_t one = a.option() ? 2 * r : r, other = a.option() ? 2 * r + 1 : r + pairs;
                const float u = x.f(one, m, h), w = x.f(other, m, h), c = cosines.f(r, m), s = sines.f(r, m);
                y.f(one, m, h) = u * c - w * s;
                y.f(other, m, h) = w * c + u * s;
            }
        }
    }
}

}  // namespace attnc::test
