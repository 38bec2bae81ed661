#include "stages/attention_two_pass.h"

#include <limits>
#include <vector>

#include "runtime/kernel_abi.h"
#include "stages/exp.h"
#include "stages/row_stats.h"
#include "stages/tanh.h"

namespace attnc {

using namespace Halide;

namespace {

// A dropped score is -infinity, so that its exponential is exactly 0. The maximum starts at the lowest finite
// number: a query that sees no key gets -infinity - lowest = -infinity, never infinity - infinity.
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kDropped = -std::numeric_limits<float>::infinity();
constexpr int kDroppedBits = static_cast<int>(0xff800000U);

// Comparison by bits: the code generator's float comparisons may assume that there are no infinities.
Expr is_dropped(const Expr& score) { return reinterpret<int>(score) == kDroppedBits; }

// value, or -infinity where `drop`. A table of two instead of a select: the condition depends on the lane,
// and a select would be taken for a reason to compute the scores lane by lane.
Expr drop_where(const Expr& drop, const Expr& value) { return mux(cast<int>(drop), {value, Expr(kDropped)}); }

// At least the lowest finite number, so that only what is dropped is -infinity; NaN stays NaN.
Expr at_least_lowest(const Expr& sum) { return strict_float(select(sum < kLowest, kLowest, sum)); }

Expr add_to_score(const Expr& score, const Expr& addend) {
    return select(is_dropped(addend) || is_dropped(score), kDropped, at_least_lowest(score + addend));
}

Expr ceil_div(const Expr& a, int b) { return (a + (b - 1)) / b; }

Expr tree_max(std::vector<Expr> v) {
    while (v.size() > 1) {
        std::vector<Expr> next;
        for (size_t n = 0; n + 1 < v.size(); n += 2) {
            next.push_back(max(v[n], v[n + 1]));
        }
        if (v.size() % 2 == 1) {
            next.push_back(v.back());
        }
        v = std::move(next);
    }
    return v.front();
}

}  // namespace

AttentionTwoPass::AttentionTwoPass(const AttentionInputs& in, const AttentionTile& tile_sizes)
    : tile(tile_sizes), masked(in.masks.has_value()), valued(in.v.defined()), in_(in) {
    numbers_.fill(-1);
    define_bounds();
    define_scores();
    if (masked) {
        define_masks();
    }
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

    if (valued) {
        Expr group_top = g * tile.context_rows;
        Expr group_bottom = min(group_top + tile.context_rows, in_.queries) - 1;
        Expr group_first = clamp(group_top + in_.first_key, 0, in_.keys);
        Expr group_end = max(min(group_bottom + in_.last_key, in_.keys), group_first);
        // A tile may overhang the queries by whole groups: those see nothing.
        group_bounds(x, g) = mux(x, {group_first, select(group_top < in_.queries, group_end, group_first)});
    }
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
    auto sums_of = [&](Func& sums, int key_rows, bool exact) {
        Expr key = s * key_rows + c;
        Expr row = unsafe_promise_clamped(exact ? key : min(key, in_.keys - 1), 0, in_.keys - 1);
        sums(i, c, s, t) = 0.0f;
        sums(i, c, s, t) += queries(i % kQueryLanes, depth, i / kQueryLanes, t) * in_.k(depth, row);
    };
    sums_of(left_sums, tile.tail_rows, false);
    sums_of(full_sums, tile.key_rows, true);
    sums_of(right_sums, tile.tail_rows, false);

    block(i, j, t) = undef<float>();
    block(i, kRowMax, t) = kLowest;
    defined(kSeedMax);
    auto scores_of = [&](BlockUpdate which, const Func& sums, RDom& steps, int key_rows, TileBound first,
                         TileBound end) {
        steps = RDom(0, (in_.tile_kv + key_rows - 1) / key_rows, "steps");
        steps.where(steps >= bounds(first, t) && steps < bounds(end, t));
        std::vector<Expr> rows, values;
        for (int r = 0; r < key_rows; r++) {
            Expr score = sums(i, r, steps, t);
            if (which != kFullScores) {
                score = drop_where(!visible(t * tile.rows + i, steps * key_rows + r), score);
            }
            rows.push_back(kFirstScore + steps * key_rows + r);
            values.push_back(score);
        }
        if (!masked) {
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
    scores_of(kFullScores, full_sums, full, tile.key_rows, kFullFirst, kFullEnd);
    scores_of(kRightScores, right_sums, right, tile.tail_rows, kRightFirst, kRightEnd);
}

void AttentionTwoPass::define_masks() {
    const AttentionMasks& m = *in_.masks;
    Expr query = tile_query(i);
    // `define` writes the row of block; its last argument is the key that is safe to read masks with.
    auto pass = [&](BlockUpdate which, int flag, auto define) {
        RDom r(0, in_.tile_kv, "mask_keys");
        r.where(r >= bounds(kFirstKey, t) && r < bounds(kEndKey, t));
        if (flag != 0) {
            r.where((m.flags & flag) != 0);
        }
        mask_keys[which] = r;
        define(r, unsafe_promise_clamped(r, 0, in_.keys - 1));
        defined(which);
    };
    auto score = [&](const RDom& r) { return block(i, kFirstScore + r, t); };
    if (m.softcap.defined()) {
        // By visibility, not by the score: one that is -infinity because of its data becomes -softcap.
        pass(kSoftcap, ATTNC_MASK_SOFTCAP, [&](const RDom& r, const Expr&) {
            block(i, kFirstScore + r, t) =
                drop_where(!visible(t * tile.rows + i, r), scaled_tanh(score(r), m.softcap));
        });
    }
    if (m.alibi_slope.defined()) {
        pass(kAlibi, ATTNC_MASK_ALIBI, [&](const RDom& r, const Expr&) {
            Expr distance = cast<float>(abs(t * tile.rows + i + m.own_key - r));
            Expr sum = score(r) - m.alibi_slope * distance;
            block(i, kFirstScore + r, t) = select(is_dropped(score(r)), kDropped, at_least_lowest(sum));
        });
    }
    pass(kAddBias, ATTNC_MASK_BIAS, [&](const RDom& r, const Expr& key) {
        block(i, kFirstScore + r, t) = add_to_score(score(r), m.bias(key, query));
    });
    pass(kAddKeyBias, ATTNC_MASK_KEY_BIAS, [&](const RDom& r, const Expr& key) {
        block(i, kFirstScore + r, t) = add_to_score(score(r), m.key_bias(key));
    });
    pass(kSelectKeep, ATTNC_MASK_KEEP, [&](const RDom& r, const Expr& key) {
        block(i, kFirstScore + r, t) = drop_where(m.keep_mask(key, query) == 0, score(r));
    });
    pass(kSelectDrop, ATTNC_MASK_DROP, [&](const RDom& r, const Expr& key) {
        block(i, kFirstScore + r, t) = drop_where(m.drop_mask(key, query) != 0, score(r));
    });
    pass(kMaskedMax, 0,
         [&](const RDom& r, const Expr&) { block(i, kRowMax, t) = max(block(i, kRowMax, t), score(r)); });
}

void AttentionTwoPass::define_context() {
    block(i, kRowSum, t) = 0.0f;
    defined(kSeedSum);
    exp_keys = RDom(0, in_.tile_kv, "exp_keys");
    exp_keys.where(exp_keys >= bounds(kFirstKey, t) && exp_keys < bounds(kEndKey, t));
    Expr e = exp_nonpositive(block(i, kFirstScore + exp_keys, t) - block(i, kRowMax, t));
    block(i, scatter(kRowSum, kFirstScore + exp_keys), t) = gather(block(i, kRowSum, t) + e, e);
    defined(kExp);
    Expr sum = block(i, kRowSum, t);
    block(i, kRowInverse, t) = select(sees_no_key(sum), 0.0f, 1.0f / sum);
    defined(kInvert);

    value_keys = RDom(0, in_.tile_kv, "value_keys");
    value_keys.where(value_keys >= group_bounds(kFirstKey, g) && value_keys < group_bounds(kEndKey, g));
    Expr key = unsafe_promise_clamped(value_keys, 0, in_.keys - 1);
    Expr value = in_.v(d, key);
    if (in_.guarded) {
        const AttentionMasks& m = *in_.masks;
        Expr query = unsafe_promise_clamped(min(i, in_.queries - 1), 0, in_.queries - 1);
        auto given = [&](int flag) { return (m.flags & flag) != 0; };
        Expr dropped = !visible(i, value_keys) ||
                       (given(ATTNC_MASK_BIAS) && is_dropped(m.bias(key, query))) ||
                       (given(ATTNC_MASK_KEY_BIAS) && is_dropped(m.key_bias(key))) ||
                       (given(ATTNC_MASK_KEEP) && m.keep_mask(key, query) == 0) ||
                       (given(ATTNC_MASK_DROP) && m.drop_mask(key, query) != 0);
        value = select(dropped, 0.0f, value);
    }
    context_sums(d, i, g) = 0.0f;
    context_sums(d, i, g) +=
        block(i % tile.rows, kFirstScore + value_keys, (g * tile.context_rows) / tile.rows) * value;
}

Expr AttentionTwoPass::context(const Var& feature, const Var& query) const {
    return context_sums(feature, query, query / tile.context_rows) *
           block(query % tile.rows, kRowInverse, query / tile.rows);
}

Expr AttentionTwoPass::row_stats(const Var& query, const Var& column) const {
    Expr local = query % tile.rows, tile_of_query = query / tile.rows;
    return mux(column, {block(local, kRowMax, tile_of_query), block(local, kRowSum, tile_of_query)});
}

Expr AttentionTwoPass::probability(const Var& key, const Var& query, const Expr& largest,
                                   const Expr& sum) const {
    Expr score = block(query % tile.rows, kFirstScore + key, query / tile.rows);
    Expr dropped = !visible(query, key) || is_dropped(score) || sees_no_key(sum);
    return select(dropped, 0.0f, exp_nonpositive(score - largest) / sum);
}

}  // namespace attnc
