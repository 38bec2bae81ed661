#include "tuner/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnc {

namespace {

// How many of the smallest and of the largest of n values may be left out, so that those between still hold the median
// with kConfidence; -1 if even all of them don't. The number of values below the median is binomial.
int64_t left_out(int64_t n) {
    double term = std::exp2(-static_cast<double>(n));
    double below = 0;  // probability of at most k values below the median
    int64_t k = 0;
    for (; k < n / 2; ++k) {
        below += term;
        if (2 * below > 1 - kConfidence) break;
        term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    }
    return k - 1;
}

// 2^-n is no double from here on; more rounds gain nothing.
constexpr size_t kMostRounds = 1000;

}  // namespace

double median_of(std::vector<double> values) {
    if (values.empty()) return 0;
    const size_t middle = values.size() / 2;
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(middle);
    std::nth_element(values.begin(), at, values.end());
    if (values.size() % 2 == 1) return *at;
    return (*at + *std::max_element(values.begin(), at)) / 2;
}

double relative_spread(std::span<const double> values) {
    const double centre = median_of({values.begin(), values.end()});
    if (centre <= 0) return 0;
    std::vector<double> distances;
    for (const double value : values) distances.push_back(std::fabs(value - centre));
    return 1.4826 * median_of(distances) / centre;
}

Ratio paired_ratio(std::span<const double> times, std::span<const double> other_times) {
    const auto is_time = [](double value) { return std::isfinite(value) && value > 0; };
    std::vector<double> ratios;
    for (size_t i = 0; i < std::min(times.size(), other_times.size()) && ratios.size() < kMostRounds; ++i) {
        if (is_time(times[i]) && is_time(other_times[i])) ratios.push_back(times[i] / other_times[i]);
    }
    Ratio result = {.low = 0, .high = std::numeric_limits<double>::infinity()};
    result.samples = static_cast<int64_t>(ratios.size());
    if (ratios.empty()) return result;
    std::sort(ratios.begin(), ratios.end());
    result.median = median_of(ratios);
    if (const int64_t out = left_out(result.samples); out >= 0) {
        result.low = ratios[static_cast<size_t>(out)];
        result.high = ratios[static_cast<size_t>(result.samples - 1 - out)];
    }
    return result;
}

Ratio geometric_mean(std::span<const Ratio> ratios) {
    if (ratios.empty()) return {.low = 0, .high = std::numeric_limits<double>::infinity()};
    double median = 0, low = 0, high = 0;
    int64_t samples = std::numeric_limits<int64_t>::max();
    for (const Ratio& ratio : ratios) {
        median += std::log(ratio.median), low += std::log(ratio.low), high += std::log(ratio.high);
        samples = std::min(samples, ratio.samples);
    }
    const auto count = static_cast<double>(ratios.size());
    return {std::exp(median / count), std::exp(low / count), std::exp(high / count), samples};
}

bool surely_above(const Ratio& ratio, double times_worse) { return ratio.low > times_worse; }
bool surely_below(const Ratio& ratio, double times_better) {
    return ratio.high > 0 && ratio.high < times_better;
}

}  // namespace attnc
