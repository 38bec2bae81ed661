// What masks add to the two-pass attention: the runs of keys that are computed at all, and the passes between scores and
// softmax.
#include "runtime/kernel_abi.h"
#include "stages/attention_two_pass.h"
#include "stages/dropping.h"
#include "stages/tanh.h"

namespace attnc {

using namespace Halide;

// The block mask's columns from the tile's first visible key to its last; without a block mask all keys at once.
Expr AttentionTwoPass::run_count(const Expr& tile_number) const {
    Expr columns_seen =
        ceil_div(bounds(kEndKey, tile_number), kGranule) - bounds(kFirstKey, tile_number) / kGranule;
    return select(is_given(ATTNC_MASK_BLOCKS), columns_seen, 1);
}

RDom AttentionTwoPass::span(const char* name, int most, TileBound first, TileBound end,
                            const Expr& tile_number) const {
    if (!masked) {
        RDom plain(0, most, name);
        plain.where(plain >= bounds(first, tile_number) && plain < bounds(end, tile_number));
        return plain;
    }
    RDom by_runs({{0, most}, {0, in_.tile_kv / kGranule}}, name);
    by_runs.where(by_runs.y < run_count(tile_number));
    by_runs.where(by_runs.x >= runs(first, by_runs.y, tile_number) &&
                  by_runs.x < runs(end, by_runs.y, tile_number));
    return by_runs;
}

void AttentionTwoPass::define_runs() {
    const Func& key_blocks = in_.masks->key_blocks;
    const int most = in_.tile_kv / kGranule;
    const Expr blocked = is_given(ATTNC_MASK_BLOCKS);
    const Expr last_row = (in_.queries - 1) / kGranule, last_column = (in_.keys - 1) / kGranule;

    // The rows of granules that the tile's queries lie in.
    Expr top = (t * tile.rows) / kGranule;
    Expr bottom = min((t * tile.rows + (tile.rows - 1)) / kGranule, last_row);
    const int rows =
        tile.rows % kGranule == 0 ? tile.rows / kGranule : (tile.rows + kGranule - 2) / kGranule + 1;
    column_keys = RDom(0, most, "column_keys");
    column_keys.where(blocked && column_keys <= last_column);
    Expr column = unsafe_promise_clamped(column_keys, 0, last_column);
    Expr any = cast<bool>(false), all = cast<bool>(true);
    for (int row = 0; row < rows; row++) {
        Expr kept = key_blocks(column, unsafe_promise_clamped(min(top + row, bottom), 0, last_row)) != 0;
        any = any || kept;
        all = all && kept;
    }
    columns(c, t) = undef<int>();
    columns(column_keys, t) = select(all, 3, any, 1, 0);

    // Run r is column `at`. A step belongs to the column that its first key lies in, and is taken if some query
    // attends a column that it reaches.
    run_keys = RDom(0, most, "run_keys");
    run_keys.where(run_keys < run_count(t));
    Expr at = bounds(kFirstKey, t) / kGranule + run_keys;
    auto state = [&](int ahead) {
        return columns(unsafe_promise_clamped(min(at + ahead, last_column), 0, most - 1), t);
    };
    // 1 and 0 for arithmetic, not conditions: the code generator stumbles over selects nested by what is computed here.
    auto is_kept = [&](int ahead) { return cast<int>(state(ahead) != 0); };
    Expr first_key = max(bounds(kFirstKey, t), at * kGranule);
    auto end_key = [&](const Expr& wanted) {
        return first_key + wanted * (min(bounds(kEndKey, t), (at + 1) * kGranule) - first_key);
    };
    auto first_step = [&](int key_rows, TileBound bound) {
        Expr begin = select(run_keys == 0, 0, ceil_div(at * kGranule, key_rows));
        Expr end = ceil_div((at + 1) * kGranule, key_rows);
        Expr step = end - is_kept(0) * (end - begin);
        for (int ahead = 1; ahead <= (key_rows + kGranule - 2) / kGranule; ahead++) {
            Expr reaching = max(begin, ((at + ahead) * kGranule) / key_rows);
            step = min(step, end - is_kept(ahead) * max(end - reaching, 0));
        }
        return max(step, bounds(bound, t));
    };
    auto end_step = [&](int key_rows, TileBound bound) {
        return min(ceil_div((at + 1) * kGranule, key_rows), bounds(bound, t));
    };
    const Expr of_column[] = {first_key,
                              end_key(is_kept(0)),
                              first_step(tile.tail_rows, kLeftFirst),
                              end_step(tile.tail_rows, kLeftEnd),
                              first_step(tile.key_rows, kFullFirst),
                              end_step(tile.key_rows, kFullEnd),
                              first_step(tile.tail_rows, kRightFirst),
                              end_step(tile.tail_rows, kRightEnd),
                              first_key,
                              end_key(cast<int>(state(0) == 1)),
                              first_key,
                              end_key(cast<int>(state(0) == 0))};
    std::vector<Expr> values;
    values.reserve(kRunBounds);
    for (int bound = 0; bound < kRunBounds; bound++) {
        values.push_back(
            select(blocked, of_column[bound], bound < kTileBounds ? Expr(bounds(bound, t)) : Expr(0)));
    }
    runs(x, r, t) = undef<int>();
    runs(x, run_keys, t) = mux(x, values);
}

void AttentionTwoPass::define_masks() {
    const AttentionMasks& m = *in_.masks;
    Expr query = tile_query(i);
    // A pass over the scores of the keys between two bounds where `flag` is given. `change` makes a new score of one,
    // of its key, and of the key as it is safe to read masks with.
    auto pass_over = [&](TileBound first, TileBound end, BlockUpdate which, int flag, auto change) {
        RDom keys = span("mask_keys", in_.tile_kv, first, end, t);
        keys.where(is_given(flag));
        mask_keys[which] = keys;
        block(i, kFirstScore + keys.x, t) = change(block(i, kFirstScore + keys.x, t), keys.x,
                                                   unsafe_promise_clamped(keys.x, 0, in_.keys - 1));
        defined(which);
    };
    auto pass = [&](BlockUpdate which, int flag, auto change) {
        pass_over(kFirstKey, kEndKey, which, flag, change);
    };
    if (m.softcap.defined()) {
        // By visibility, not by the score: one that is -infinity because of its data becomes -softcap.
        pass(kSoftcap, ATTNC_MASK_SOFTCAP, [&](const Expr& score, const Expr& place, const Expr&) {
            return drop_where(!visible(t * tile.rows + i, place), scaled_tanh(score, m.softcap));
        });
    }
    if (m.alibi_slope.defined()) {
        pass(kAlibi, ATTNC_MASK_ALIBI, [&](const Expr& score, const Expr& place, const Expr&) {
            Expr distance = cast<float>(abs(t * tile.rows + i + m.own_key - place));
            return select(is_dropped(score), kDropped, at_least_lowest(score - m.alibi_slope * distance));
        });
    }
    pass(kAddBias, ATTNC_MASK_BIAS, [&](const Expr& score, const Expr&, const Expr& key) {
        return add_to_score(score, m.bias(key, query));
    });
    pass(kAddKeyBias, ATTNC_MASK_KEY_BIAS, [&](const Expr& score, const Expr&, const Expr& key) {
        return add_to_score(score, m.key_bias(key));
    });
    pass(kSelectKeep, ATTNC_MASK_KEEP, [&](const Expr& score, const Expr&, const Expr& key) {
        return drop_where(m.keep_mask(key, query) == 0, score);
    });
    pass(kSelectDrop, ATTNC_MASK_DROP, [&](const Expr& score, const Expr&, const Expr& key) {
        return drop_where(m.drop_mask(key, query) != 0, score);
    });
    pass_over(kPartFirst, kPartEnd, kSelectBlocks, ATTNC_MASK_BLOCKS,
              [&](const Expr& score, const Expr&, const Expr& key) {
                  // Without tile_query's clamp, so that a vector of queries is seen to lie in one granule.
                  const Expr last_row = (in_.queries - 1) / kGranule;
                  Expr row =
                      unsafe_promise_clamped(min((t * tile.rows + i) / kGranule, last_row), 0, last_row);
                  return drop_where(m.key_blocks(key / kGranule, row) == 0, score);
              });
    if (!valued) {
        pass_over(kGapFirst, kGapEnd, kFillGaps, ATTNC_MASK_BLOCKS,
                  [&](const Expr&, const Expr&, const Expr&) { return Expr(kDropped); });
        return;
    }
    RDom keys = span("mask_keys", in_.tile_kv, kFirstKey, kEndKey, t);
    mask_keys[kMaskedMax] = keys;
    block(i, kRowMax, t) = max(block(i, kRowMax, t), block(i, kFirstScore + keys.x, t));
    defined(kMaskedMax);
}

}  // namespace attnc
