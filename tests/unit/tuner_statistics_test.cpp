#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/random.h"
#include "tuner/statistics.h"

namespace attnc {
namespace {

double uniform(Random& random) { return static_cast<double>(random.bits() >> 11) * 0x1p-53; }

// About normal, by the sum of uniform numbers.
double noise(Random& random, double deviation) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform(random);
    return std::exp(deviation * sum);
}

struct Rounds {
    std::vector<double> times, other;
};

Rounds rounds_of(Random& random, int count, double ratio, double deviation, double spikes, double slow_from) {
    Rounds rounds;
    for (int i = 0; i < count; ++i) {
        const double machine = i >= slow_from * count ? 1.7 : 1;
        const auto once = [&](double time) {
            const double spike = random.chance(spikes) ? 2 + 5 * uniform(random) : 1;
            return machine * time * noise(random, deviation) * spike;
        };
        rounds.times.push_back(once(ratio));
        rounds.other.push_back(once(1));
    }
    return rounds;
}

TEST(Median, IsTheMiddleOne) {
    EXPECT_EQ(median_of({3, 1, 2}), 2);
    EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
    EXPECT_EQ(median_of({7}), 7);
    EXPECT_EQ(median_of({}), 0);
}

TEST(RelativeSpread, DoesNotCareForASpike) {
    const std::vector<double> times = {10, 10.1, 9.9, 10.05, 1000, 9.95, 10};
    EXPECT_NEAR(relative_spread(times), 0.0074, 1e-4);
    EXPECT_EQ(relative_spread(std::vector<double>{5, 5, 5}), 0);
    EXPECT_EQ(relative_spread(std::vector<double>{}), 0);
}

// The interval misses the true ratio as rarely as it says, with spikes and with a machine that gets slow midway.
TEST(PairedRatio, HoldsTheTruthAsOftenAsItSays) {
    for (const int count : {9, 15, 31, 60}) {
        for (const double slow_from : {0.5, 2.0}) {
            Random random(static_cast<uint64_t>(count));
            int missed = 0;
            for (int i = 0; i < 2000; ++i) {
                const Rounds rounds = rounds_of(random, count, 0.9, 0.05, 0.1, slow_from);
                const Ratio ratio = paired_ratio(rounds.times, rounds.other);
                missed += ratio.low > 0.9 || ratio.high < 0.9 ? 1 : 0;
            }
            EXPECT_LT(missed, 2000 * (1 - kConfidence) * 1.5) << count << " rounds, slow from " << slow_from;
        }
    }
}

TEST(PairedRatio, NarrowsWithMoreRounds) {
    Random random(1);
    const Rounds few = rounds_of(random, 9, 1, 0.05, 0, 2), many = rounds_of(random, 100, 1, 0.05, 0, 2);
    const Ratio a = paired_ratio(few.times, few.other), b = paired_ratio(many.times, many.other);
    EXPECT_LT(b.high - b.low, (a.high - a.low) / 2);
}

TEST(PairedRatio, OfTooFewRoundsSaysNothingForSure) {
    const std::vector<double> slow(6, 5.0), fast(6, 1.0);
    const Ratio ratio = paired_ratio(slow, fast);
    EXPECT_EQ(ratio.median, 5);
    EXPECT_FALSE(surely_above(ratio, 1));
    EXPECT_FALSE(surely_below(paired_ratio(fast, slow), 1));
    const std::vector<double> seven(7, 5.0), ones(7, 1.0);
    EXPECT_TRUE(surely_above(paired_ratio(seven, ones), 4.9));
}

// A clock that jumps gives times that are none.
TEST(PairedRatio, LeavesOutTimesThatAreNone) {
    const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
    const std::vector<double> times = {2, 0, -3, nan, infinity, 2, 2};
    const std::vector<double> other = {1, 1, 1, 1, 1, 1};
    const Ratio ratio = paired_ratio(times, other);
    EXPECT_EQ(ratio.samples, 2);
    EXPECT_EQ(ratio.median, 2);
    EXPECT_EQ(paired_ratio({}, {}).samples, 0);
    EXPECT_FALSE(surely_below(paired_ratio({}, {}), 1));
}

TEST(PairedRatio, TakesAnyNumberOfRounds) {
    for (const size_t count : {size_t{1000}, size_t{5000}}) {
        const std::vector<double> times(count, 3.0), other(count, 1.5);
        const Ratio ratio = paired_ratio(times, other);
        EXPECT_EQ(ratio.low, 2);
        EXPECT_EQ(ratio.high, 2);
    }
}

TEST(GeometricMean, IsOfRatios) {
    const std::vector<Ratio> ratios = {{2, 1, 4, 10}, {0.5, 0.25, 1, 7}};
    const Ratio mean = geometric_mean(ratios);
    EXPECT_DOUBLE_EQ(mean.median, 1);
    EXPECT_DOUBLE_EQ(mean.low, 0.5);
    EXPECT_DOUBLE_EQ(mean.high, 2);
    EXPECT_EQ(mean.samples, 7);
    EXPECT_FALSE(surely_below(geometric_mean({}), 1));
}

TEST(Sure, NeedsTheWholeInterval) {
    EXPECT_TRUE(surely_below({0.9, 0.88, 0.93, 20}, 0.95));
    EXPECT_FALSE(surely_below({0.9, 0.88, 0.96, 20}, 0.95));
    EXPECT_TRUE(surely_above({1.2, 1.1, 1.3, 20}, 1.05));
    EXPECT_FALSE(surely_above({1.2, 1.0, 1.3, 20}, 1.05));
}

}  // namespace
}  // namespace attnc
