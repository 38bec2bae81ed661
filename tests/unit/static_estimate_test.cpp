#include "tuner/static_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace attnc {
namespace {

const Config& config() {
    static const Config usual = parse_config("d512_h8_f32_cache");
    return usual;
}
const std::vector<Sizes> kSizes = {{1, 128, 128}, {32, 50, 50}};

SearchPart part_of(const std::string& name) {
    for (const SearchPart& part : search_parts(config())) {
        if (part.name == name) return part;
    }
    throw std::logic_error(name);
}

double estimate(const std::string& part, const std::string& overrides, size_t target = 0,
                const std::vector<Sizes>& sizes = kSizes) {
    const CpuSchedule schedule = parse_schedule(overrides, default_schedule(config(), kCpuTargets[target]));
    return static_estimate(schedule, part_of(part), config(), kCpuTargets[target], sizes,
                           {48 << 10, 2 << 20});
}

TEST(StaticEstimate, FindsTilesThatFillTheRegistersCheaper) {
    EXPECT_GT(estimate("project_heads", "project_heads.rows:1,project_heads_tail.rows:0"),
              2 * estimate("project_heads", ""));
    EXPECT_GT(estimate("project_out", "out_panel:16,project_out.rows:1,project_out_tail.rows:0"),
              3 * estimate("project_out", ""));
    EXPECT_GT(estimate("attend", "attend.key_rows:1,attend.tail_rows:1"), 1.3 * estimate("attend", ""));
    EXPECT_GT(estimate("attend_decode", "attend_decode.rows:1,attend_decode.keys:16", 0, {{1, 4, 512}}),
              estimate("attend_decode", "", 0, {{1, 4, 512}}));
}

TEST(StaticEstimate, CountsLanesAndRowsInVain) {
    EXPECT_GT(estimate("attend", "attend.rows:40"), 1.15 * estimate("attend", "", 0, {{1, 128, 128}}));
    EXPECT_GT(estimate("project_heads", "project_heads_tail.rows:0", 0, {{1, 7, 7}}),
              1.3 * estimate("project_heads", "project_heads_tail.rows:1", 0, {{1, 7, 7}}));
}

TEST(StaticEstimate, CountsWhatDoesNotFitTheCache) {
    const std::vector<Sizes> deep = {{1, 64, 8192}};
    EXPECT_GT(estimate("attend", "tile_kv:8192", 0, deep),
              1.05 * estimate("attend", "tile_kv:1024", 0, deep));
}

TEST(RankedPoints, PutDefaultsNearTheTop) {
    for (size_t target = 0; target < 3; ++target) {
        for (const char* name : {"project_heads", "project_out", "attend"}) {
            const CpuSchedule base = default_schedule(config(), kCpuTargets[target]);
            const SearchSpace space(config(), kCpuTargets[target], part_of(name), base, kSizes);
            const auto ranked =
                ranked_points(space, space.points(), config(), kCpuTargets[target], kSizes, {});
            ASSERT_EQ(ranked.size(), space.points().size());
            const auto at = std::find(ranked.begin(), ranked.end(), space.point_of(base)) - ranked.begin();
            EXPECT_LT(static_cast<double>(at), 0.25 * static_cast<double>(ranked.size()))
                << name << " on " << kCpuTargets[target];
        }
    }
}

TEST(FirstCandidates, AreOfEveryLayoutAndSomeOfThemDrawn) {
    const CpuSchedule base = default_schedule(config(), kCpuTargets[0]);
    const SearchSpace space(config(), kCpuTargets[0], part_of("project_heads"), base, kSizes);
    const auto ranked = ranked_points(space, space.points(), config(), kCpuTargets[0], kSizes, {});
    const auto chosen = first_candidates(space, ranked, 24, 1);
    EXPECT_EQ(chosen.size(), 24U);
    EXPECT_EQ(std::set<SearchPoint>(chosen.begin(), chosen.end()).size(), 24U);
    EXPECT_EQ(chosen.front(), ranked.front());
    std::set<int64_t> panels, all;
    for (const SearchPoint& point : chosen) panels.insert(point[0]);
    for (const SearchPoint& point : ranked) all.insert(point[0]);
    EXPECT_EQ(panels, all);
    EXPECT_EQ(chosen, first_candidates(space, ranked, 24, 1));
    EXPECT_NE(chosen, first_candidates(space, ranked, 24, 2));
    EXPECT_EQ(first_candidates(space, {ranked[0], ranked[1]}, 24, 1).size(), 2U);
}

}  // namespace
}  // namespace attnc
