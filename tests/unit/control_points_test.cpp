// The points of controls: that a draw is fair, and that a detuned start is as bad as it says.
#include "tuner/control_points.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace attnc {
namespace {

std::vector<SearchPoint> numbers(int64_t count) {
    std::vector<SearchPoint> points;
    for (int64_t i = 0; i < count; ++i) points.push_back({i});
    return points;
}

TEST(DrawnPoints, AreSoManyDifferentOnesWithoutTheIncumbent) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
        const std::vector<SearchPoint> drawn = drawn_points(numbers(30), {7}, 20, seed);
        EXPECT_EQ(std::set<SearchPoint>(drawn.begin(), drawn.end()).size(), 20U);
        EXPECT_EQ(std::count(drawn.begin(), drawn.end(), SearchPoint{7}), 0);
    }
}

TEST(DrawnPoints, AreAllWhereThereAreFewer) {
    std::vector<SearchPoint> drawn = drawn_points(numbers(10), {7}, 200, 1);
    std::sort(drawn.begin(), drawn.end());
    std::vector<SearchPoint> all = numbers(10);
    std::erase(all, SearchPoint{7});
    EXPECT_EQ(drawn, all);
    EXPECT_TRUE(drawn_points(numbers(1), {0}, 200, 1).empty());
    EXPECT_TRUE(drawn_points({}, {0}, 200, 1).empty());
}

TEST(DrawnPoints, AreTheSameForASeedAndOthersForAnother) {
    EXPECT_EQ(drawn_points(numbers(100), {0}, 20, 3), drawn_points(numbers(100), {0}, 20, 3));
    EXPECT_NE(drawn_points(numbers(100), {0}, 20, 3), drawn_points(numbers(100), {0}, 20, 4));
}

// Of 20000 draws of 3 from 9 each point is in a third, and each is the first in a ninth: within five standard deviations.
TEST(DrawnPoints, AreDrawnUniformly) {
    constexpr int kDraws = 20000;
    std::map<SearchPoint, int> taken, first;
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
        const std::vector<SearchPoint> drawn = drawn_points(numbers(10), {9}, 3, seed);
        for (const SearchPoint& point : drawn) ++taken[point];
        ++first[drawn.front()];
    }
    const auto near = [](int count, double share) {
        return std::fabs(count - kDraws * share) < 5 * std::sqrt(kDraws * share * (1 - share));
    };
    for (int64_t i = 0; i < 9; ++i) {
        EXPECT_TRUE(near(taken[{i}], 3.0 / 9)) << i << ": " << taken[{i}];
        EXPECT_TRUE(near(first[{i}], 1.0 / 9)) << i << ": " << first[{i}];
    }
}

class Detuned : public testing::TestWithParam<const char*> {};

TEST_P(Detuned, HasTheSmallestRegisterTile) {
    const Config config = parse_config("d512_h8_f32_cache");
    const CpuSchedule usual = default_schedule(config, GetParam());
    for (const SearchPart& part : search_parts(config)) {
        SCOPED_TRACE(part.name);
        const SearchSpace space(config, GetParam(), part, usual, {});
        const SearchPoint point = detuned_point(space, space.point_of(usual));
        EXPECT_EQ(space.fault(point), "");
        const CpuSchedule schedule = space.schedule(point);
        EXPECT_NE(schedule, usual);
        EXPECT_EQ(schedule.layout.tile_kv, usual.layout.tile_kv);
        EXPECT_EQ(schedule.layout.split_kv, usual.layout.split_kv);
    }
}

INSTANTIATE_TEST_SUITE_P(On, Detuned, testing::ValuesIn(kCpuTargets));

std::string detuned_text(const std::string& name) {
    const Config config = parse_config("d512_h8_f32");
    const std::string target = "x86-64-linux-avx512_skylake";
    const CpuSchedule usual = default_schedule(config, target);
    for (const SearchPart& part : search_parts(config)) {
        if (part.name != name) continue;
        const SearchSpace space(config, target, part, usual, {});
        return space.text(detuned_point(space, space.point_of(usual)));
    }
    return "no such part";
}

TEST(DetunedPoint, IsOneRowOfOneVector) {
    EXPECT_EQ(detuned_text("project_out"), "out_panel:16,project_out.rows:1,project_out_tail.rows:0");
    EXPECT_EQ(
        detuned_text("attend_masked"),
        "attend_masked.q_vectors:1,attend_masked.rows:16,attend_masked.key_rows:1,attend_masked.tail_rows:1,"
        "attend_masked.context_rows:1,attend_masked.context_columns:16");
    // Wider than the kernels for fewer queries, as the rules ask.
    EXPECT_EQ(detuned_text("attend"),
              "tile_kv:2048,attend.q_vectors:3,attend.rows:48,attend.key_rows:1,attend.tail_rows:1,"
              "attend.context_rows:1,attend.context_columns:16");
}

}  // namespace
}  // namespace attnc
