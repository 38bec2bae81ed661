#include "compiler/kernel_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "runtime/query_tiles.h"

namespace attnc {

namespace {

// More keys than any rule of the runtime looks at.
constexpr int64_t kManyKeys = 1 << 20;
// A task takes at most so many tiles of queries, or a half, a quarter, ... of them.
constexpr int64_t kMostTiles = 8;

attnc_layer layer_of(const Config& config, const CpuSchedule& schedule) {
    attnc_layer layer = {};
    layer.config.flags = config_flags(config);
    layer.layout.tile_kv = schedule.layout.tile_kv;
    layer.layout.tile_q = schedule.params.attend.rows;
    layer.layout.tile_q_narrow = schedule.params.attend_narrow.rows;
    layer.layout.tile_q_single = schedule.params.attend_single.rows;
    return layer;
}

Item item_of(int64_t queries, int64_t keys, bool diagonal) {
    Item item = {};
    item.q_length = static_cast<int32_t>(queries);
    item.kv_length = static_cast<int32_t>(keys);
    item.first_key = kNoFirstKey;
    item.last_key = diagonal ? static_cast<int32_t>(keys - queries + 1) : kNoLastKey;
    return item;
}

// The kernel that takes the first of `rows` queries, which all see all keys.
int kernel_of_rows(const attnc_layer& layer, int64_t rows) {
    const Item item = item_of(rows, kManyKeys, false);
    return next_query_tiles(layer, {&item, 0, 0, rows}, 0, kManyKeys).kernel;
}

// The kernel of a tile of queries on the diagonal of so many keys.
int kernel_of_diagonal(const attnc_layer& layer, int64_t keys) {
    const int64_t rows = layer.layout.tile_q;
    const Item item = item_of(rows, keys, true);
    return next_query_tiles(layer, {&item, 0, 0, rows}, 0, keys).kernel;
}

// The most keys with which that is what it is with `keys`.
int64_t most_keys_of_diagonal(const attnc_layer& layer, int64_t keys) {
    const int kernel = kernel_of_diagonal(layer, keys);
    int64_t same = keys, other = kManyKeys;
    while (other - same > 1) {
        const int64_t middle = same + (other - same) / 2;
        (kernel_of_diagonal(layer, middle) == kernel ? same : other) = middle;
    }
    return same;
}

// What attention of queries row .. row + rows runs, block of keys after block.
void add_kernels(const attnc_layer& layer, const Item& item, int64_t row, int64_t rows,
                 std::set<int>& kernels) {
    const KeyInterval seen = visible_keys(item, row, row + rows);
    const int64_t tile = layer.layout.tile_kv;
    for (int64_t first = seen.first / tile * tile; first < seen.end; first += tile) {
        for (int64_t done = 0; done < rows;) {
            const QueryRange rest = {&item, 0, row + done, rows - done};
            const QueryTiles tiles = next_query_tiles(layer, rest, first, std::min(first + tile, seen.end));
            kernels.insert(tiles.kernel);
            done += tiles.rows;
        }
    }
}

void add_projection(const char* kernel, int64_t rows, int64_t tail_rows, std::vector<KernelForm>& forms) {
    forms.push_back({kernel, fmt::format("rows of tokens in steps of {}", rows)});
    if (tail_rows == 0) return;
    forms.push_back({fmt::format("{}_tail", kernel),
                     fmt::format("the last rows in steps of {}, where fewer overhang then", tail_rows)});
}

}  // namespace

std::vector<KernelForm> kernel_forms(const Config& config, const CpuSchedule& schedule) {
    const attnc_layer layer = layer_of(config, schedule);
    const CpuParams& params = schedule.params;
    std::vector<KernelForm> forms;
    if (config.in_proj)
        add_projection("project_heads", params.project_heads.rows, params.project_heads_tail.rows, forms);
    if (config.out_proj)
        add_projection("project_out", params.project_out.rows, params.project_out_tail.rows, forms);
    if (config.cache) {
        forms.push_back({kernel_name(ATTNC_KERNEL_ATTEND_DECODE),
                         fmt::format("items of up to {} queries", ATTNC_DECODE_QUERIES)});
    }
    for (int64_t first = 1; first <= layer.layout.tile_q;) {
        const int kernel = kernel_of_rows(layer, first);
        int64_t last = first;
        while (last < layer.layout.tile_q && kernel_of_rows(layer, last + 1) == kernel) ++last;
        forms.push_back({kernel_name(kernel), last == layer.layout.tile_q
                                                  ? fmt::format("{} and more queries of an item", first)
                                                  : fmt::format("{} to {} queries of an item", first, last)});
        first = last + 1;
    }
    for (int64_t keys = layer.layout.tile_q; kernel_of_diagonal(layer, keys) != ATTNC_KERNEL_ATTEND; ++keys) {
        const int kernel = kernel_of_diagonal(layer, keys);
        keys = most_keys_of_diagonal(layer, keys);
        forms.push_back({kernel_name(kernel),
                         fmt::format("any number of queries on a diagonal with up to {} keys", keys)});
    }
    return forms;
}

std::vector<std::string> attention_at(const Config& config, const CpuSchedule& schedule, const Sizes& sizes) {
    if (config.cache && sizes.seq_q <= ATTNC_DECODE_QUERIES) return {kernel_name(ATTNC_KERNEL_ATTEND_DECODE)};
    const attnc_layer layer = layer_of(config, schedule);
    std::set<int> kernels;
    if (sizes.seq_q > std::numeric_limits<int32_t>::max() ||
        sizes.seq_kv > std::numeric_limits<int32_t>::max())
        return {};  // too large for an item
    const Item item = item_of(sizes.seq_q, sizes.seq_kv, config.causal);
    for (int64_t tiles = 1; tiles <= kMostTiles; tiles *= 2) {
        const int64_t step = tiles * layer.layout.tile_q;
        for (int64_t row = 0; row < sizes.seq_q; row += step) {
            add_kernels(layer, item, row, std::min(step, sizes.seq_q - row), kernels);
        }
    }
    std::vector<std::string> names;
    names.reserve(kernels.size());
    for (const int kernel : kernels) names.emplace_back(kernel_name(kernel));
    return names;
}

}  // namespace attnc
