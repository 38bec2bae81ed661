// What timed rounds say: ratios of two that took turns, with an interval that does not depend on how noise is distributed.
// A single round may be off by any factor; half of them may not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attnc {

// Median; of an even number the mean of the middle two; 0 of none.
double median_of(std::vector<double> values);

// 1.4826 times the median distance to the median, relative to it: of normal noise its standard deviation.
double relative_spread(std::span<const double> values);

// Time of one work over that of another.
struct Ratio {
    double median = 1;
    double low = 0,
           high = 0;  // hold the true median with kConfidence; 0 and infinity where there are too few rounds
    int64_t samples = 0;  // rounds that counted
};
inline constexpr double kConfidence = 0.98;

// Round n of both was measured side by side, so that a machine that slows down slows both. A round with a time that is
// none (0, negative, not finite) does not count.
Ratio paired_ratio(std::span<const double> times, std::span<const double> other_times);

// Of several calls: the geometric mean.
Ratio geometric_mean(std::span<const Ratio> ratios);

// Surely slower than `times_worse` times the other one, or surely faster. Between the two lies noise.
bool surely_above(const Ratio& ratio, double times_worse);
bool surely_below(const Ratio& ratio, double times_better);

}  // namespace attnc
