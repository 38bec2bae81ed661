#include "runtime/scores.h"

#include "runtime/arithmetic.h"
#include "runtime/cache_rows.h"
#include "runtime/masks.h"
#include "runtime/nonfinite.h"
#include "runtime/score_arguments.h"

namespace attnc {
namespace {

// Where the scores of a range go; columns are keys.
struct ScoreRows {
    float* data;
    int64_t row_stride, rows;
    void drop(int64_t first, int64_t end) const {
        const float dropped = minus_infinity();
        for (int64_t i = 0; i < rows; ++i) {
            float* row = data + i * row_stride;
            for (int64_t j = first; j < end; ++j) row[j] = dropped;
        }
    }
};

// Of mask_flags, the steps up to the stage.
int32_t flags_up_to(attnc_scores_stage stage) {
    if (stage == ATTNC_SCORES_SCALED) return 0;
    return stage == ATTNC_SCORES_SOFTCAPPED ? ATTNC_MASK_SOFTCAP : ~0;
}

bool call_attend_scores(const Wave& wave, Worker& worker, const QueryRange& range, const HeadRows& key_rows,
                        const MaskArguments::Range& slice, const ScoreRows& to) {
    const bool dropping = wave.request.scores_stage == ATTNC_SCORES_BIASED;
    Buffer<2> scores(to.data + slice.key, kFloat32, {{slice.keys, 1}, {range.rows, to.row_stride}});
    ScoreArguments arguments(wave, range, key_rows, slice.keys,
                             dropping ? kernel_interval(*range.item, range.row, slice.key) : kAllKeys);
    MaskArguments masks(wave, *range.item, range.head, slice);
    masks.keep_flags(flags_up_to(wave.request.scores_stage));
    KernelCall call;
    arguments.set(call);
    call.set(ATTNC_ARGUMENT_SCORES, scores);
    masks.set(call);
    return call.run(wave.layer.kernel(ATTNC_KERNEL_ATTEND_SCORES), worker.task);
}

}  // namespace

bool write_scores(const Wave& wave, Worker& worker, const QueryRange& range) {
    const Item& item = *range.item;
    const OutView& out = wave.request.scores;
    const int64_t tile = wave.layer.layout.tile_kv, head = kv_head_of(wave.layer, range.head);
    const bool dropping = wave.request.scores_stage == ATTNC_SCORES_BIASED;
    const ScoreRows to = {
        out.data + item.number * out.batch_stride + range.head * out.head_stride + range.row * out.row_stride,
        out.row_stride, range.rows};
    const KeyInterval keys = dropping ? visible_keys(range) : KeyInterval{0, item.kv_length};
    const int64_t begin = keys.first / tile * tile;
    to.drop(0, begin);
    to.drop(keys.end, wave.request.seq_kv);
    for (int64_t first = begin; first < keys.end; first += tile) {
        const int64_t count = least(tile, keys.end - first);
        const KeyBlockMap blocks =
            dropping ? map_key_blocks(wave, worker, range, first, count) : KeyBlockMap{};
        if (blocks.empty) {
            to.drop(first, first + count);
            continue;
        }
        const KvRows rows =
            kv_rows(wave, worker, {&item, head, first, count, most(first, keys.first), false, false});
        if (!call_attend_scores(wave, worker, range, rows.k,
                                {range.row, range.rows, first, count, false, blocks}, to)) {
            return false;
        }
    }
    return true;
}

}  // namespace attnc
