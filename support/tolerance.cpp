#include "support/tolerance.h"

#include <algorithm>
#include <cmath>

namespace attnc {

namespace {

constexpr double u = kUnitRoundoff;
constexpr double kLn2 = 0.693147180559945309417;

// Roundings in units of u; their places are in docs/numerics.md.
constexpr double kScoreRoundings = 5;      // beside the chain over head_dim: scale (3), two biases (2)
constexpr double kShiftRoundings = 2;      // score - maximum is at most 2 scores
constexpr double kExp2Error = 5;           // polynomial and its evaluation
constexpr double kNormaliseRoundings = 3;  // 1 / sum, the product with it, weights that underflow
constexpr double kLseRoundings = 9;
constexpr double kMergeRoundings = 25;

double count(int64_t n) { return static_cast<double>(n); }

// Largest |lse| and what its roundings are relative to.
double lse_magnitude(const AttentionTerms& terms) {
    return terms.scores + std::log(std::max(1.0, count(terms.keys) * count(terms.blocks))) + 1;
}

// Relative error of exp(score) in units of u.
double weight_error(const AttentionTerms& terms) {
    return (count(terms.head_dim) + kScoreRoundings + kShiftRoundings) * terms.scores + kExp2Error;
}

double merge_error(const AttentionTerms& terms) {
    return (count(terms.blocks) - 1) * (lse_magnitude(terms) + kMergeRoundings);
}

}  // namespace

double attention_error_bound(const AttentionTerms& terms) {
    double relative = weight_error(terms) + 2 * count(terms.keys) + kNormaliseRoundings;
    if (terms.blocks > 1) {
        relative += kLseRoundings * lse_magnitude(terms) + merge_error(terms);
    }
    return kSecondOrder * (u * relative + terms.score_error) * (terms.values + terms.value_error) +
           terms.value_error + kSmallestNormal * (2 * count(terms.keys) + 2);
}

double lse_error_bound(const AttentionTerms& terms) {
    const double absolute =
        weight_error(terms) + count(terms.keys) + kLseRoundings * lse_magnitude(terms) + merge_error(terms);
    return kSecondOrder * (u * absolute + terms.score_error);
}

double probs_error_bound(const AttentionTerms& terms) {
    constexpr double kDifferenceRoundings = 4;
    const double own = weight_error(terms) + kDifferenceRoundings * lse_magnitude(terms);
    return kSecondOrder * (u * own + terms.score_error) + kSecondOrder * lse_error_bound(terms);
}

double averaged_probs_error_bound(const AttentionTerms& terms, int64_t num_heads) {
    return probs_error_bound(terms) + kSecondOrder * u * (count(num_heads) + 1);
}

bool can_be_ignored(double score, double magnitude, double largest_score, double largest_magnitude,
                    int64_t head_dim) {
    const double roundings = kSecondOrder * u * (count(head_dim) + kScoreRoundings);
    const double highest = score + roundings * magnitude;
    const double lowest = largest_score - roundings * largest_magnitude;
    constexpr double kWeightless = 128 * kLn2;  // 2^-128 in float32 is 0, and nothing beside 2^-53 in float64
    return highest < lowest - kWeightless;
}

double dot_error_bound(int64_t depth, double magnitude) {
    return kSecondOrder * u * (count(depth) + 1) * magnitude + kSmallestNormal * (count(depth) + 1);
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
