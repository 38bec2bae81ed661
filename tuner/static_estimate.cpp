#include "tuner/static_estimate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "runtime/kernel_abi.h"
#include "runtime/rows.h"
#include "support/random.h"

namespace attnc {

namespace {

// Of the cores since about 2014: two multiply-adds and two loads in a cycle, a multiply-add's result after four.
constexpr double kMultiplyAddsPerCycle = 2, kLoadsPerCycle = 2, kLatency = 4;

double as_double(int64_t value) { return static_cast<double>(value); }

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Cycles for a multiply-add of a tile of rows x vectors accumulators: bound by units, by loads, or by too few sums.
double tile_cycles(int64_t rows, int64_t vectors, const VectorUnit& unit) {
    const double accumulators = as_double(rows * vectors);
    const double units = (unit.fma ? 1 : 2) / kMultiplyAddsPerCycle;
    const double loads = as_double(rows + vectors) / accumulators / kLoadsPerCycle;
    const double latency = (unit.fma ? kLatency : 2 * kLatency) / accumulators;
    // Units and loads share the width at which instructions enter.
    return std::max({units, loads, latency}) + 0.15 * loads;
}

// What is worse where more than its share of a cache is in use: a quarter for each time that it is exceeded.
double cache_factor(double bytes, int64_t cache_bytes) {
    const double share = 0.75 * as_double(cache_bytes);
    return bytes <= share ? 1 : 1 + 0.25 * std::min(std::log2(bytes / share) + 1, 4.0);
}

// Rows computed over rows there.
double row_waste(int64_t rows, int64_t tile, int64_t tail) {
    return as_double(row_steps(rows, tile, tail).made) / as_double(std::max<int64_t>(rows, 1));
}

struct Situation {
    const Config& config;
    VectorUnit unit;
    Sizes sizes;
    CacheSizes caches;
};

double project_cycles(const ProjectParams& params, const ProjectParams& tail, int64_t panel, int64_t depth,
                      int64_t columns, const Situation& at) {
    const int64_t rows = at.sizes.batch * at.sizes.seq_q;
    const double inner = tile_cycles(params.rows, panel / at.unit.lanes, at.unit);
    const double waste =
        row_waste(rows, params.rows, tail.rows) * as_double(round_up(columns, panel)) / as_double(columns);
    // A panel stays in L2 while rows stream past; the rows of a tile in L1.
    const double l2 = cache_factor(as_double(panel * depth) * 4, at.caches.l2_bytes);
    const double l1 = cache_factor(as_double(params.rows * depth) * 4, at.caches.l1d_bytes);
    // Stores and the loop's begin and end, once for each tile.
    const double ends = 1 + 8 / as_double(depth);
    return inner * waste * l2 * (1 + (l1 - 1) / 4) * ends;
}

double attend_cycles(const AttendParams& params, int64_t tile_kv, const Situation& at) {
    const int64_t keys = std::max<int64_t>(at.sizes.seq_kv, 1),
                  queries = std::max<int64_t>(at.sizes.seq_q, 1);
    const int64_t head = padded_head(at.config.head_dim), v_head = padded_head(at.config.v_head_dim);
    const int64_t lanes = 16 * params.q_vectors;
    const double idle = as_double(lanes) / as_double(params.rows);
    const double waste = as_double(round_up(queries, params.rows)) / as_double(queries);
    // Whole tiles of keys, then the rest in small ones.
    const double small =
        as_double(std::min(keys, tile_kv) % params.key_rows) / as_double(std::min(keys, tile_kv));
    const double scores = (1 - small) * tile_cycles(params.key_rows, lanes / at.unit.lanes, at.unit) +
                          small * tile_cycles(params.tail_rows, lanes / at.unit.lanes, at.unit);
    const double context = tile_cycles(params.context_rows, params.context_columns / at.unit.lanes, at.unit);
    // An exponential takes about 15 instructions of a vector, once for each score.
    const double exponential = 15 / 2.0 / as_double(head + v_head);
    const double block = as_double(std::min(keys, tile_kv));
    const double l2 = cache_factor(4 * block * as_double(head + v_head + lanes), at.caches.l2_bytes);
    const double blocks = as_double((keys + tile_kv - 1) / tile_kv);
    const double merges = 1 + 0.02 * (blocks - 1);
    return waste * l2 * merges *
           (idle * scores * as_double(head) / as_double(head + v_head) + idle * exponential +
            context * as_double(v_head) / as_double(head + v_head));
}

// Few rows: what is loaded once for each row of a block decides.
double decode_cycles(const DecodeParams& params, int64_t split_kv, const Situation& at) {
    const int64_t group = at.config.num_heads / at.config.num_kv_heads;
    const int64_t rows = std::max<int64_t>(at.sizes.seq_q, 1) * group;
    const bool single = rows == 1;
    const double scores =
        single ? tile_cycles(1, 1, at.unit) : tile_cycles(params.rows, params.keys, at.unit);
    const double context = single ? tile_cycles(1, params.single_columns / at.unit.lanes, at.unit)
                                  : tile_cycles(params.rows, params.columns / at.unit.lanes, at.unit);
    const double waste = single ? 1 : as_double(round_up(rows, params.rows)) / as_double(rows);
    const double splits = std::ceil(as_double(std::max<int64_t>(at.sizes.seq_kv, 1)) / as_double(split_kv));
    return waste * (scores + context) * (1 + 0.01 * (splits - 1));
}

double cycles_of(const CpuSchedule& schedule, const std::string& part, const Situation& at) {
    const CpuParams& params = schedule.params;
    const Config& config = at.config;
    if (part == "project_heads") {
        return project_cycles(params.project_heads, params.project_heads_tail, schedule.layout.panel,
                              config.d_model, config.num_heads * padded_head(config.head_dim), at);
    }
    if (part == "project_out") {
        return project_cycles(params.project_out, params.project_out_tail, schedule.layout.out_panel,
                              config.num_heads * config.v_head_dim, config.d_model, at);
    }
    if (part == "attend_decode") return decode_cycles(params.attend_decode, schedule.layout.split_kv, at);
    const std::map<std::string, const AttendParams*> kernels = {{"attend", &params.attend},
                                                                {"attend_narrow", &params.attend_narrow},
                                                                {"attend_single", &params.attend_single},
                                                                {"attend_masked", &params.attend_masked},
                                                                {"attend_guarded", &params.attend_guarded},
                                                                {"attend_probs", &params.attend_probs}};
    // Without the kernel the queries are one of a wider kernel's.
    const AttendParams* own = kernels.at(part);
    if (own->rows == 0) own = &params.attend;
    return attend_cycles(*own, schedule.layout.tile_kv, at);
}

}  // namespace

double static_estimate(const CpuSchedule& schedule, const SearchPart& part, const Config& config,
                       std::string_view target, const std::vector<Sizes>& sizes, const CacheSizes& caches) {
    double sum = 0;
    for (const Sizes& size : sizes)
        sum += std::log(cycles_of(schedule, part.name, {config, vector_unit(target), size, caches}));
    return std::exp(sum / as_double(static_cast<int64_t>(std::max<size_t>(sizes.size(), 1))));
}

std::vector<SearchPoint> ranked_points(const SearchSpace& space, const std::vector<SearchPoint>& points,
                                       const Config& config, std::string_view target,
                                       const std::vector<Sizes>& sizes, const CacheSizes& caches) {
    std::vector<double> cost;
    cost.reserve(points.size());
    for (const SearchPoint& point : points)
        cost.push_back(static_estimate(space.schedule(point), space.part(), config, target, sizes, caches));
    std::vector<size_t> order(points.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return cost[a] < cost[b]; });
    std::vector<SearchPoint> ranked;
    ranked.reserve(points.size());
    for (const size_t i : order) ranked.push_back(points[i]);
    return ranked;
}

std::vector<SearchPoint> first_candidates(const SearchSpace& space, const std::vector<SearchPoint>& ranked,
                                          size_t count, uint64_t seed) {
    std::map<int64_t, std::vector<SearchPoint>> by_layout;
    for (const SearchPoint& point : ranked)
        by_layout[space.part().layout_field.empty() ? 0 : point.front()].push_back(point);
    // Of the Layout values those first whose best point is estimated best.
    std::vector<std::vector<SearchPoint>*> groups;
    for (const SearchPoint& point : ranked) {
        std::vector<SearchPoint>* group = &by_layout[space.part().layout_field.empty() ? 0 : point.front()];
        if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
        if (groups.size() == by_layout.size()) break;
    }
    std::vector<SearchPoint> chosen;
    const size_t estimated = count - count / 4;
    for (size_t place = 0; chosen.size() < std::min(estimated, ranked.size()); ++place) {
        for (const auto* group : groups) {
            if (place < group->size() && chosen.size() < estimated) chosen.push_back((*group)[place]);
        }
    }
    Random random(seed);
    for (size_t tries = 0; chosen.size() < std::min(count, ranked.size()) && tries < 20 * count; ++tries) {
        const SearchPoint& drawn = random.pick(std::span<const SearchPoint>(ranked));
        if (std::find(chosen.begin(), chosen.end(), drawn) == chosen.end()) chosen.push_back(drawn);
    }
    return chosen;
}

}  // namespace attnc
