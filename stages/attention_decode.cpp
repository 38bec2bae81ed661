#include "stages/attention_decode.h"

#include "runtime/kernel_abi.h"
#include "stages/dropping.h"
#include "stages/exp.h"
#include "stages/row_stats.h"
#include "stages/tanh.h"
#include "stages/tree.h"

namespace attnc {

using namespace Halide;

AttentionDecode::AttentionDecode(const DecodeInputs& in, const DecodeTile& sizes) : tile(sizes), in_(in) {
    define_bounds();
    define_ahead();
    define_scores();
    define_passes();
    define_weights();
    define_context();
}

void AttentionDecode::define_bounds() {
    Expr first = clamp(in_.first_key, 0, in_.keys);
    Expr end = max(min(in_.queries - 1 + in_.last_key, in_.keys), first);
    Expr rows = in_.queries * in_.heads;
    Expr first_run = first / kRunLanes, end_run = (end + (kRunLanes - 1)) / kRunLanes;
    Expr blocks = select(rows == 1, 0, (rows + (tile.rows - 1)) / tile.rows);
    // Runs whose keys all queries see, so that there is nothing to look for in them.
    Expr clean_first = (max(in_.queries - 1 + in_.first_key, 0) + (kRunLanes - 1)) / kRunLanes;
    constexpr int kDropping = ATTNC_MASK_KEY_BIAS | ATTNC_MASK_BIAS | ATTNC_MASK_KEEP | ATTNC_MASK_DROP;
    Expr clean_end = select((in_.masks.flags & kDropping) == 0, min(in_.last_key, in_.keys) / kRunLanes, 0);
    const std::vector<Expr> values = {first_run,
                                      end_run,
                                      first,
                                      end,
                                      clean_first,
                                      max(clean_end, clean_first),
                                      select(rows == 1, end_run, first_run),
                                      select(rows == 1, 1, blocks * tile.rows),
                                      blocks};
    std::vector<Expr> places;
    places.reserve(kDecodeBounds);
    for (int place = 0; place < kDecodeBounds; place++) places.emplace_back(place);
    // An update, so that nothing is known of the values where loops are cut to them.
    bounds(x) = undef<int>();
    bounds(scatter(places)) = gather(values);

    // Blocks may overhang the rows: those are copies of the last one.
    rows_of_query = rows_within("rows_of_query");
    Expr row = min(rows_of_query, rows - 1);
    row_query(r) = Tuple(undef<int>(), undef<int>());
    row_query(rows_of_query) = Tuple(row % in_.queries, row / in_.queries);
}

Expr AttentionDecode::first_row(const Expr& run) const {
    return in_.key_rows(unsafe_promise_clamped(run, 0, in_.runs - 1));
}

RDom AttentionDecode::rows_within(const std::string& name) const {
    RDom rows(0, kDecodeRows, name);
    rows.where(rows < bounds(kRows));
    return rows;
}

Expr AttentionDecode::query_of(const Expr& row) const {
    return unsafe_promise_clamped(row_query(row)[0], 0, in_.queries - 1);
}
Expr AttentionDecode::head_of(const Expr& row) const {
    return unsafe_promise_clamped(row_query(row)[1], 0, in_.heads - 1);
}

// Row of the pool.
Expr AttentionDecode::pool_row(const Expr& row) const {
    return unsafe_promise_clamped(row, 0, in_.pool_rows - 1);
}

// Hardware follows rows that lie one after another, but starts anew at each page, and later than a row is wanted.
void AttentionDecode::define_ahead() {
    Expr row = first_row(min(s + 1, bounds(kEndRun) - 1)) + x, lines = 0;
    for (int at = 0; at < in_.head_dim * static_cast<int>(sizeof(float)); at += kLineBytes) {
        lines +=
            prefetch(in_.k_memory.address + cast<uint64_t>(cast<int64_t>(row) * in_.k_memory.bytes + at));
    }
    key_ahead(x, s) = select(asks_ahead(), lines, 0);
}

DotTree AttentionDecode::dot_tree(const std::string& name, const Expr& key, const Expr& row,
                                  const Expr& ahead, bool in_line) {
    DotTree tree{.products = Func(name + "_products"),
                 .by_key = in_line ? Func(name + "_by_key") : Func(),
                 .levels = {},
                 .depth = RDom(0, in_.head_dim / tile.lanes),
                 .lanes = tile.lanes};
    auto product = [&](const Expr& step) {
        Expr feature = step * tile.lanes + l;
        return queries(feature, row) * in_.k(feature, pool_row(run_rows(key, s) + ahead));
    };
    tree.products(l, n, t, s, m) = 0.0f;
    tree.products(l, n, t, s, m) += product(tree.depth);
    Func from = tree.products;
    if (in_line) {
        tree.by_key(l, n, t, s, m) = tree.products(l, n, t, s, m);
        from = tree.by_key;
    }
    for (int left = tile.lanes / 2; left >= 1; left /= 2) {
        Func level(name + "_sums" + std::to_string(left));
        Expr flat = 2 * (l + tile.lanes * n);
        auto lane = [&](const Expr& at) { return from(at % tile.lanes, at / tile.lanes, t, s, m); };
        level(l, n, t, s, m) = strict_float(lane(flat) + lane(flat + 1));
        tree.levels.push_back(level);
        from = level;
    }
    return tree;
}

void AttentionDecode::define_scores() {
    query_rows = rows_within("query_rows");
    queries(d, r) = undef<float>();
    queries(d, query_rows) = in_.q(d, query_of(query_rows), head_of(query_rows)) * in_.qk_scale;

    table_runs = RDom(0, in_.split_kv / kRunLanes, "table_runs");
    table_runs.where(table_runs >= bounds(kFirstRun) && table_runs < bounds(kEndRun));
    run_rows(x, s) = undef<int>();
    run_rows(x, table_runs) = first_row(table_runs) + min(x, in_.keys - 1 - table_runs * kRunLanes);

    single = dot_tree("single", n, 0, tile.in_line ? Expr(key_ahead(n, s)) : 0, tile.in_line);
    block = dot_tree("block", t * tile.keys + n % tile.keys, m * tile.rows + n / tile.keys, 0, false);

    scores(x, y, r) = undef<float>();
    seed_rows = rows_within("seed_rows");
    scores(x, kLaneStat, seed_rows) = kLowest;

    single_runs = RDom(0, in_.split_kv / kRunLanes, "single_runs");
    single_runs.where(single_runs >= bounds(kFirstRun) && single_runs < bounds(kSingleEndRun));
    scores(x, kFirstRunColumn + single_runs, 0) = single.sum(x, 0, single_runs, 0);

    block_runs = RDom(0, tile.rows, 0, kDecodeRows / tile.rows, 0, in_.split_kv / kRunLanes, "block_runs");
    RVar row = block_runs.x, rows = block_runs.y, run = block_runs.z;
    block_runs.where(run >= bounds(kFirstRun) && run < bounds(kEndRun));
    block_runs.where(rows < bounds(kBlocks));
    scores(x, kFirstRunColumn + run, rows * tile.rows + row) =
        block.sum(x % tile.keys + row * tile.keys, x / tile.keys, run, rows);
}

// Steps of the scores, each over all of them: softcap, alibi, biases, then dropping.
void AttentionDecode::define_passes() {
    const DecodeMasks& masks = in_.masks;
    // step(score, key, query, head): the score after it; `key` may lie past the last one
    auto pass = [&](int flag, auto step) {
        RDom over(0, in_.split_kv / kRunLanes, 0, kDecodeRows, "score_pass");
        over.where(over.x >= bounds(kFirstRun) && over.x < bounds(kEndRun));
        over.where(over.y < bounds(kRows));
        if (flag != 0) over.where((masks.flags & flag) != 0);
        score_passes.push_back(over);
        Expr score = scores(x, kFirstRunColumn + over.x, over.y);
        Expr after = step(score, over.x * kRunLanes + x, query_of(over.y), head_of(over.y));
        if (flag != 0) {
            scores(x, kFirstRunColumn + over.x, over.y) = after;
        } else {
            scores(x, scatter(Expr(int(kLaneStat)), kFirstRunColumn + over.x), over.y) =
                gather(max(scores(x, kLaneStat, over.y), after), after);
        }
    };
    auto within = [&](const Expr& key) {
        return unsafe_promise_clamped(min(key, in_.keys - 1), 0, in_.keys - 1);
    };
    if (masks.softcap.defined()) {
        pass(ATTNC_MASK_SOFTCAP, [&](const Expr& score, const Expr&, const Expr&, const Expr&) {
            return scaled_tanh(score, masks.softcap);
        });
    }
    if (masks.alibi_slopes.defined()) {
        pass(ATTNC_MASK_ALIBI, [&](const Expr& score, const Expr& key, const Expr& query, const Expr& head) {
            Expr distance = cast<float>(abs(query + masks.own_key - key));
            return add_to_score(score, -masks.alibi_slopes(head) * distance);
        });
    }
    pass(ATTNC_MASK_BIAS, [&](const Expr& score, const Expr& key, const Expr& query, const Expr& head) {
        return add_to_score(score, masks.bias(within(key), query, head));
    });
    pass(ATTNC_MASK_KEY_BIAS, [&](const Expr& score, const Expr& key, const Expr&, const Expr&) {
        return add_to_score(score, masks.key_bias(within(key)));
    });
    pass(ATTNC_MASK_KEEP, [&](const Expr& score, const Expr& key, const Expr& query, const Expr& head) {
        return select(masks.keep_mask(within(key), query, head) == 0, kDropped, score);
    });
    pass(ATTNC_MASK_DROP, [&](const Expr& score, const Expr& key, const Expr& query, const Expr& head) {
        return select(masks.drop_mask(within(key), query, head) != 0, kDropped, score);
    });
    pass(0, [&](const Expr& score, const Expr& key, const Expr& query, const Expr&) {
        Expr visible = key >= query + in_.first_key && key < query + in_.last_key && key < in_.keys;
        return select(visible, score, kDropped);
    });
}

void AttentionDecode::define_weights() {
    std::vector<Expr> lanes, sums;
    largest_rows = rows_within("largest_rows");
    for (int lane = 0; lane < kRunLanes; lane++) lanes.push_back(scores(lane, kLaneStat, largest_rows));
    largest(r) = undef<float>();
    largest(largest_rows) = tree_max(lanes);

    weights(x, y, r) = undef<float>();
    weight_seed_rows = rows_within("weight_seed_rows");
    weights(x, kLaneStat, weight_seed_rows) = 0.0f;
    weight_runs = RDom(0, in_.split_kv / kRunLanes, 0, kDecodeRows, "weight_runs");
    RVar run = weight_runs.x, row = weight_runs.y;
    weight_runs.where(run >= bounds(kFirstRun) && run < bounds(kEndRun));
    weight_runs.where(row < bounds(kRows));
    Expr score = scores(x, kFirstRunColumn + run, row);
    Expr e = exp_nonpositive(score - largest(row));
    Expr marked = reinterpret<float>(select(is_dropped(score), kDroppedWeightBits, reinterpret<int>(e)));
    weights(x, scatter(Expr(int(kLaneStat)), kFirstRunColumn + run), row) =
        gather(weights(x, kLaneStat, row) + e, marked);

    total_rows = rows_within("total_rows");
    for (int lane = 0; lane < kRunLanes; lane++) sums.push_back(weights(lane, kLaneStat, total_rows));
    total(r) = undef<float>();
    total(total_rows) = tree_sum(sums);
}

void AttentionDecode::define_context() {
    auto sum_run = [&](Func& part, RDom* keys, const Expr& row, auto at) {
        at(part) = 0.0f;
        for (int update : {kCleanRun, kAnyRun}) {
            RDom over(0, kRunLanes, update == kCleanRun ? "clean_keys" : "keys");
            Expr weight = weights(over, kFirstRunColumn + s, row);
            Expr clean = s >= bounds(kFirstCleanRun) && s < bounds(kEndCleanRun);
            if (update == kCleanRun) {
                over.where(clean);
            } else {
                Expr key = s * kRunLanes + over;
                over.where(!clean);
                over.where(key >= bounds(kFirstVisible) && key < bounds(kEndVisible));
                over.where(reinterpret<int>(weight) != kDroppedWeightBits);
            }
            at(part) += weight * in_.v(d, pool_row(first_row(s) + over));
            keys[update] = over;
        }
    };
    sum_run(single_part, single_keys, 0, [&](Func& part) { return part(d, s); });
    sum_run(block_part, block_keys, r, [&](Func& part) { return part(d, r, s); });

    context_sums(d, r) = undef<float>();
    context_rows = rows_within("context_rows");
    context_sums(d, context_rows) = 0.0f;

    value_runs = RDom(0, in_.split_kv / kRunLanes, "value_runs");
    value_runs.where(value_runs >= bounds(kFirstRun) && value_runs < bounds(kSingleEndRun));
    context_sums(d, 0) += single_part(d, value_runs);

    value_block_runs =
        RDom(0, tile.rows, 0, kDecodeRows / tile.rows, 0, in_.split_kv / kRunLanes, "value_block_runs");
    RVar row = value_block_runs.x, rows = value_block_runs.y, run = value_block_runs.z;
    value_block_runs.where(run >= bounds(kFirstRun) && run < bounds(kEndRun));
    value_block_runs.where(rows < bounds(kBlocks));
    context_sums(d, rows * tile.rows + row) += block_part(d, rows * tile.rows + row, run);
}

Expr AttentionDecode::context(const Var& feature, const Var& query, const Var& head) const {
    Expr row = query + in_.queries * head;
    Expr sum = total(row);
    return context_sums(feature, row) * select(sees_no_key(sum), 0.0f, 1.0f / sum);
}

Expr AttentionDecode::row_stats(const Var& query, const Var& head, const Var& column) const {
    Expr row = query + in_.queries * head;
    return mux(column, {largest(row), total(row)});
}

}  // namespace attnc
