// What masks add to the two-pass attention: the runs of keys that are computed at all, the number that all masks
// together add to a score, and the words by which a keep or drop mask alone drops scores.

#include "runtime/kernel_abi.h"
#include "stages/attention_two_pass.h"
#include "stages/dropping.h"
#include "stages/tanh.h"

namespace attnc {

using namespace Halide;

namespace {

// A byte of it is 0 where that of `word` is not; the others are 0x80.
Expr bytes_of_zero(const Expr& word) {
    const Expr all_but_highest(uint32_t{0x7f7f7f7f});
    return ~(((word & all_but_highest) + all_but_highest) | word | all_but_highest);
}

}  // namespace

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
                              end_step(tile.tail_rows, kRightEnd)};
    std::vector<Expr> values;
    values.reserve(kTileBounds);
    for (int bound = 0; bound < kTileBounds; bound++) {
        values.push_back(select(blocked, of_column[bound], Expr(bounds(bound, t))));
    }
    runs(x, r, t) = undef<int>();
    runs(x, run_keys, t) = mux(x, values);
}

Expr AttentionTwoPass::is_per_key() const {
    return !is_given(ATTNC_MASK_BIAS | ATTNC_MASK_KEEP | ATTNC_MASK_DROP | ATTNC_MASK_BLOCKS);
}

Expr AttentionTwoPass::is_kept_by_words() const {
    if (in_.guarded) return cast<bool>(false);  // it runs rarely, and is small instead
    const Expr of_pairs =
        in_.masks->flags & (ATTNC_MASK_BIAS | ATTNC_MASK_KEEP | ATTNC_MASK_DROP | ATTNC_MASK_BLOCKS);
    return of_pairs == ATTNC_MASK_KEEP || of_pairs == ATTNC_MASK_DROP;
}

Expr AttentionTwoPass::key_addend(const Expr& key) const {
    return with_alibi(select(is_given(ATTNC_MASK_KEY_BIAS), in_.masks->key_bias(safe_key(key)), 0.0f), key);
}

Expr AttentionTwoPass::with_alibi(const Expr& addend, const Expr& key) const {
    const AttentionMasks& m = *in_.masks;
    if (!m.alibi_slope.defined()) return addend;
    Expr distance = cast<float>(abs(t * tile.rows + i + m.own_key - key));
    return choose(is_given(ATTNC_MASK_ALIBI), add_to_score(addend, -(m.alibi_slope * distance)), addend);
}

void AttentionTwoPass::define_addends() {
    const AttentionMasks& m = *in_.masks;
    const Expr paired = is_given(ATTNC_MASK_BIAS | ATTNC_MASK_KEEP | ATTNC_MASK_DROP) && !is_kept_by_words();
    const Expr blocked = is_given(ATTNC_MASK_BLOCKS);
    define_pair_addends();
    define_words();

    // Of all keys that some query of the tile sees, in whole columns, each of which has `places` numbers.
    auto pass = [&](BlockUpdate which, const char* name, int places, const Expr& taken, auto value) {
        RDom keys({{0, places}, {0, in_.tile_kv / kGranule}}, name);
        keys.where(taken);
        keys.where(keys.y >= bounds(kFirstKey, t) / kGranule);
        keys.where(keys.y < ceil_div(bounds(kEndKey, t), kGranule));
        addend_keys[which] = keys;
        Expr key = keys.y * kGranule + keys.x;
        Expr stored = value(keys, key);
        block(i, kFirstScore + key, t) = stored;
        defined(which);
    };
    pass(kKeyAddends, "addend_keys", kGranule, blocked && !paired,
         [&](const RDom&, const Expr& key) { return key_addend(key); });
    pass(kPairAddends, "pair_keys", kGranule, paired, [&](RDom& keys, Expr& key) {
        // Columns that are dropped whole aren't looked at.
        keys.where(!blocked || columns(keys.y, t) != 0);
        key = pair_key(keys.y, keys.x);
        return with_alibi(addend_lanes(i % kQueryLanes, keys.x, i / kQueryLanes, keys.y, t), key);
    });
    const Expr last_column = (in_.keys - 1) / kGranule, last_row = (in_.queries - 1) / kGranule;
    pass(kBlockAddends, "block_keys", kGranule, blocked, [&](RDom& keys, const Expr& key) {
        keys.where(columns(keys.y, t) != 3);
        Expr row = unsafe_promise_clamped(min((t * tile.rows + i) / kGranule, last_row), 0, last_row);
        Expr column = unsafe_promise_clamped(keys.y, 0, last_column);
        return drop_where(m.key_blocks(column, row) == 0, block(i, kFirstScore + key, t));
    });
    pass(kKeptWords, "word_keys", kGranule / kWordKeys, is_kept_by_words(), [&](RDom& words, Expr& key) {
        key = pair_key(words.y, words.x * kWordKeys + (kWordKeys - 1));
        Expr word = word_lanes(i % kQueryLanes, words.x, i / kQueryLanes, words.y, t);
        return reinterpret<float>(select(is_given(ATTNC_MASK_DROP), bytes_of_zero(word), word));
    });
}

Expr AttentionTwoPass::safe_key(const Expr& key) const {
    return unsafe_promise_clamped(min(key, in_.keys - 1), 0, in_.keys - 1);
}

// Key c of column n where masks of pairs are read: the last column ends with the last key, so that it is as wide as the
// others unless there are too few keys.
Expr AttentionTwoPass::pair_key(const Expr& column, const Expr& place) const {
    return max(min(column * kGranule, in_.keys - kGranule), 0) + place;
}

// Query by query, as masks lie in memory, then transposed.
void AttentionTwoPass::define_pair_addends() {
    const AttentionMasks& m = *in_.masks;
    Expr key = pair_key(n, c), whole = in_.keys >= kGranule;
    key_once = RDom(0, 1, "key_once");
    key_once.where(is_given(ATTNC_MASK_KEY_BIAS));
    key_addends(c, n) = 0.0f;
    key_addends(c, n) = m.key_bias(safe_key(key + key_once));
    pair_addends(c, i, n, t) = key_addends(c, n);
    auto take = [&](const Func& mask, const Expr& stride, int flag, auto change) {
        RDom once(0, 1, "mask_once");
        once.where(is_given(flag));
        Expr query = unsafe_promise_clamped(min(t * tile.rows + i, in_.queries - 1), 0, in_.queries - 1);
        Expr place = select(whole, unsafe_promise_clamped(key, 0, in_.keys - 1), safe_key(key));
        pair_addends(c, i, n, t) = change(pair_addends(c, i, n, t), mask(place + once, query));
        pair_masks.push_back({.update = pair_addends.num_update_definitions() - 1,
                              .once = once,
                              .side_by_side = whole && stride == 1});
    };
    take(m.bias, m.bias_stride, ATTNC_MASK_BIAS,
         [](const Expr& addend, const Expr& bias) { return add_to_score(addend, bias); });
    take(m.keep_mask, m.keep_stride, ATTNC_MASK_KEEP,
         [](const Expr& addend, const Expr& keep) { return drop_where(keep == 0, addend); });
    take(m.drop_mask, m.drop_stride, ATTNC_MASK_DROP,
         [](const Expr& addend, const Expr& drop) { return drop_where(drop != 0, addend); });

    addend_quads(b, c, l, g, n, t) = pair_addends(c, g * kQueryLanes + l + 4 * b, n, t);
    addend_lanes(l, c, g, n, t) = addend_quads(l / 4, c, l % 4, g, n, t);
}

// As masks lie in memory, four keys to a word, then transposed: a fourth of the numbers that addends would be. Those of a drop
// mask say what is dropped until they are transposed.
void AttentionTwoPass::define_words() {
    const AttentionMasks& m = *in_.masks;
    Expr whole = in_.keys >= kGranule;
    Expr query = unsafe_promise_clamped(min(t * tile.rows + i, in_.queries - 1), 0, in_.queries - 1);
    auto take = [&](const Func& mask, const Expr& stride, int flag) {
        RDom once(0, 1, "word_once");
        once.where(is_given(flag));
        std::vector<Expr> bytes;
        for (int byte = 0; byte < kWordKeys; byte++) {
            Expr key = pair_key(n, c * kWordKeys + byte);
            Expr place = select(whole, unsafe_promise_clamped(key, 0, in_.keys - 1), safe_key(key));
            bytes.push_back(mask(place + once, query));
        }
        mask_words(c, i, n, t) = concat_bits(bytes);
        word_masks.push_back({.update = mask_words.num_update_definitions() - 1,
                              .once = once,
                              .side_by_side = whole && stride == 1});
    };
    mask_words(c, i, n, t) = undef<uint32_t>();
    take(m.keep_mask, m.keep_stride, ATTNC_MASK_KEEP);
    take(m.drop_mask, m.drop_stride, ATTNC_MASK_DROP);
    word_quads(b, c, l, g, n, t) = mask_words(c, g * kQueryLanes + l + 4 * b, n, t);
    word_lanes(l, c, g, n, t) = word_quads(l / 4, c, l % 4, g, n, t);
}

// Steps go from the first key to the last, and a word lies in the place of the last of its keys: it is read before a score
// comes there.
Expr AttentionTwoPass::is_dropped_by_word(const Expr& key) const {
    Expr first = pair_key(key / kGranule, 0), place = min(key - first, kGranule - 1);
    Expr row = first + place / kWordKeys * kWordKeys + (kWordKeys - 1);
    Expr word =
        reinterpret<uint32_t>(block(i, kFirstScore + unsafe_promise_clamped(row, 0, in_.tile_kv - 1), t));
    return (word & (Expr(uint32_t{0xff}) << cast<uint32_t>(place % kWordKeys * 8))) == 0;
}

Expr AttentionTwoPass::with_masks(const Expr& score, const Expr& addend) const {
    const AttentionMasks& m = *in_.masks;
    Expr capped = score;
    if (m.softcap.defined()) {
        capped = choose(is_given(ATTNC_MASK_SOFTCAP), scaled_tanh(score, m.softcap), score);
    }
    return add_to_score(capped, addend);
}

}  // namespace attnc
