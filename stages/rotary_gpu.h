// Rotary position embedding of a whole batch: the position of each row, and heads turned from one buffer to another.
#pragma once

#include <Halide.h>

#include <bit>
#include <cstdint>

#include "runtime/device_abi.h"
#include "stages/gpu_items.h"
#include "stages/rotary.h"

namespace attnc {

// int64: of row m = b * seq + i, as `given` (ATTNC_GIVEN_*) says: positions(i, b), or position_offsets(b) + first_row + i, or
// first_row + i.
inline Halide::Expr row_position(const Halide::Func& positions, const Halide::Func& position_offsets,
                                 const Halide::Expr& given, const Halide::Expr& first_row,
                                 const Halide::Expr& seq, const Halide::Expr& item_count,
                                 const Halide::Var& m) {
    using namespace Halide;
    Expr item = clamp(m / seq, 0, item_count - 1), row = m % seq;
    Expr offset = select((given & ATTNC_GIVEN_POSITION_OFFSETS) != 0, position_offsets(item), 0);
    return select((given & ATTNC_GIVEN_POSITIONS) != 0, cast<int64_t>(positions(row, item)),
                  cast<int64_t>(offset) + first_row + row);
}

// Halide writes OpenCL's numbers as floats, and those too small for one as 0; of bits it knows nothing.
inline Halide::Expr double_by_bits(double value) {
    return Halide::reinterpret<double>(Halide::Expr(std::bit_cast<uint64_t>(value)));
}
inline DoubleConstant double_constant_gpu(const Halide::Target& target) {
    return target.has_feature(Halide::Target::CUDA) ? double_constant : double_by_bits;
}

// y = x turned as Rotation has it; y may be x's memory. `slot` goes over the pairs, then over the features past them, so that
// whatever a thread reads, it and no other writes.
struct RotationGpu {
    Halide::Var m{"m"}, h{"h"};
    Halide::RDom slot;

    // x and y (d, m, h) of `features`, tables (r, m) of `pairs`.
    RotationGpu(const Halide::Func& y, const Halide::Func& x, const Halide::Func& cos_table,
                const Halide::Func& sin_table, const Halide::Expr& pairs, const Halide::Expr& features,
                Rotary layout)
        : slot(0, features - pairs, "slot") {
        using namespace Halide;
        const Var d("d");
        const Expr is_pair = slot < pairs, pair = min(slot, pairs - 1), alone = slot + pairs;
        const auto within = [&](const Expr& feature) { return clamp(feature, 0, features - 1); };
        FeaturePair at = pair_of_features(pair, pairs, layout);
        at = {.first = within(select(is_pair, at.first, alone)),
              .second = within(select(is_pair, at.second, alone))};
        const FeaturePair values = {.first = x(at.first, m, h), .second = x(at.second, m, h)};
        const FeaturePair turned = turned_pair(values, cos_table(pair, m), sin_table(pair, m));
        y(d, m, h) = undef<float>();
        y(scatter(at.first, at.second), m, h) = gather(select(is_pair, turned.first, values.first),
                                                       select(is_pair, turned.second, values.second));
    }
};

}  // namespace attnc
