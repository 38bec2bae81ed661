#include "stages/rotary.h"

#include <numbers>

namespace attnc {

using namespace Halide;

namespace {

// Taylor's series on |x| <= pi/4: the first terms left out are x^13 / 13! < 7e-12 and x^12 / 12! < 1.2e-10.
Expr sine_near_zero(const Expr& x, DoubleConstant number) {
    Expr z = x * x;
    Expr p = number(-1.0 / 39916800);
    p = p * z + number(1.0 / 362880);
    p = p * z + number(-1.0 / 5040);
    p = p * z + number(1.0 / 120);
    p = p * z + number(-1.0 / 6);
    return x + x * z * p;
}

Expr cosine_near_zero(const Expr& x, DoubleConstant number) {
    Expr z = x * x;
    Expr p = number(-1.0 / 3628800);
    p = p * z + number(1.0 / 40320);
    p = p * z + number(-1.0 / 720);
    p = p * z + number(1.0 / 24);
    p = p * z + number(-0.5);
    return p * z + number(1.0);
}

}  // namespace

RotaryAngles::RotaryAngles(const Expr& position, const Expr& turns, const Expr& magnitude,
                           DoubleConstant number) {
    constexpr int kQuarterBits = 62;  // a quarter of a turn is 2^62
    const Expr eighth = Expr(uint64_t{1} << (kQuarterBits - 1));
    Expr phase = cast<uint64_t>(cast<int64_t>(position)) * turns;
    Expr quarter = (phase + eighth) >> kQuarterBits;  // the nearest one
    Expr rest = reinterpret<int64_t>(phase - (quarter << kQuarterBits));
    Expr x = cast<double>(rest) * number(2 * std::numbers::pi / 0x1p64);
    Expr s = sine_near_zero(x, number), c = cosine_near_zero(x, number);
    Expr odd = (quarter & Expr(uint64_t{1})) != 0;
    Expr second_half = (quarter & Expr(uint64_t{2})) != 0;
    Expr cosine_sign = select(odd != second_half, -magnitude, magnitude);
    Expr sine_sign = select(second_half, -magnitude, magnitude);
    cosine = cast<float>(cosine_sign * select(odd, s, c));
    sine = cast<float>(sine_sign * select(odd, c, s));
}

FeaturePair pair_of_features(const Expr& pair, const Expr& pairs, Rotary layout) {
    if (layout == Rotary::kPairs) return {.first = 2 * pair, .second = 2 * pair + 1};
    return {.first = pair, .second = pair + pairs};
}

FeaturePair turned_pair(const FeaturePair& values, const Expr& cosine, const Expr& sine) {
    return {.first = values.first * cosine - values.second * sine,
            .second = values.second * cosine + values.first * sine};
}

Rotation::Rotation(const Func& y, const Func& cos_table, const Func& sin_table, const Expr& pairs,
                   Rotary layout)
    : pair(0, pairs, "pair") {
    const Var d("d");
    const FeaturePair at = pair_of_features(pair.x, pairs, layout);
    Expr c = cos_table(pair, m), s = sin_table(pair, m);
    y(d, m, h) = undef<float>();
    const FeaturePair turned = turned_pair({.first = y(at.first, m, h), .second = y(at.second, m, h)}, c, s);
    y(scatter(at.first, at.second), m, h) = gather(turned.first, turned.second);
}

}  // namespace attnc
