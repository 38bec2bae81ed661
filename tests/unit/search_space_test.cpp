// The space that the tuner searches: valid points only, all of them, and steps between them.
#include "schedules/search_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/random.h"

namespace attnc {
namespace {

// On the instruction set of that index: each has a configuration of another kind.
constexpr std::pair<size_t, const char*> kConfigs[] = {
    {0, "d512_h8_f32_cache"}, {1, "d480_h6_kv2_hd80_vhd48_f32_cache_scores"}, {2, "d64_h2_f32_noin_noout"}};

bool is_valid(const CpuSchedule& schedule, const Config& config, const char* target) {
    try {
        check_schedule(schedule, config, target);
        return true;
    } catch (const ConfigError&) {
        return false;
    }
}

template <typename Check>
void for_each_space(const Check& check) {
    for (const auto& [index, text] : kConfigs) {
        const char* const target = kCpuTargets[index];
        const Config config = parse_config(text);
        const CpuSchedule base = default_schedule(config, target);
        for (const SearchPart& part : search_parts(config)) {
            if (part.name == "attend_guarded") continue;  // of attend_masked's shape
            SCOPED_TRACE(std::string(text) + " " + part.name + " on " + target);
            check(SearchSpace(config, target, part, base, {{1, 128, 128}}), config, target);
        }
    }
}

SearchSpace space_of(const char* part_name, const char* config_text = "d512_h8_f32_cache",
                     const std::vector<Sizes>& sizes = {}, const char* overrides = "", size_t target = 0) {
    const Config config = parse_config(config_text);
    const CpuSchedule base = parse_schedule(overrides, default_schedule(config, kCpuTargets[target]));
    for (const SearchPart& part : search_parts(config)) {
        if (part.name == part_name) return SearchSpace(config, kCpuTargets[target], part, base, sizes);
    }
    throw std::logic_error("no such part");
}

TEST(SearchParts, TogetherHoldEveryFieldOnce) {
    const Config config = parse_config("d512_h8_f32_cache_scores");
    std::vector<std::string> searched, all;
    for (const SearchPart& part : search_parts(config)) {
        searched.insert(searched.end(), part.fields.begin(), part.fields.end());
        if (!part.layout_field.empty()) searched.push_back(part.layout_field);
    }
    for (const ScheduleField& field : fields_of(CpuSchedule{})) all.push_back(field.name);
    std::sort(searched.begin(), searched.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(searched, all);
}

TEST(SearchParts, AreThoseOfKernelsThatTheLibraryHas) {
    std::set<std::string> names;
    for (const SearchPart& part : search_parts(parse_config("d64_h2_f32_noin_noout_nomask_noprobs")))
        names.insert(part.name);
    EXPECT_EQ(names, (std::set<std::string>{"attend", "attend_narrow", "attend_single", "attend_guarded"}));
}

TEST(SearchSpace, HasTheStartAndValidPointsOnly) {
    for_each_space([](const SearchSpace& space, const Config& config, const char* target) {
        const SearchPoint start = space.point_of(default_schedule(config, target));
        const auto& points = space.points();
        EXPECT_TRUE(std::binary_search(points.begin(), points.end(), start));
        for (const SearchPoint& point : points) {
            ASSERT_TRUE(is_valid(space.schedule(point), config, target)) << space.text(point);
        }
        EXPECT_EQ(std::adjacent_find(points.begin(), points.end()), points.end());
    });
}

// Values drawn for each field on its own: what check_schedule accepts is a point of the space, and nothing else is.
TEST(SearchSpace, HasWhateverTheRulesAccept) {
    size_t accepted = 0;
    for_each_space([&](const SearchSpace& space, const Config& config, const char* target) {
        Random random(5);
        const auto& points = space.points();
        for (int i = 0; i < 1000; ++i) {
            SearchPoint point = random.pick(std::span<const SearchPoint>(points));
            for (const SearchField& field : space.fields()) {
                const auto at = static_cast<size_t>(&field - space.fields().data());
                if (random.chance(0.3)) point[at] = random.pick(std::span<const int64_t>(field.values));
            }
            const bool canonical = space.fault(point).find("leaves the other fields") == std::string::npos;
            const bool valid = canonical && is_valid(space.schedule(point), config, target);
            ASSERT_EQ(std::binary_search(points.begin(), points.end(), point), valid) << space.text(point);
            ASSERT_EQ(space.fault(point).empty(), valid);
            accepted += valid ? 1 : 0;
        }
    });
    EXPECT_GT(accepted, 2000U);
}

TEST(SearchSpace, HasEveryPairOfPanelAndRows) {
    const SearchSpace space = space_of("project_heads");
    const Config config = parse_config("d512_h8_f32_cache");
    size_t valid = 0;
    for (const int64_t panel : space.fields()[0].values) {
        for (const int64_t rows : space.fields()[1].values) {
            for (const int64_t tail : space.fields()[2].values)
                valid += is_valid(space.schedule({panel, rows, tail}), config, kCpuTargets[0]) ? 1 : 0;
        }
    }
    EXPECT_EQ(space.points().size(), valid);
}

TEST(SearchSpace, SaysWhyAPointIsNone) {
    EXPECT_EQ(space_of("project_heads").fault({64, 20, 5}),
              "project_heads: the tile of 20 x 64 floats needs 85 vector registers, 32 are there");
    EXPECT_EQ(space_of("project_heads").fault({64, 6}), "a point of another space");
    EXPECT_EQ(space_of("attend_narrow").fault({1, 0, 12, 4, 8, 32}),
              "attend_narrow.rows 0 leaves the other fields as they are");
}

TEST(SearchSpace, TextNamesTheFieldsThatDiffer) {
    const SearchSpace space = space_of("project_out");
    const SearchPoint point = {48, 8, 0};
    EXPECT_EQ(space.text(point), "out_panel:48,project_out.rows:8,project_out_tail.rows:0");
    const CpuSchedule base = default_schedule(parse_config("d512_h8_f32_cache"), kCpuTargets[0]);
    EXPECT_EQ(parse_schedule(space.text(point), base), space.schedule(point));
    EXPECT_EQ(space.point_of(space.schedule(point)), point);
}

TEST(SearchSpace, MayDoWithoutAnOptionalKernelInOneWay) {
    size_t absent = 0;
    const SearchSpace single = space_of("attend_single"), attend = space_of("attend");
    for (const SearchPoint& point : single.points()) absent += point[1] == 0 ? 1 : 0;
    EXPECT_EQ(absent, 1U);
    for (const SearchPoint& point : attend.points()) ASSERT_GT(point[2], 0);
}

TEST(SearchSpace, KeepsOrderBetweenTheFormsOfAttend) {
    const SearchSpace attend = space_of("attend"), narrow = space_of("attend_narrow");
    for (const SearchPoint& point : attend.points()) ASSERT_GT(point[2], 32);
    for (const SearchPoint& point : narrow.points())
        ASSERT_TRUE(point[1] == 0 || (point[1] > 16 && point[1] < 64));
}

TEST(SearchSpace, LeavesOutTilesLongerThanAnyCall) {
    const auto tiles = [](int64_t keys, const char* base) {
        return space_of("attend", "d512_h8_f32_cache", {{1, keys, keys}}, base).fields()[0].values;
    };
    EXPECT_EQ(tiles(128, ""), (std::vector<int64_t>{2048}));
    EXPECT_EQ(tiles(1000, ""), (std::vector<int64_t>{256, 512, 2048}));
    EXPECT_EQ(tiles(3000, "tile_kv:1024"), (std::vector<int64_t>{256, 512, 1024, 2048, 3008}));
}

TEST(Neighbours, AreValidPointsThatDifferInTwoFieldsAtMost) {
    for_each_space([](const SearchSpace& space, const Config& config, const char* target) {
        const SearchPoint start = space.point_of(default_schedule(config, target));
        const std::vector<SearchPoint> found = space.neighbours(start);
        EXPECT_GE(found.size(), space.part().optional ? 0U : 1U);
        for (const SearchPoint& point : found) {
            EXPECT_EQ(space.fault(point), "");
            size_t moved = 0;
            for (size_t i = 0; i < point.size(); ++i) moved += point[i] != start[i] ? 1 : 0;
            EXPECT_TRUE(moved == 1 || moved == 2) << space.text(point);
        }
    });
}

// Step by step every point is reached from the smallest tile.
TEST(Neighbours, ConnectTheSpace) {
    for (const char* part : {"project_heads", "attend_decode"}) {
        for (const size_t target : {size_t{0}, size_t{1}, size_t{2}}) {
            const SearchSpace space = space_of(part, "d256_h8_f32_cache", {{1, 1, 64}}, "", target);
            std::set<SearchPoint> reached = {space.points().front()};
            std::vector<SearchPoint> open(reached.begin(), reached.end());
            while (!open.empty()) {
                const SearchPoint point = open.back();
                open.pop_back();
                for (const SearchPoint& next : space.neighbours(point)) {
                    if (reached.insert(next).second) open.push_back(next);
                }
            }
            EXPECT_EQ(reached.size(), space.points().size()) << part << " on " << kCpuTargets[target];
        }
    }
}

}  // namespace
}  // namespace attnc
