// How far a float32 result may be from the exact one. Bounds, not estimates: docs/numerics.md derives each of
// them from what the kernels compute, and a result outside is wrong. They hold for every instruction set and
// every schedule.
#pragma once

#include <cmath>
#include <cstdint>

namespace attnc {

// Relative error of one rounding to float32.
inline constexpr double kUnitRoundoff = 0x1p-24;
// Products of roundings, (1 + u)^n - 1 - n u, while n u stays below 0.01.
inline constexpr double kSecondOrder = 1.01;
// The smallest normal number: results below it become 0.
inline constexpr double kSmallestNormal = 0x1p-126;

// What the bounds of an attention row depend on. The largest of each over many rows is good for all of them.
struct AttentionTerms {
    int64_t head_dim = 0;
    int64_t score_steps = 0;  // score_steps() of the layer
    int64_t keys = 0;         // in the longest block of keys: at most tile_kv of the library, at most seq_kv
    int64_t blocks = 1;  // blocks of keys that are joined, the one of appended keys and a sink among them
    double scores = 0;   // largest sum over features of |q k| qk_scale, plus its largest |bias| + |key_bias|,
                         // of keys that are not dropped, or |sink|; see can_be_ignored for very negative ones
    double values = 0;   // largest |v| of keys that are not dropped
    double score_error =
        0;  // of q k qk_scale already when attention starts: projected_score_error, 0 without projection
    double value_error = 0;  // of v, the same
};

// Roundings of a score that softcap and ALiBi add, each relative to AttentionTerms::scores (ALiBi's own term is in it as
// a bias is).
int64_t score_steps(bool softcap, bool alibi);

// Of each element of the context (the attention's output before the output projection).
double attention_error_bound(const AttentionTerms& terms);
// Of lse.
double lse_error_bound(const AttentionTerms& terms);
// Of each probability; averaged_probs_error_bound of their mean over the heads.
double probs_error_bound(const AttentionTerms& terms);
double averaged_probs_error_bound(const AttentionTerms& terms, int64_t num_heads);

// Of a score that an output shows: `magnitude` is its own part of AttentionTerms::scores, score_error its own too.
double score_error_bound(int64_t head_dim, int64_t score_steps, double magnitude, double score_error);

// A key with this score (bias included), beside the row's largest score, has weight 0 in float32 and no
// effect in float64: its |bias| need not enter AttentionTerms::scores. `magnitude` is what it would have
// entered, `largest_magnitude` that of the key with the largest score.
bool can_be_ignored(double score, double magnitude, double largest_score, double largest_magnitude,
                    int64_t head_dim, int64_t score_steps = 0);

// Of a linear layer's output: a chain of `depth` multiply-adds that starts with the bias. magnitude = |bias|
// + sum |x w|.
double dot_error_bound(int64_t depth, double magnitude);

// The same by running error analysis: each rounding is at most kUnitRoundoff times the partial sum it makes,
// so a chain whose terms cancel, as those of real data do, gets a bound that is smaller by about the square
// root of its length.
class RunningDot {
public:
    explicit RunningDot(double bias) : value_(bias) {}
    void add(double x, double weight) {
        // Without a fused multiply-add the product is rounded too.
        value_ += x * weight;
        error_ +=
            kSecondOrder * (kUnitRoundoff * (std::fabs(value_) + std::fabs(x * weight)) + kSmallestNormal);
    }
    double value() const { return value_; }
    double error_bound() const { return error_; }

private:
    double value_;
    double error_ = 0;
};

// RMS normalisation of a head: x / root * weight, root = sqrt(mean(x^2) + epsilon), where x is off by errors whose root
// of the mean square is rms_error.
class NormError {
public:
    NormError(int64_t head_dim, double root, double rms_error, double epsilon);
    double of_feature(double x, double x_error, double weight) const;

private:
    double root_, root_error_, least_root_;
    double roundings_;  // in units of kUnitRoundoff, of each result
};

// Of a cosine or sine of position * frequency = angle radians, times magnitude, that a kernel makes.
double rotary_table_error(double angle, double magnitude);

// Of own * cos - other * sin (or + other * sin), where own and other are off by at most the errors given, cos and sin by
// table_error.
double rotation_error(double own, double own_error, double other, double other_error, double cos, double sin,
                      double table_error);

// Error of a score q k qk_scale whose q and k are off by at most q_error and k_error in each feature. q_sum
// and k_sum are the largest sums over a head's features of |q| and |k|.
double projected_score_error(double qk_scale, int64_t head_dim, double q_sum, double k_sum, double q_error,
                             double k_error);

// Error of an output of the output projection: `context_error` of its inputs, weight_sum = the largest sum of
// |w| of a row of wo, own_error of the projection itself (dot_error_bound or RunningDot on exact inputs).
double output_error_bound(int64_t depth, double context_error, double weight_sum, double own_error);

}  // namespace attnc
