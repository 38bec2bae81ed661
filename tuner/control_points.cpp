#include "tuner/control_points.h"

#include <algorithm>
#include <string>
#include <utility>

#include "support/random.h"

namespace attnc {

namespace {

// Queries in a vector of attention's tile.
constexpr int64_t kVectorQueries = 16;

// Whether all but the register tile is as it was: blocks of keys, and the queries of an optional kernel. A tile's own queries
// fill its vectors: fewer would leave lanes idle, which is another fault than a small tile.
bool keeps_the_rest(const SearchSpace& space, const SearchPoint& point, const SearchPoint& tuned) {
    int64_t vectors = 0;
    for (size_t i = 0; i < point.size(); ++i) {
        const std::string& field = space.fields()[i].name;
        if (field.ends_with(".q_vectors")) vectors = point[i];
        if ((field == "tile_kv" || field == "split_kv") && point[i] != tuned[i]) return false;
        if (vectors == 0 || !field.ends_with(".rows")) continue;
        const bool absent = space.part().optional && tuned[i] == 0;
        const int64_t wanted =
            space.part().optional ? tuned[i] : std::min(tuned[i], vectors * kVectorQueries);
        if (absent ? point[i] == 0 : point[i] != wanted) return false;
    }
    return true;
}

}  // namespace

std::vector<SearchPoint> drawn_points(std::vector<SearchPoint> points, const SearchPoint& without,
                                      size_t count, uint64_t seed) {
    std::erase(points, without);
    Random random(seed);
    count = std::min(count, points.size());
    const auto last = static_cast<int64_t>(points.size()) - 1;
    for (size_t i = 0; i < count; ++i)
        std::swap(points[i], points[static_cast<size_t>(random.between(static_cast<int64_t>(i), last))]);
    points.resize(count);
    return points;
}

// Points ascend, so that the first one of those has the least values.
SearchPoint detuned_point(const SearchSpace& space, const SearchPoint& tuned) {
    for (const SearchPoint& point : space.points()) {
        if (keeps_the_rest(space, point, tuned)) return point;
    }
    return space.points().front();
}

}  // namespace attnc
