#include "compiler/brief_sizes.h"

#include <algorithm>

namespace attnc {

namespace {

constexpr int64_t kProjectedRows = 512, kQueries = 128;
constexpr int64_t kTileRows = 64;  // queries of the widest tile

// About `most` rows of the `rows` that an item has, or all.
int64_t fewer_rows(int64_t rows, int64_t most) { return rows <= most ? rows : most + rows % kTileRows; }

int64_t fewer_items(const Sizes& sizes, int64_t rows) {
    return std::clamp<int64_t>(rows / std::max<int64_t>(sizes.seq_q, 1), 1, sizes.batch);
}

Sizes brief(TunedWork work, const Sizes& sizes) {
    switch (work) {
        case TunedWork::kProjectInputs:
        case TunedWork::kProjectOutput:
            return {fewer_items(sizes, kProjectedRows), fewer_rows(sizes.seq_q, kProjectedRows),
                    fewer_rows(sizes.seq_kv, kProjectedRows)};
        case TunedWork::kAttend:
        case TunedWork::kAttendMasked:
        case TunedWork::kAttendProbs:
            return {fewer_items(sizes, kQueries), fewer_rows(sizes.seq_q, kQueries), sizes.seq_kv};
        case TunedWork::kCall:
            break;
    }
    return sizes;
}

}  // namespace

std::vector<Sizes> brief_sizes(TunedWork work, const std::vector<Sizes>& sizes) {
    std::vector<Sizes> all;
    for (const Sizes& own : sizes) {
        const Sizes fewer = brief(work, own);
        if (std::find(all.begin(), all.end(), fewer) == all.end()) all.push_back(fewer);
    }
    return all;
}

}  // namespace attnc
