// Softmax attention of few queries of all heads of a group over one split of keys: what decoding a token does.
//
// Memory decides its speed, so K and V are read once for all rows (a row: one query of one head) of the group, row by
// row as they lie. Features lie in vector lanes: a score is one chain of multiply-adds in each lane, and the lanes of
// several scores are then summed together in a tree of neighbours. Keys come in runs of 16, each somewhere in a pool.
#pragma once

#include <Halide.h>

#include <string>
#include <vector>

#include "runtime/kernel_abi.h"
#include "stages/prefetch.h"

namespace attnc {

constexpr int kRunLanes = ATTNC_RUN_KEYS;       // keys of a run: consecutive rows of the pool
constexpr int kDecodeRows = ATTNC_DECODE_ROWS;  // most rows of a call

// Sizes that the definitions depend on. The lanes are the target's; the others don't change a bit.
struct DecodeTile {
    int lanes = 16;        // floats of a vector: how a sum over features is cut into chains
    int rows = 4;          // rows whose scores leave the registers together; divides kDecodeRows
    int keys = 4;          // and keys; divides kRunLanes
    bool in_line = false;  // scores of one row alone are made key by key, without a loop over features
};

// Steps of a score; what is read only where its bit of flags (ATTNC_MASK_*) is set.
struct DecodeMasks {
    Halide::Func key_bias;      // (j)
    Halide::Func bias;          // (j, i, g)
    Halide::Func keep_mask;     // (j, i, g)
    Halide::Func drop_mask;     // (j, i, g)
    Halide::Expr softcap;       // undefined: the kernel has no such step
    Halide::Func alibi_slopes;  // (g); undefined: the same
    Halide::Expr own_key;       // query i's own key is i + own_key
    Halide::Expr flags;
};

struct DecodeInputs {
    Halide::Func q;                // (d, i, g)
    Halide::Func k;                // (d, row of the pool)
    Halide::Func v;                // (d, row of the pool)
    Halide::Func key_rows;         // (run): row of the run's first key
    Halide::Expr pool_rows, runs;  // extents of k and v, of key_rows
    Halide::Expr keys;
    Halide::Expr qk_scale;
    Halide::Expr first_key;  // query i sees key j when max(0, i + first_key) <= j < min(keys, i + last_key)
    Halide::Expr last_key;
    Halide::Expr queries, heads;  // extents of q
    int head_dim;                 // padded
    int split_kv;                 // most keys
    Halide::Expr ask_ahead;       // not 0: the keys of one row are asked for a run before they are read
    MemoryRows k_memory;
    DecodeMasks masks;
};

// What a call's loops run over; filled once.
enum DecodeBound {
    kFirstRun,  // runs [first, end) hold the keys that some query sees
    kEndRun,
    kFirstVisible,  // those keys [first, end)
    kEndVisible,
    kFirstCleanRun,  // runs [first, end) in which every query sees every key
    kEndCleanRun,
    kSingleEndRun,  // the end for the loops over one row: kFirstRun where there are more
    kRows,          // rows that are computed: 1, or whole blocks of DecodeTile::rows
    kBlocks,        // of rows; 0 where there is one row
    kDecodeBounds
};

// Columns (y) of `scores` and of `weights` before those of the runs.
enum DecodeColumn {
    kLaneStat,
    kFirstRunColumn
};  // the largest score, the sum of weights, of each of 16 lanes

// Updates of `scores`, in order.
enum ScoreUpdate { kSeedLargest, kSingleScores, kBlockScores, kFirstPass };  // then those of score_passes
// Updates of `weights`.
enum WeightUpdate { kSeedSums, kWeights };
// Updates of `single_part` and `block_part`.
enum PartUpdate { kCleanRun, kAnyRun, kPartUpdates };
// Updates of `context_sums`.
enum ContextUpdate { kSeedContext, kSingleContext, kBlockContext };

// The scores of some rows and keys as sums over features. Vectors of lanes, one for each score, are summed in a tree:
// each level sums neighbours and so has half as many vectors, and after the last one there is one lane for each score.
struct DotTree {
    Halide::Func products;             // (l, n, t, s, m): lane l of score n of a step
    Halide::Func by_key;               // the same, where they are made key by key; undefined elsewhere
    std::vector<Halide::Func> levels;  // (l, n, t, s, m): lane l of vector n
    Halide::RDom depth;
    int lanes;

    Halide::Expr sum(const Halide::Expr& score, const Halide::Expr& t, const Halide::Expr& s,
                     const Halide::Expr& m) const {
        return levels.back()(score % lanes, score / lanes, t, s, m);
    }
};

struct AttentionDecode {
    DecodeTile tile;

    // d: feature; i: query; g: head; c: statistic; x: key in a run; y: column; r: row; l: lane; n: score of a step;
    // t: tile of keys in a run; s: run; m: block of rows
    Halide::Var d{"d"}, i{"i"}, g{"g"}, c{"c"}, x{"x"}, y{"y"}, r{"r"}, l{"l"}, n{"n"}, t{"t"}, s{"s"},
        m{"m"};

    Halide::Func bounds{"bounds"};        // (x): DecodeBound x
    Halide::Func row_query{"row_query"};  // (r): its query and its head
    Halide::Func queries{"queries"};      // (d, r): scaled
    Halide::Func run_rows{"run_rows"};  // (x, s): row of the pool; the last key's where the run is cut short
    DotTree single, block;              // of one row, of blocks of rows
    Halide::Func scores{"scores"};      // (x, y, r)
    Halide::Func largest{"largest"};    // (r)
    Halide::Func weights{"weights"};    // (x, y, r): exponentials, -0 where dropped
    Halide::Func total{"total"};        // (r)
    Halide::Func single_part{
        "single_part"};  // (d, s): context of one run of keys, before it is divided by the total
    Halide::Func block_part{"block_part"};      // (d, r, s)
    Halide::Func context_sums{"context_sums"};  // (d, r)
    Halide::Func key_ahead{"key_ahead"};        // (x, s): 0, and asks for key x of the run after s

    // Loops, as far as bounds say. Over rows:
    Halide::RDom rows_of_query, query_rows, seed_rows, largest_rows, weight_seed_rows, total_rows,
        context_rows;
    // over runs:
    Halide::RDom table_runs, single_runs, value_runs;
    // over (run, row), of each step of the scores, the last one of which drops by interval; and of the weights:
    std::vector<Halide::RDom> score_passes;
    Halide::RDom weight_runs;
    // over (row in block, block, run):
    Halide::RDom block_runs, value_block_runs;
    // over the keys of a run:
    Halide::RDom single_keys[kPartUpdates], block_keys[kPartUpdates];

    AttentionDecode(const DecodeInputs& in, const DecodeTile& sizes);

    // Results by query and head.
    Halide::Expr context(const Halide::Var& feature, const Halide::Var& query, const Halide::Var& head) const;
    Halide::Expr row_stats(const Halide::Var& query, const Halide::Var& head,
                           const Halide::Var& column) const;
    Halide::Expr asks_ahead() const { return in_.ask_ahead != 0; }

private:
    DecodeInputs in_;
    void define_bounds();
    void define_scores();
    void define_passes();
    void define_weights();
    void define_context();
    void define_ahead();
    DotTree dot_tree(const std::string& name, const Halide::Expr& key, const Halide::Expr& row,
                     const Halide::Expr& ahead, bool in_line);
    Halide::Expr first_row(const Halide::Expr& run) const;
    Halide::Expr pool_row(const Halide::Expr& row) const;
    Halide::RDom rows_within(const std::string& name) const;
    Halide::Expr query_of(const Halide::Expr& row) const;
    Halide::Expr head_of(const Halide::Expr& row) const;
};

}  // namespace attnc
