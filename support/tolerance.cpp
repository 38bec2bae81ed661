#include "support/tolerance.h"

#include <algorithm>
#include <cmath>

namespace attnc {

namespace {

constexpr double u = kUnitRoundoff;
constexpr double kLn2 = 0.693147180559945309417;

// Roundings in units of u; their places are in docs/numerics.md.
constexpr double kScoreRoundings = 4;      // beside the chain over head_dim: scale (2), two biases (2)
constexpr int64_t kSoftcapRoundings = 10;  // of softcap * tanh(score / softcap)
constexpr int64_t kAlibiRoundings = 3;     // distance, slope * distance, the difference
constexpr double kShiftRoundings = 6;      // of score - maximum (at most 2 scores): itself, times log2(e) (2)
constexpr double kExp2Error = 5;           // polynomial and its evaluation
constexpr double kNormaliseRoundings = 3;  // 1 / sum, the product with it, weights that underflow
constexpr double kJoinRoundings = 11;      // exponential (5), products and sums of sums (3), of contexts (3)

double count(int64_t n) { return static_cast<double>(n); }

// Relative error of exp(score - maximum) in units of u.
double weight_error(const AttentionTerms& terms) {
    const double roundings =
        count(terms.head_dim) + count(terms.score_steps) + kScoreRoundings + kShiftRoundings;
    return roundings * terms.scores + kExp2Error;
}

// Relative error that joining blocks adds to a sum of weights, and to the share of a block, in units of u.
double join_error(const AttentionTerms& terms) {
    return (count(terms.blocks) - 1) * (kShiftRoundings * terms.scores + kJoinRoundings);
}

// Relative error of a row's sum of weights in units of u.
double sum_error(const AttentionTerms& terms) {
    return weight_error(terms) + count(terms.keys) + 1 + join_error(terms);
}

}  // namespace

int64_t score_steps(bool softcap, bool alibi) {
    return (softcap ? kSoftcapRoundings : 0) + (alibi ? kAlibiRoundings : 0);
}

double attention_error_bound(const AttentionTerms& terms) {
    const double relative =
        weight_error(terms) + 2 * count(terms.keys) + kNormaliseRoundings + join_error(terms);
    return kSecondOrder * (u * relative + terms.score_error) * (terms.values + terms.value_error) +
           terms.value_error + kSmallestNormal * (2 * count(terms.keys) + 2);
}

double lse_error_bound(const AttentionTerms& terms) {
    constexpr double kLogError = 4;
    const double log_sum = std::log(std::max(1.0, count(terms.keys) * count(terms.blocks)));
    const double absolute = sum_error(terms) + kLogError * log_sum + (terms.scores + log_sum);
    return kSecondOrder * (u * absolute + terms.score_error);
}

double probs_error_bound(const AttentionTerms& terms) {
    constexpr double kDivision = 1;
    return kSecondOrder * (u * (weight_error(terms) + sum_error(terms) + kDivision) + 2 * terms.score_error);
}

double averaged_probs_error_bound(const AttentionTerms& terms, int64_t num_heads) {
    return probs_error_bound(terms) + kSecondOrder * u * (count(num_heads) + 1);
}

double score_error_bound(int64_t head_dim, int64_t score_steps, double magnitude, double score_error) {
    const double roundings = count(head_dim) + count(score_steps) + kScoreRoundings;
    return kSecondOrder * (u * roundings * magnitude + score_error) + kSmallestNormal * (count(head_dim) + 2);
}

bool can_be_ignored(double score, double magnitude, double largest_score, double largest_magnitude,
                    int64_t head_dim, int64_t score_steps) {
    const double roundings = kSecondOrder * u * (count(head_dim) + count(score_steps) + kScoreRoundings);
    const double highest = score + roundings * magnitude;
    const double lowest = largest_score - roundings * largest_magnitude;
    constexpr double kWeightless = 128 * kLn2;  // 2^-128 in float32 is 0, and nothing beside 2^-53 in float64
    return highest < lowest - kWeightless;
}

double dot_error_bound(int64_t depth, double magnitude) {
    return kSecondOrder * u * (count(depth) + 1) * magnitude + kSmallestNormal * (count(depth) + 1);
}

NormError::NormError(int64_t head_dim, double root, double rms_error, double epsilon)
    // The root of a mean square is 1-Lipschitz in the root of the mean square of its argument.
    : root_(root),
      root_error_(rms_error),
      least_root_(std::max(root - rms_error, std::sqrt(epsilon))),
      // Half of those of the sum of squares and epsilon (and of squares that underflow), then root, quotient, two products
      // and the weight.
      roundings_((count(head_dim) + 4) / 2 + kSmallestNormal / (2 * u * root * root) + 5) {}

double NormError::of_feature(double x, double x_error, double weight) const {
    const double inherited =
        std::fabs(weight) * (x_error + std::fabs(x) * (root_error_ / root_)) / least_root_;
    const double size = std::fabs(x / root_ * weight) + inherited;
    return inherited + kSecondOrder * (u * roundings_ * size + kSmallestNormal * (1 + std::fabs(weight)));
}

double rotary_table_error(double angle, double magnitude) {
    constexpr double kTableRoundings = 1.02;  // of a result of at most the magnitude, its polynomial included
    constexpr double kFrequencyRoundings = 10;  // in double: a power (2), its scaling (8)
    constexpr double kDoubleRoundoff = 0x1p-53;
    return magnitude * (kTableRoundings * u + kFrequencyRoundings * kDoubleRoundoff * std::fabs(angle));
}

double rotation_error(double own, double own_error, double other, double other_error, double cos, double sin,
                      double table_error) {
    constexpr double kRoundings = 2;  // products, their sum
    const double inherited = std::fabs(cos) * own_error + std::fabs(sin) * other_error +
                             table_error * (std::fabs(own) + own_error + std::fabs(other) + other_error);
    const double size = std::fabs(own * cos) + std::fabs(other * sin) + inherited;
    return inherited + kSecondOrder * u * kRoundings * size + 3 * kSmallestNormal;
}

double projected_score_error(double qk_scale, int64_t head_dim, double q_sum, double k_sum, double q_error,
                             double k_error) {
    return qk_scale * (q_sum * k_error + k_sum * q_error + count(head_dim) * q_error * k_error);
}

double output_error_bound(int64_t depth, double context_error, double weight_sum, double own_error) {
    const double inherited = context_error * weight_sum;
    return own_error + inherited * (1 + kSecondOrder * u * (count(depth) + 1));
}

}  // namespace attnc
