// Softmax attention on a GPU: a block of threads makes the contexts of a tile of rows, going through the keys in blocks of
// tile_kv that pass through shared memory (Online softmax, Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022).
//
// A row is a query of one head, or of one of the heads that share a head of K and V, where queries are few. Each thread
// holds the scores of 4 rows and 4 keys of each group of keys, and the contexts of 4 rows and 4 features of each group of
// features. A block of keys has a largest score and a sum of its own, which then join those of the blocks before; where a
// row sees nothing of a block, the join changes no bit, so that it doesn't matter which blocks other rows of the tile see.
#pragma once

#include <Halide.h>

#include <optional>
#include <string>
#include <vector>

#include "stages/gpu_items.h"
#include "stages/gpu_threads.h"

namespace attnc {

struct AttentionGpuTile {
    GpuThreads threads;   // x: along keys and features; y: along rows
    int key_groups = 1;   // fours of keys of a thread
    int depth = 64;       // features of a block of keys in shared memory at a time; divides the padded head
    int value_keys = 64;  // keys of a block of values in shared memory at a time; divides keys()

    int rows() const { return kQuad * threads.y; }
    int keys() const { return kQuad * threads.x * key_groups; }
};

// As AttentionMasks and DecodeMasks, for all heads and items.
struct GpuMasks {
    Halide::Func key_bias;          // (j, b)
    Halide::Func bias;              // (j, i, h, b)
    Halide::Func keep_mask;         // (j, i, h, b)
    Halide::Func drop_mask;         // (j, i, h, b)
    Halide::ImageParam key_blocks;  // (j / kGranule, i / kGranule, h, b); undefined: the kernel has none
    Halide::Expr flags;
    Halide::Expr softcap;       // undefined: the kernel has no such step
    Halide::Func alibi_slopes;  // (h); undefined: the same
};

// What the blocks of threads share out among them.
enum class GpuRows {
    kQueries,  // blocks by tiles of queries and items, heads of Q
    kGroups,   // by tiles of (query, head of the group) and items, heads of K and V, splits of keys
    kPairs,    // as kQueries, and blocks of keys: a number for each query and key, without values
};

struct AttentionGpuInputs {
    Halide::Func q;                              // (d, m, h)
    Halide::Func k;                              // (d, m, h)
    Halide::Func v;                              // (d, m, h); undefined for scores alone
    Halide::ImageParam items;                    // (c, b): ATTNC_ITEM_*
    std::optional<Halide::ImageParam> key_runs;  // (r, b): where keys lie; not given: by the items
    Halide::Expr q_rows, key_rows;               // extents of m
    Halide::Expr q_heads, key_heads;             // extents of h
    Halide::Expr item_count;                     // extent of b
    Halide::Expr seq_q, seq_kv;                  // most rows and keys of an item
    Halide::Expr qk_scale;
    int head_dim = 0, v_head_dim = 0;  // padded
    GpuRows rows = GpuRows::kQueries;
    int split_kv = 0;  // with kGroups: keys of a split, a multiple of the tile's
    std::optional<GpuMasks> masks;
    bool guarded = false;                        // true: the value of a dropped key isn't multiplied
    std::optional<Halide::ImageParam> suspects;  // (h, b): where it is 0, nothing is done
    Halide::Target target;
};

// Updates of `scores`, in order; a kernel may lack some.
enum GpuScoreUpdate {
    kGpuSeed,
    kGpuMultiply,
    kGpuSoftcap,
    kGpuAlibi,
    kGpuBias,
    kGpuKeyBias,
    kGpuKeep,
    kGpuDrop,
    kGpuBlocks,
    kGpuVisible,
    kGpuScoreUpdates
};

struct AttentionGpu {
    AttentionGpuTile tile;

    // u: row of four; v: key or feature of four; g: group; s, t: thread; e: place in four; d: feature; j: key of the
    // block; c: four of keys; i: column of the state; kb: block of keys (within the split); n: tile of rows and item;
    // h: head; z: split or block of keys
    Halide::Var u{"u"}, v{"v"}, g{"g"}, s{"s"}, t{"t"}, e{"e"}, d{"d"}, j{"j"}, c{"c"}, i{"i"}, kb{"kb"},
        n{"n"}, h{"h"}, z{"z"};

    Halide::Func query_quads{"query_quads"};  // (e, u, t, d / lanes, n, h, z)
    Halide::Func query_tile{"query_tile"};    // (u, t, d, n, h, z), shared: scaled
    Halide::Func key_quads{"key_quads"};      // (e, v, s, g, d / lanes, kb, n, h, z)
    Halide::Func key_tile{"key_tile"};        // (v, s, g, d, kb, n, h, z), shared
    ThreadFunc scores;                        // (v, g, u)
    Halide::Func maxima{"maxima"};            // (u, s, t, kb, n, h, z), shared: of each thread
    ThreadFunc largest;                       // (u): of the block of keys
    ThreadFunc weights;                       // (v, g, u)
    ThreadFunc sum;                           // (u): of the thread's weights
    Halide::Func weight_tile{"weight_tile"};  // (u, t, c, e, kb, n, h, z), shared
    Halide::Func value_tile{"value_tile"};    // (v, s, g, j, kb, n, h, z), shared
    ThreadFunc products;                      // (v, g, u): weights times values
    ThreadFunc state;                         // (u, i): features, then sum and largest
    Halide::Func row_sums{"row_sums"};        // (u, s, t, n, h, z), shared
    ThreadFunc total;                         // (u)

    // Domains of updates. Steps of multiply: four, feature in step, step; of products: four, four of keys in step, step;
    // of join: block of keys.
    ThreadDomain score_domains[kGpuScoreUpdates];
    ThreadDomain largest_domain, weight_domain, sum_domain, product_seed, product_domain, seed, join,
        total_domain;

    // Where results go: StoreDimension. With kPairs, keys are in the place of features.
    Halide::RDom context_store, stats_store;
    enum StoreDimension { kColumn, kGroup, kRow, kThreadX, kThreadY, kBlockRows, kBlockHead, kBlockKeys };
    static constexpr int kStat = kColumn;  // of stats_store

    AttentionGpu(const AttentionGpuInputs& in, const AttentionGpuTile& sizes);

    // Number of an update of `scores`, -1: not there.
    int update(GpuScoreUpdate which) const { return numbers_[which]; }
    // Features of a row, filled up so that all threads have as many: what is beyond the head is a copy of its end, and isn't
    // stored.
    int query_features() const { return filled_up(in_.head_dim); }
    int value_features() const { return filled_up(in_.v_head_dim); }
    int features_of_thread() const { return value_features() / tile.threads.x; }
    // Floats of a row of keys that are loaded together.
    int key_lanes() const;

    // Of an element of context_store: its place and value.
    Halide::Expr context() const;
    Halide::Expr context_feature() const;
    Halide::Expr context_row() const;  // of the context's m
    Halide::Expr context_head() const;
    // Of stats_store.
    Halide::Expr row_stat() const;
    Halide::Expr stats_row() const;
    Halide::Expr stats_head() const;

    // With kPairs, of an element of context_store: the query in its item, the key, the item.
    Halide::Expr pair_query() const { return query_of(store_row(), store_block()); }
    Halide::Expr pair_key() const;
    Halide::Expr pair_item() const { return item(store_block()[0]); }
    // As softmax takes it: -infinity where dropped and past the item's keys; 0 in rows that don't count.
    Halide::Expr score() const;
    // 0 in both; in rows that see no key what empty_rows (attnc_empty_rows) says.
    Halide::Expr probability(const Halide::Expr& largest_score, const Halide::Expr& total_weight,
                             const Halide::Expr& empty_rows) const;
    // Row of q of an element, within it.
    Halide::Expr pair_row() const { return q_row(store_row(), store_block()); }

private:
    using Block = std::vector<Halide::Expr>;  // n, h, z
    AttentionGpuInputs in_;
    int numbers_[kGpuScoreUpdates];

    int filled_up(int features) const {
        const int quads = kQuad * tile.threads.x;
        return (features + quads - 1) / quads * quads;
    }
    Halide::Expr column_quad() const;
    ThreadFunc::Vars blocks() const { return {n, h, z}; }
    Block own_block() const { return {n, h, z}; }
    Block block_of_keys() const { return {kb, n, h, z}; }
    Block store_block() const;
    Block stats_block() const;
    Halide::Expr store_row() const;
    Halide::Expr stats_local_row() const;

    bool of_groups() const { return in_.rows == GpuRows::kGroups; }
    Halide::Expr row_tiles() const;
    Halide::Expr group() const { return in_.q_heads / in_.key_heads; }
    Halide::Expr item(const Halide::Expr& of_n) const;
    Halide::Expr column(int which, const Halide::Expr& of_n) const;
    Halide::Expr flat_row(const Halide::Expr& local, const Block& block) const;
    Halide::Expr query_of(const Halide::Expr& local, const Block& block) const;
    Halide::Expr safe_query(const Halide::Expr& local, const Block& block) const;
    Halide::Expr head_of(const Halide::Expr& local, const Block& block) const;
    Halide::Expr is_written(const Halide::Expr& local, const Block& block) const;
    Halide::Expr counts(const Halide::Expr& local, const Block& block) const;
    Halide::Expr q_row(const Halide::Expr& local, const Block& block) const;
    Halide::Expr key_head(const Halide::Expr& of_h) const { return of_groups() ? of_h : of_h / group(); }
    Halide::Expr first_key_of(const Halide::Expr& of_kb, const Halide::Expr& of_z) const;
    // Of key `first` + `next` of the same run, or of one that counts in its place.
    Halide::Expr key_row(const Halide::Expr& first, const Halide::Expr& next, const Halide::Expr& of_n) const;
    // The queries of a tile: the first and the last one that count.
    Halide::Expr first_query(const Block& block) const;
    Halide::Expr last_query(const Block& block) const;
    Halide::Expr seen_score() const;
    Halide::Expr is_visible(const Halide::Expr& of_kb, const Block& block) const;
    Halide::Expr is_clean(const Halide::Expr& of_kb, const Block& block) const;
    Halide::Expr is_given(int flag) const { return (in_.masks->flags & flag) != 0; }
    Halide::Expr sees(const Halide::Expr& key, const Halide::Expr& local, const Block& block) const;
    Halide::Expr written_row(const Halide::Expr& local, const Block& block) const;
    Halide::Expr is_wanted(const Block& block) const;
    Halide::Expr power(const Halide::Expr& y) const;

    void define_tiles();
    void define_scores();
    void define_steps();
    template <typename Pass>
    void define_masks(const Pass& pass);
    void define_weights();
    void define_products();
    void define_state();
    void define_stores();
};

}  // namespace attnc
