#include "stages/attention_gpu.h"

#include <algorithm>

#include "runtime/kernel_abi.h"
#include "stages/attention_tile.h"
#include "stages/dropping.h"
#include "stages/empty_rows_gpu.h"
#include "stages/exp_gpu.h"
#include "stages/row_stats.h"
#include "stages/tanh.h"
#include "stages/tree.h"

namespace attnc {

using namespace Halide;

namespace {

// Floats that a thread loads at once where all get through a row of `features` evenly: 4, else 1. Of pairs, turned round on
// their way, the compiler makes memory instead of registers.
int lanes_of(int features, int threads) { return features % (kQuad * threads) == 0 ? kQuad : 1; }

// A four of features that is there, of a head that is filled up.
Expr quad_of(const Expr& quad, int features, int filled_up) {
    return features == filled_up ? quad : min(quad, features / kQuad - 1);
}

}  // namespace

AttentionGpu::AttentionGpu(const AttentionGpuInputs& in, const AttentionGpuTile& sizes)
    : tile(sizes),
      scores("scores", sizes.threads, {v, g, u}, {kb, n, h, z}),
      largest("largest", sizes.threads, {u}, {kb, n, h, z}),
      weights("weights", sizes.threads, {v, g, u}, {kb, n, h, z}),
      sum("sum", sizes.threads, {u}, {kb, n, h, z}),
      products("products", sizes.threads, {v, g, u}, {kb, n, h, z}),
      state("state", sizes.threads, {u, i}, {n, h, z}),
      total("total", sizes.threads, {u}, {n, h, z}),
      in_(in) {
    std::fill(std::begin(numbers_), std::end(numbers_), -1);
    define_tiles();
    define_scores();
    define_steps();
    if (in_.v.defined()) {
        define_weights();
        define_products();
        define_state();
    }
    define_stores();
}

// ---- Rows, keys and blocks

Expr AttentionGpu::row_tiles() const {
    Expr rows = of_groups() ? in_.seq_q * group() : in_.seq_q;
    return max((rows + (tile.rows() - 1)) / tile.rows(), 1);
}

Expr AttentionGpu::item(const Expr& of_n) const { return clamp(of_n / row_tiles(), 0, in_.item_count - 1); }

Expr AttentionGpu::column(int which, const Expr& of_n) const {
    return item_number(in_.items, which, item(of_n));
}

Expr AttentionGpu::flat_row(const Expr& local, const Block& block) const {
    return (block[0] % row_tiles()) * tile.rows() + local;
}

Expr AttentionGpu::query_of(const Expr& local, const Block& block) const {
    Expr row = flat_row(local, block);
    return of_groups() ? row % max(column(ATTNC_ITEM_ROWS, block[0]), 1) : row;
}

Expr AttentionGpu::safe_query(const Expr& local, const Block& block) const {
    // The second bound is one that the host knows.
    return max(min(query_of(local, block), min(column(ATTNC_ITEM_QUERIES, block[0]), in_.seq_q) - 1), 0);
}

Expr AttentionGpu::head_of(const Expr& local, const Block& block) const {
    if (!of_groups()) return block[1];
    Expr member = flat_row(local, block) / max(column(ATTNC_ITEM_ROWS, block[0]), 1);
    return block[1] * group() + clamp(member, 0, group() - 1);
}

// Whether the row is one of the context's.
Expr AttentionGpu::is_written(const Expr& local, const Block& block) const {
    Expr rows = column(ATTNC_ITEM_ROWS, block[0]);
    return flat_row(local, block) < (of_groups() ? rows * group() : rows);
}

// And whether its query is one that counts.
Expr AttentionGpu::counts(const Expr& local, const Block& block) const {
    return query_of(local, block) < column(ATTNC_ITEM_QUERIES, block[0]);
}

Expr AttentionGpu::q_row(const Expr& local, const Block& block) const {
    return clamp(column(ATTNC_ITEM_QUERY_ROW, block[0]) + safe_query(local, block), 0, in_.q_rows - 1);
}

// The first key of a block, counted in the item.
Expr AttentionGpu::first_key_of(const Expr& of_kb, const Expr& of_z) const {
    if (in_.rows == GpuRows::kPairs) return of_z * tile.keys();
    if (of_groups()) return of_z * in_.split_kv + of_kb * tile.keys();
    return of_kb * tile.keys();
}

Expr AttentionGpu::key_row(const Expr& first, const Expr& next, const Expr& of_n) const {
    Expr last = column(ATTNC_ITEM_KEYS, of_n) - 1;
    if (!in_.key_runs.has_value())
        return row_of_item(in_.items, min(first + next, last), item(of_n), in_.key_rows);
    Expr there = max(min(first, last), 0);
    return row_of_run(*in_.key_runs, there, min(next, last - there), item(of_n), in_.key_rows);
}

Expr AttentionGpu::first_query(const Block& block) const {
    return of_groups() ? Expr(0) : flat_row(0, block);
}

Expr AttentionGpu::last_query(const Block& block) const {
    Expr last = column(ATTNC_ITEM_QUERIES, block[0]) - 1;
    return of_groups() ? last : min(flat_row(tile.rows() - 1, block), last);
}

// Whether some query of the tile sees a key of the block.
Expr AttentionGpu::is_visible(const Expr& of_kb, const Block& block) const {
    Expr first = first_key_of(of_kb, block[2]), last = last_query(block);
    Expr end = min(last + column(ATTNC_ITEM_LAST, block[0]), column(ATTNC_ITEM_KEYS, block[0]));
    Expr begin = first_query(block) + column(ATTNC_ITEM_FIRST, block[0]);
    Expr seen = first_query(block) <= last && first < end && first + tile.keys() > begin;
    if (!in_.masks.has_value() || !in_.masks->key_blocks.defined()) return seen;

    // And some granule of the block mask is kept.
    Expr last_row = max(min(last, in_.seq_q - 1), 0) / kGranule;
    Expr last_column = max(min(column(ATTNC_ITEM_KEYS, block[0]), in_.seq_kv) - 1, 0) / kGranule;
    Expr kept = cast<bool>(false);
    for (int row = 0; row < tile.rows(); row += std::min(tile.rows(), kGranule)) {
        for (int key = 0; key < tile.keys(); key += std::min(tile.keys(), kGranule)) {
            Expr granule_row = min((first_query(block) + row) / kGranule, last_row);
            Expr granule_key = min((first + key) / kGranule, last_column);
            kept = kept || element_of(in_.masks->key_blocks,
                                      {granule_key, granule_row, block[1], item(block[0])}) != 0;
        }
    }
    return seen && (!is_given(ATTNC_MASK_BLOCKS) || kept);
}

// Whether every query of the tile sees every key of the block, as far as intervals go.
Expr AttentionGpu::is_clean(const Expr& of_kb, const Block& block) const {
    Expr first = first_key_of(of_kb, block[2]);
    Expr end = min(first_query(block) + column(ATTNC_ITEM_LAST, block[0]), column(ATTNC_ITEM_KEYS, block[0]));
    return first >= last_query(block) + column(ATTNC_ITEM_FIRST, block[0]) && first + tile.keys() <= end;
}

// Whether the block has anything to do at all.
Expr AttentionGpu::is_wanted(const Block& block) const {
    if (!in_.suspects.has_value()) return cast<bool>(true);
    return element_of(*in_.suspects, {block[1], item(block[0])}) != 0;
}

Expr AttentionGpu::power(const Expr& y) const { return exp_nonpositive_gpu(y, in_.target); }

// ---- Tiles in shared memory

int AttentionGpu::key_lanes() const { return lanes_of(tile.depth, tile.threads.y); }

void AttentionGpu::define_tiles() {
    query_quads(e, u, t, d, n, h, z) =
        in_.q(quad_of(d, in_.head_dim, query_features()) * kQuad + e, q_row(t * kQuad + u, own_block()),
              head_of(t * kQuad + u, own_block()));
    query_tile(u, t, d, n, h, z) = query_quads(d % kQuad, u, t, d / kQuad, n, h, z) * in_.qk_scale;

    const int k_lanes = key_lanes();
    Expr first = first_key_of(kb, z) + (g * tile.threads.x + s) * kQuad;
    key_quads(e, v, s, g, d, kb, n, h, z) = in_.k(d * k_lanes + e, key_row(first, v, n), key_head(h));
    key_tile(v, s, g, d, kb, n, h, z) = key_quads(d % k_lanes, v, s, g, d / k_lanes, kb, n, h, z);

    if (!in_.v.defined()) return;
    value_tile(v, s, g, j, kb, n, h, z) =
        in_.v(quad_of(g * tile.threads.x + s, in_.v_head_dim, value_features()) * kQuad + v,
              key_row(first_key_of(kb, z) + j, 0, n), key_head(h));
}

// ---- Scores

void AttentionGpu::define_scores() {
    score_domains[kGpuSeed] = scores.define("score_seed", [](const ThreadDomain&) { return Expr(0.0f); });
    numbers_[kGpuSeed] = 0;

    ThreadDomain& over = score_domains[kGpuMultiply] =
        scores.over("score", {{0, kQuad}, {0, tile.depth / kQuad}, {0, in_.head_dim / tile.depth}});
    // With the scores in shared memory a chain of four is one update, else it is four.
    const int chain = tile.threads.register_state ? 1 : kQuad;
    if (chain != 1) {
        over = scores.over("score", {{0, tile.depth / kQuad}, {0, in_.head_dim / tile.depth}});
    }
    if (in_.rows == GpuRows::kPairs) over.domain.where(is_visible(kb, own_block()));
    Expr value = scores.at({v, g, u}, over);
    for (int step = 0; step < chain; ++step) {
        const std::vector<RVar>& steps = over.steps;
        Expr feature = chain == 1 ? steps[2] * tile.depth + steps[1] * kQuad + steps[0]
                                  : steps[1] * tile.depth + steps[0] * kQuad + step;
        value =
            value + query_tile(u, over.y, feature, n, h, z) * key_tile(v, over.x, g, feature, kb, n, h, z);
    }
    scores.at({v, g, u}, over) = value;
    numbers_[kGpuMultiply] = 1;
}

// Passes over the scores of a block, in place: soft cap, ALiBi, biases, masks, and what the interval drops last, in blocks
// where it drops something.
void AttentionGpu::define_steps() {
    // change(score, key, key within the item, query within the item, head)
    auto pass = [&](GpuScoreUpdate which, const Expr& condition, auto change) {
        ThreadDomain& over = score_domains[which] = scores.over("score_step", {{0, 1}});
        over.domain.where(condition);
        Expr key = first_key_of(kb, z) + (g * tile.threads.x + over.x) * kQuad + v;
        Expr safe_key = max(min(key, min(column(ATTNC_ITEM_KEYS, n), in_.seq_kv) - 1), 0);
        Expr row = over.y * kQuad + u, once = over.steps[0] == 0;
        Expr changed = change(scores.at({v, g, u}, over), key, safe_key, row);
        scores.at({v, g, u}, over) = select(once, changed, 0.0f);
        numbers_[which] = scores.last_definition();
    };
    if (in_.masks.has_value()) define_masks(pass);
    if (in_.rows == GpuRows::kPairs) return;  // those are dropped where they are stored
    pass(kGpuVisible, !is_clean(kb, own_block()),
         [&](const Expr& score, const Expr& key, const Expr&, const Expr& row) {
             return drop_where(!sees(key, row, own_block()), score);
         });
}

Expr AttentionGpu::sees(const Expr& key, const Expr& local, const Block& block) const {
    Expr query = query_of(local, block);
    return key >= query + column(ATTNC_ITEM_FIRST, block[0]) &&
           key < query + column(ATTNC_ITEM_LAST, block[0]) && key < column(ATTNC_ITEM_KEYS, block[0]);
}

template <typename Pass>
void AttentionGpu::define_masks(const Pass& pass) {
    const GpuMasks& m = *in_.masks;
    const Block block = own_block();
    if (m.softcap.defined()) {
        pass(kGpuSoftcap, is_given(ATTNC_MASK_SOFTCAP),
             [&](const Expr& score, const Expr&, const Expr&, const Expr&) {
                 return scaled_tanh(score, m.softcap);
             });
    }
    if (m.alibi_slopes.defined()) {
        pass(kGpuAlibi, is_given(ATTNC_MASK_ALIBI),
             [&](const Expr& score, const Expr& key, const Expr&, const Expr& row) {
                 Expr distance = cast<float>(abs(query_of(row, block) + column(ATTNC_ITEM_OWN_KEY, n) - key));
                 return add_to_score(score, -m.alibi_slopes(head_of(row, block)) * distance);
             });
    }
    const auto at = [&](const Func& mask, const Expr& key, const Expr& row) -> Expr {
        return mask(key, safe_query(row, block), head_of(row, block), item(n));
    };
    pass(kGpuBias, is_given(ATTNC_MASK_BIAS),
         [&](const Expr& score, const Expr&, const Expr& key, const Expr& row) {
             return add_to_score(score, at(m.bias, key, row));
         });
    pass(kGpuKeyBias, is_given(ATTNC_MASK_KEY_BIAS),
         [&](const Expr& score, const Expr&, const Expr& key, const Expr&) {
             return add_to_score(score, m.key_bias(key, item(n)));
         });
    pass(kGpuKeep, is_given(ATTNC_MASK_KEEP),
         [&](const Expr& score, const Expr&, const Expr& key, const Expr& row) {
             return drop_where(at(m.keep_mask, key, row) == 0, score);
         });
    pass(kGpuDrop, is_given(ATTNC_MASK_DROP),
         [&](const Expr& score, const Expr&, const Expr& key, const Expr& row) {
             return drop_where(at(m.drop_mask, key, row) != 0, score);
         });
    if (!m.key_blocks.defined()) return;
    pass(kGpuBlocks, is_given(ATTNC_MASK_BLOCKS),
         [&](const Expr& score, const Expr&, const Expr& key, const Expr& row) {
             Expr granule = element_of(m.key_blocks, {key / kGranule, safe_query(row, block) / kGranule,
                                                      head_of(row, block), item(n)});
             return drop_where(granule == 0, score);
         });
}

// ---- Weights, products, state

void AttentionGpu::define_weights() {
    const Block block = block_of_keys();
    const auto larger = [&](const Expr& a, const Expr& b) { return larger_gpu(a, b, in_.target); };
    std::vector<Expr> of_thread;
    for (int group = 0; group < tile.key_groups; ++group) {
        for (int key = 0; key < kQuad; ++key) of_thread.emplace_back(scores.at({key, group, u}, s, t, block));
    }
    maxima(u, s, t, kb, n, h, z) = reduce_as_tree(of_thread, larger);

    largest_domain = largest.define("largest_of_block", [&](const ThreadDomain& over) {
        std::vector<Expr> of_row = {kLowest};
        for (int thread = 0; thread < tile.threads.x; ++thread) {
            of_row.emplace_back(maxima(u, thread, over.y, kb, n, h, z));
        }
        return reduce_as_tree(of_row, larger);
    });

    weight_domain = weights.define("weights_of_block", [&](const ThreadDomain& over) {
        Expr score = scores.at({v, g, u}, over);
        Expr weight = power(score - largest.at({u}, over));
        if (!in_.guarded) return weight;
        return reinterpret<float>(select(is_dropped(score), kDroppedWeightBits, reinterpret<int>(weight)));
    });

    sum_domain = sum.define("sum_of_block", [&](const ThreadDomain& over) {
        std::vector<Expr> terms;
        for (int group = 0; group < tile.key_groups; ++group) {
            for (int key = 0; key < kQuad; ++key) terms.emplace_back(weights.at({key, group, u}, over));
        }
        return tree_sum(terms);
    });

    weight_tile(u, t, c, e, kb, n, h, z) =
        weights.at({e, c / tile.threads.x, u}, c % tile.threads.x, t, block);
}

void AttentionGpu::define_products() {
    product_seed = products.define("product_seed", [](const ThreadDomain&) { return Expr(0.0f); });

    const int quads = tile.value_keys / kQuad, chain = tile.threads.register_state ? 1 : kQuad;
    std::vector<std::pair<Expr, Expr>> steps = {{0, quads}, {0, tile.keys() / tile.value_keys}};
    if (chain == 1) steps.insert(steps.begin(), {0, kQuad});
    product_domain = products.over("product", steps);
    const std::vector<RVar>& over = product_domain.steps;
    Expr value = products.at({v, g, u}, product_domain);
    for (int step = 0; step < chain; ++step) {
        Expr place = chain == 1 ? Expr(over[0]) : Expr(step);
        Expr quad = chain == 1 ? over[2] * quads + over[1] : over[1] * quads + over[0];
        Expr weight = weight_tile(u, product_domain.y, quad, place, kb, n, h, z);
        Expr of_key = value_tile(v, product_domain.x, g, quad * kQuad + place, kb, n, h, z);
        if (in_.guarded) of_key = select(reinterpret<int>(weight) == kDroppedWeightBits, 0.0f, of_key);
        value = value + weight * of_key;
    }
    products.at({v, g, u}, product_domain) = value;
}

void AttentionGpu::define_state() {
    const int features = features_of_thread(), sum_place = features, largest_place = features + 1;
    seed = state.define("state_seed",
                        [&](const ThreadDomain&) { return select(i == largest_place, kLowest, 0.0f); });

    const Expr blocks =
        of_groups() ? Expr(in_.split_kv / tile.keys()) : (in_.seq_kv + (tile.keys() - 1)) / tile.keys();
    join = state.over("join", {{0, blocks}});
    const Expr block = join.steps[0];
    join.domain.where(is_wanted(own_block()) && is_visible(block, own_block()));
    const ThreadFunc::Exprs now = {block, n, h, z};
    Expr before = state.at({u, largest_place}, join);
    Expr of_block = largest.at({u}, join.x, join.y, now);
    Expr both = larger_gpu(before, of_block, in_.target);
    Expr keep = power(before - both), add = power(of_block - both);
    ThreadFunc::Exprs places, values;
    for (int place = 0; place < features; ++place) {
        places.emplace_back(place);
        Expr product = products.at({place % kQuad, place / kQuad, u}, join.x, join.y, now);
        values.push_back(state.at({u, place}, join) * keep + product * add);
    }
    places.emplace_back(sum_place);
    values.push_back(state.at({u, sum_place}, join) * keep + sum.at({u}, join.x, join.y, now) * add);
    // Halide frees shared memory behind its last use in the order of the text, and does not see that the loop comes back:
    // the last stage of the loop has to use what all steps read. The condition never holds, and nobody can tell.
    places.emplace_back(largest_place);
    values.push_back(select(in_.q_rows >= 0x7ffffff0, query_tile(u, join.y, 0, n, h, z), both));
    state.at({u, scatter(places)}, join) = gather(values);

    row_sums(u, s, t, n, h, z) = state.at({u, sum_place}, s, t, own_block());
    total_domain = total.define("total_of_row", [&](const ThreadDomain& over) {
        Expr all = row_sums(u, 0, over.y, n, h, z);
        for (int thread = 1; thread < tile.threads.x; ++thread) {
            all = strict_float(all + row_sums(u, thread, over.y, n, h, z));
        }
        return all;
    });
}

// ---- Results

void AttentionGpu::define_stores() {
    const bool pairs = in_.rows == GpuRows::kPairs;
    const Expr tiles = row_tiles() * in_.item_count;
    const Expr heads = of_groups() ? in_.key_heads : in_.q_heads;
    Expr parts = 1;
    if (of_groups()) parts = max((in_.seq_kv + (in_.split_kv - 1)) / in_.split_kv, 1);
    if (pairs) parts = (in_.seq_kv + (tile.keys() - 1)) / tile.keys();
    const int groups = pairs ? tile.key_groups : features_of_thread() / kQuad;
    context_store = RDom({{0, kQuad},
                          {0, groups},
                          {0, kQuad},
                          {0, tile.threads.x},
                          {0, tile.threads.y},
                          {0, tiles},
                          {0, heads},
                          {0, parts}},
                         "results");
    if (pairs) {
        context_store.where(pair_query() < in_.seq_q && pair_key() < in_.seq_kv);
        return;
    }
    context_store.where(is_wanted(store_block()) && is_written(store_row(), store_block()));
    if (value_features() != in_.v_head_dim) context_store.where(column_quad() < in_.v_head_dim / kQuad);
    // Loops over blocks have the names of those above, since both results leave the same launch.
    stats_store = RDom({{0, kRowStats},
                        {0, 1},
                        {0, kQuad},
                        {0, tile.threads.x},
                        {0, tile.threads.y},
                        {0, tiles},
                        {0, heads},
                        {0, parts}},
                       "results");
    stats_store.where(is_wanted(stats_block()) && stats_store[kThreadX] == 0 &&
                      is_written(stats_local_row(), stats_block()));
}

AttentionGpu::Block AttentionGpu::store_block() const {
    return {context_store[kBlockRows], context_store[kBlockHead], context_store[kBlockKeys]};
}
AttentionGpu::Block AttentionGpu::stats_block() const {
    return {stats_store[kBlockRows], stats_store[kBlockHead], stats_store[kBlockKeys]};
}
Expr AttentionGpu::store_row() const { return context_store[kThreadY] * kQuad + context_store[kRow]; }
Expr AttentionGpu::stats_local_row() const { return stats_store[kThreadY] * kQuad + stats_store[kRow]; }

Expr AttentionGpu::context() const {
    const Block block = store_block();
    const Expr x = context_store[kThreadX], y = context_store[kThreadY];
    Expr value =
        state.at({context_store[kRow], context_store[kGroup] * kQuad + context_store[kColumn]}, x, y, block);
    Expr all = total.at({context_store[kRow]}, x, y, block);
    Expr mean = value * select(sees_no_key(all), 0.0f, 1.0f / all);
    return select(counts(store_row(), block), mean, 0.0f);
}

Expr AttentionGpu::column_quad() const {
    return context_store[kGroup] * tile.threads.x + context_store[kThreadX];
}
Expr AttentionGpu::context_feature() const {
    return quad_of(column_quad(), in_.v_head_dim, value_features()) * kQuad + context_store[kColumn];
}

Expr AttentionGpu::written_row(const Expr& local, const Block& block) const {
    return clamp(column(ATTNC_ITEM_QUERY_ROW, block[0]) + query_of(local, block), 0, in_.q_rows - 1);
}
Expr AttentionGpu::context_row() const { return written_row(store_row(), store_block()); }
Expr AttentionGpu::context_head() const { return head_of(store_row(), store_block()); }
Expr AttentionGpu::stats_row() const { return written_row(stats_local_row(), stats_block()); }
Expr AttentionGpu::stats_head() const { return head_of(stats_local_row(), stats_block()); }

Expr AttentionGpu::row_stat() const {
    const Block block = stats_block();
    const Expr x = stats_store[kThreadX], y = stats_store[kThreadY], row = stats_store[kRow];
    Expr stat = mux(stats_store[kStat],
                    {state.at({row, features_of_thread() + 1}, x, y, block), total.at({row}, x, y, block)});
    return select(counts(stats_local_row(), block), stat, mux(stats_store[kStat], {kLowest, 0.0f}));
}

Expr AttentionGpu::pair_key() const {
    return first_key_of(0, context_store[kBlockKeys]) + column_quad() * kQuad + context_store[kColumn];
}

// -infinity where dropped.
Expr AttentionGpu::seen_score() const {
    const Block block = store_block();
    Expr value =
        scores.at({context_store[kColumn], context_store[kGroup], context_store[kRow]},
                  context_store[kThreadX], context_store[kThreadY], {0, block[0], block[1], block[2]});
    return drop_where(!sees(pair_key(), store_row(), block) || !is_visible(0, block), value);
}

Expr AttentionGpu::score() const { return select(counts(store_row(), store_block()), seen_score(), 0.0f); }

Expr AttentionGpu::probability(const Expr& largest_score, const Expr& total_weight,
                               const Expr& empty_rows) const {
    const Block block = store_block();
    Expr value = seen_score(), keys = column(ATTNC_ITEM_KEYS, block[0]);
    Expr seen = select(is_dropped(value), 0.0f, power(value - largest_score) / total_weight);
    Expr mean = select(pair_key() < keys, 1.0f / cast<float>(keys), 0.0f);
    Expr row = select(sees_no_key(total_weight), reinterpret<int>(empty_row_value(empty_rows, mean)),
                      reinterpret<int>(seen));
    return reinterpret<float>(select(counts(store_row(), block), row, 0));
}

}  // namespace attnc
