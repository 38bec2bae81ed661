#include "stages/attention_two_pass.h"

#include <bit>
#include <vector>

#include "runtime/kernel_abi.h"
#include "stages/dropping.h"
#include "stages/exp.h"
#include "stages/row_stats.h"
#include "stages/tree.h"

namespace attnc {

using namespace Halide;

AttentionTwoPass::AttentionTwoPass(const AttentionInputs& in, const AttentionTile& tile_sizes)
    : tile(tile_sizes), masked(in.masks.has_value()), valued(in.v.defined()), in_(in) {
    numbers_.fill(-1);
    define_bounds();
    if (masked) {
        define_runs();
    }
    define_scores();
    if (valued) {
        define_context();
    }
}

void AttentionTwoPass::defined(BlockUpdate which) { numbers_[which] = block.num_update_definitions() - 1; }

Expr AttentionTwoPass::tile_query(const Expr& local) const {
    return unsafe_promise_clamped(min(t * tile.rows + local, in_.queries - 1), 0, in_.queries - 1);
}

Expr AttentionTwoPass::visible(const Expr& query, const Expr& key) const {
    return key >= query + in_.first_key && key < query + in_.last_key && key < in_.keys;
}

void AttentionTwoPass::define_bounds() {
    const int jt = tile.key_rows, steps = tile.key_rows / tile.tail_rows;
    Expr top = t * tile.rows, bottom = min(top + tile.rows, in_.queries) - 1;
    Expr first = clamp(top + in_.first_key, 0, in_.keys);
    Expr end = max(min(bottom + in_.last_key, in_.keys), first);
    Expr full_first = min(ceil_div(max(bottom + in_.first_key, 0), jt), ceil_div(end, jt));
    Expr full_end = max(max(min(top + in_.last_key, in_.keys), 0) / jt, full_first);
    Expr left_first = first / tile.tail_rows;
    Expr right_end = ceil_div(end, tile.tail_rows);
    Expr left_end = min(full_first * steps, right_end);
    Expr right_first = max(full_end * steps, left_first);
    bounds(x, t) = mux(x, {first, end, left_first, left_end, full_first, full_end, right_first, right_end});

    if (!valued) return;
    Expr group_top = g * tile.context_rows;
    Expr group_bottom = min(group_top + tile.context_rows, in_.queries) - 1;
    Expr group_first = clamp(group_top + in_.first_key, 0, in_.keys);
    Expr seen_end = max(min(group_bottom + in_.last_key, in_.keys), group_first);
    // A tile may overhang the queries by whole groups: those see nothing.
    Expr group_end = select(group_top < in_.queries, seen_end, group_first);
    Expr full_keys = ceil_div(group_first, tile.in_line),
         full_keys_end = max(group_end / tile.in_line, full_keys);
    group_bounds(x, g) = mux(x, {group_first, min(full_keys * tile.in_line, group_end), full_keys,
                                 full_keys_end, max(full_keys_end * tile.in_line, group_first), group_end});
}

void AttentionTwoPass::define_scores() {
    // 16 x 16 blocks of queries are transposed in two steps of radix 4; each stores runs of 4 interleaved
    // vectors.
    // A bare minimum: behind a promise the index would hide from the code generator that the stores
    // interleave.
    Expr query = min(t * tile.rows + g * kQueryLanes + l + 4 * b, in_.queries - 1);
    quads(b, d, l, g, t) = in_.q(d, query) * in_.qk_scale;
    queries(l, d, g, t) = quads(l / 4, d, l % 4, g, t);

    depth = RDom(0, in_.head_dim, "depth");
    auto sums_of = [&](Func& sums, int key_rows, bool exact, const Func& ahead) {
        Expr feature = depth;
        if (ahead.defined())
            feature = unsafe_promise_clamped(depth + ahead(depth / tile.in_line, s, t), 0, in_.head_dim - 1);
        Expr first = s * key_rows, key = first + c, last = in_.keys - 1;
        Expr row = unsafe_promise_clamped(exact ? key : min(key, last), 0, last), column = feature;
        if (exact && in_.side_by_side && tile.in_line > 1) {
            // The same number: what is promised holds for the row that it lies in. Like this rows need one register for all
            // their addresses; at the edges the code generator would rather work out addresses in vectors.
            row = unsafe_promise_clamped(first, 0, last);
            column = unsafe_promise_clamped(feature + c * in_.head_dim, 0, in_.head_dim - 1);
        }
        sums(i, c, s, t) = 0.0f;
        sums(i, c, s, t) += queries(i % kQueryLanes, depth, i / kQueryLanes, t) * in_.k(column, row);
    };
    sums_of(left_sums, tile.tail_rows, false, Func());
    for (const BlockUpdate which : {kFullScores, kFullKeyScores, kFullKeptScores}) {
        if (which != kFullScores && !masked) continue;
        FullScores full = {.update = which, .sums = Func("full_sums"), .ahead = {}, .steps = {}};
        if (in_.ahead) full.ahead = define_ahead();
        sums_of(full.sums, tile.key_rows, true, full.ahead);
        full_scores.push_back(full);
    }
    sums_of(right_sums, tile.tail_rows, false, Func());

    block(i, j, t) = undef<float>();
    block(i, kRowMax, t) = kLowest;
    defined(kSeedMax);
    if (masked) {
        define_addends();
    }
    auto scores_of = [&](BlockUpdate which, const Func& sums, RDom& steps, int key_rows, TileBound first,
                         TileBound end) {
        steps = span("steps", (in_.tile_kv + key_rows - 1) / key_rows, first, end, t);
        if (masked && which == kFullScores) steps.where(!is_per_key() && !is_kept_by_words());
        if (which == kFullKeyScores) steps.where(is_per_key());
        if (which == kFullKeptScores) steps.where(is_kept_by_words());
        std::vector<Expr> rows, values;
        for (int row = 0; row < key_rows; row++) {
            Expr score = sums(i, row, steps.x, t), key = steps.x * key_rows + row;
            if (masked) {
                Expr in_block = block(i, kFirstScore + key, t);
                score = with_masks(
                    score, which == kFullScores ? in_block
                           : which == kFullKeyScores || which == kFullKeptScores
                               ? key_addend(key)
                               : select(is_per_key() || is_kept_by_words(), key_addend(key), in_block));
            }
            if (which == kFullKeptScores) score = drop_where(is_dropped_by_word(key), score);
            if (which == kLeftScores || which == kRightScores) {
                Expr dropped = !visible(t * tile.rows + i, key);
                if (masked) dropped = dropped || (is_kept_by_words() && is_dropped_by_word(key));
                score = drop_where(dropped, score);
            }
            rows.push_back(kFirstScore + key);
            values.push_back(score);
        }
        if (valued) {
            rows.insert(rows.begin(), Expr(int(kRowMax)));
            values.insert(values.begin(), max(block(i, kRowMax, t), tree_max(values)));
        }
        if (rows.size() == 1) {
            block(i, rows[0], t) = values[0];
        } else {
            block(i, scatter(rows), t) = gather(values);
        }
        defined(which);
    };
    scores_of(kLeftScores, left_sums, left, tile.tail_rows, kLeftFirst, kLeftEnd);
    for (FullScores& full : full_scores)
        scores_of(full.update, full.sums, full.steps, tile.key_rows, kFullFirst, kFullEnd);
    scores_of(kRightScores, right_sums, right, tile.tail_rows, kRightFirst, kRightEnd);
}

// The rows that the next call reads and writes are shared out among the full steps of all tiles, a few lines for each
// feature; those first that it waits for first.
Func AttentionTwoPass::define_ahead() const {
    constexpr int kMostHalvings = 4;
    // A line for each feature. Of a row, rounded up, so that shifts tell which row and which of its lines.
    const int lines =
        static_cast<int>(std::bit_ceil(static_cast<unsigned>(in_.head_dim) * sizeof(float) / kLineBytes));
    const int rows_of_lines = in_.head_dim / lines;
    const int asked = 1 + tile.key_rows / 6;      // for each feature
    const int most_rows = asked * rows_of_lines;  // of a step
    Expr tile_steps = in_.keys / tile.key_rows;
    Expr steps = ((in_.queries + tile.rows - 1) / tile.rows) * tile_steps;
    Expr halvings = 0;
    for (int by = 1; by <= kMostHalvings; by++)
        halvings += cast<int>(steps * (most_rows >> by) >= 2 * (in_.keys + in_.queries));
    auto steps_of = [&](const Expr& count) { return ((count << halvings) + (most_rows - 1)) / most_rows; };
    Expr k_steps = steps_of(in_.keys), q_steps = steps_of(in_.queries);
    const AttentionAhead& next = *in_.ahead;
    Expr step = t * tile_steps + s;
    Expr k_end = k_steps, q_end = k_end + q_steps, context_end = q_end + q_steps;
    Expr first = step - select(step < k_end, 0, step < q_end, k_end, step < context_end, q_end, context_end);
    auto chosen = [&](Expr MemoryRows::*member) {
        return select(step < k_end, next.k.*member, step < q_end, next.q.*member, step < context_end,
                      next.context.*member, next.v.*member);
    };
    const MemoryRows rows = {chosen(&MemoryRows::address), chosen(&MemoryRows::bytes)};
    Expr first_row = (min(first, k_steps - 1) * most_rows) >> halvings;
    // All but `d` is the same for all features of a step.
    Expr first_place = rows.address + cast<uint64_t>(cast<int64_t>(first_row) * rows.bytes);
    Expr apart = cast<uint64_t>(cast<int64_t>(Expr(rows_of_lines) >> halvings) * rows.bytes), all = 0;
    for (int feature = 0; feature < tile.in_line; feature++) {
        Expr line = (d >> halvings) * tile.in_line + feature;
        Expr place = first_place + cast<uint64_t>(cast<int64_t>(line / lines) * rows.bytes) +
                     cast<uint64_t>(line % lines * kLineBytes);
        for (int more = 0; more < asked; more++) all += prefetch(place + more * apart);
    }
    Func ahead("full_ahead");
    ahead(d, s, t) = all;
    return ahead;
}

void AttentionTwoPass::define_context() {
    block(i, kRowSum, t) = 0.0f;
    defined(kSeedSum);
    exp_keys = span("exp_keys", in_.tile_kv, kFirstKey, kEndKey, t);
    Expr e = exp_nonpositive(block(i, kFirstScore + exp_keys.x, t) - block(i, kRowMax, t));
    block(i, scatter(kRowSum, kFirstScore + exp_keys.x), t) = gather(block(i, kRowSum, t) + e, e);
    defined(kExp);
    Expr sum = block(i, kRowSum, t);
    block(i, kRowInverse, t) = select(sees_no_key(sum), 0.0f, 1.0f / sum);
    defined(kInvert);

    context_sums(d, i, g) = 0.0f;
    // Without runs apart, since sums stay in registers better in a single loop.
    const Expr plain = masked ? !is_given(ATTNC_MASK_BLOCKS) : Expr();
    auto between = [&](const char* name, int most, int together, GroupBound first, GroupBound end) {
        RDom steps({{0, together}, {0, most}}, name);
        if (masked) steps.where(plain);
        steps.where(steps.y >= group_bounds(first, g) && steps.y < group_bounds(end, g));
        add_values({steps, true}, steps.y * together + steps.x);
    };
    if (tile.in_line == 1) {
        between("value_keys", in_.tile_kv, 1, kGroupFirst, kGroupEnd);
    } else {
        between("left_values", in_.tile_kv, 1, kGroupFirst, kGroupLeftEnd);
        between("full_values", in_.tile_kv / tile.in_line, tile.in_line, kGroupFullFirst, kGroupFullEnd);
        between("right_values", in_.tile_kv, 1, kGroupRightFirst, kGroupEnd);
    }
    if (!masked) return;
    RDom run_by_run = span("run_values", in_.tile_kv, kFirstKey, kEndKey, tile_of_group());
    run_by_run.where(is_given(ATTNC_MASK_BLOCKS));
    run_by_run.where(run_by_run.x >= group_bounds(kGroupFirst, g) &&
                     run_by_run.x < group_bounds(kGroupEnd, g));
    add_values({run_by_run, false}, run_by_run.x);
}

Expr AttentionTwoPass::tile_of_group() const { return (g * tile.context_rows) / tile.rows; }

void AttentionTwoPass::add_values(const ValueKeys& keys, const Expr& number) {
    Expr key = unsafe_promise_clamped(number, 0, in_.keys - 1);
    Expr value = in_.v(d, key);
    if (in_.guarded) {
        const AttentionMasks& m = *in_.masks;
        Expr query = unsafe_promise_clamped(min(i, in_.queries - 1), 0, in_.queries - 1);
        Expr dropped = !visible(i, number) || (is_given(ATTNC_MASK_BIAS) && is_dropped(m.bias(key, query))) ||
                       (is_given(ATTNC_MASK_KEY_BIAS) && is_dropped(m.key_bias(key))) ||
                       (is_given(ATTNC_MASK_KEEP) && m.keep_mask(key, query) == 0) ||
                       (is_given(ATTNC_MASK_DROP) && m.drop_mask(key, query) != 0) ||
                       (is_given(ATTNC_MASK_BLOCKS) && m.key_blocks(key / kGranule, query / kGranule) == 0);
        value = select(dropped, 0.0f, value);
    }
    context_sums(d, i, g) += block(i % tile.rows, kFirstScore + number, tile_of_group()) * value;
    value_keys.push_back(keys);
}

Expr AttentionTwoPass::context(const Var& feature, const Var& query) const {
    return context_sums(feature, query, query / tile.context_rows) *
           block(query % tile.rows, kRowInverse, query / tile.rows);
}

Expr AttentionTwoPass::row_stats(const Var& query, const Var& column) const {
    Expr local = query % tile.rows, tile_of_query = query / tile.rows;
    return mux(column, {block(local, kRowMax, tile_of_query), block(local, kRowSum, tile_of_query)});
}

Expr AttentionTwoPass::score(const Var& key, const Var& query) const {
    return drop_where(!visible(query, key), block(query % tile.rows, kFirstScore + key, query / tile.rows));
}

Expr AttentionTwoPass::probability(const Var& key, const Var& query, const Expr& largest,
                                   const Expr& sum) const {
    Expr score = block(query % tile.rows, kFirstScore + key, query / tile.rows);
    Expr dropped = !visible(query, key) || is_dropped(score) || sees_no_key(sum);
    return select(dropped, 0.0f, exp_nonpositive(score - largest) / sum);
}

}  // namespace attnc
