// Softmax attention of one head over one block of keys, in two passes over the scores: their maximum, which
// leaves the registers together with the scores, then the exponentials and their sum, in place.
//
// Queries lie in vector lanes and keys in rows, so that maximum, exponential and sum are plain vertical
// vector code, K is read by broadcasts and V by rows as they lie in memory, and only the queries of a tile
// are transposed.
#pragma once

#include <Halide.h>

#include <array>
#include <optional>
#include <vector>

#include "stages/attention_tile.h"
#include "stages/prefetch.h"

namespace attnc {

// Masks of a block, each in its own units; read only where its bit of flags (ATTNC_MASK_*) is set.
struct AttentionMasks {
    Halide::Func key_bias;                               // (j)
    Halide::Func bias;                                   // (j, i)
    Halide::Func keep_mask;                              // (j, i)
    Halide::Func drop_mask;                              // (j, i)
    Halide::Func key_blocks;                             // (j / kGranule, i / kGranule); 0: dropped
    Halide::Expr bias_stride, keep_stride, drop_stride;  // of keys
    Halide::Expr flags;
    // Steps that a kernel may lack: undefined then.
    Halide::Expr softcap;               // scores become softcap * tanh(score / softcap)
    Halide::Expr alibi_slope, own_key;  // score(i, j) -= alibi_slope * |i + own_key - j|
};

// What the next call will read and write, as many rows as this one does.
struct AttentionAhead {
    MemoryRows q, k, v, context;
};

struct AttentionInputs {
    Halide::Func q;  // (d, i)
    Halide::Func k;  // (d, j)
    Halide::Func v;  // (d, j); undefined for scores alone
    Halide::Expr qk_scale;
    Halide::Expr first_key;  // query i sees key j when max(0, i + first_key) <= j < min(keys, i + last_key)
    Halide::Expr last_key;
    Halide::Expr queries, keys;  // extents
    int head_dim;                // padded
    int tile_kv;                 // most keys of a block
    std::optional<AttentionMasks> masks;
    std::optional<AttentionAhead> ahead;
    bool side_by_side = false;  // rows of k lie one after another, and so do those of v
    bool guarded = false;       // true: the value of a dropped key is replaced by 0 before it is multiplied
};

// Rows of `block` before the scores. Where there are masks, what they add to a score stands in its place before it; or, in
// the place of the last of four keys, what a keep or drop mask says of them, a byte for each.
enum BlockRow { kRowMax, kRowSum, kRowInverse, kFirstScore };

// Updates of `block`, in order; a form may lack some, and update() gives the numbers of those that are there.
enum BlockUpdate {
    kSeedMax,
    kKeyAddends,    // to kKeptWords: with masks only; without masks of pairs
    kPairAddends,   // with some
    kBlockAddends,  // what a block mask drops
    kKeptWords,     // with a keep or a drop mask, and nothing else of pairs
    kLeftScores,
    kFullScores,
    kFullKeyScores,   // with masks only: kFullScores where masks are the same for all queries
    kFullKeptScores,  // and after kKeptWords
    kRightScores,
    kSeedSum,  // to kInvert: with values only
    kExp,
    kInvert,
    kBlockUpdates
};

// Updates of `pair_addends` or `mask_words` by a mask of pairs.
struct PairMask {
    int update;
    Halide::RDom once;          // around it
    Halide::Expr side_by_side;  // whether kGranule keys lie so in memory
};

// Keys of an update of `context_sums`: x within a step, and steps; in line: all of a step at once.
struct ValueKeys {
    Halide::RDom keys;
    bool in_line;
};

// Scores of steps whose keys all queries of a tile see, by one of several loops of which a call takes one.
struct FullScores {
    BlockUpdate update;
    Halide::Func sums;  // (i, c, s, t)
    Halide::Func
        ahead;  // (d, s, t): 0, and asks for memory that the next call reads, at features d; undefined: nothing is known of that
    Halide::RDom steps;
};

struct AttentionTwoPass {
    AttentionTile tile;
    bool masked, valued;

    // i: query, local to the tile in lane-wise Funcs; j: key; t: tile; c: key inside a step; s: step; d:
    // feature; r: run of keys; n: column of kGranule keys, in which c counts
    Halide::Var i{"i"}, j{"j"}, t{"t"}, c{"c"}, s{"s"}, d{"d"}, l{"l"}, g{"g"}, b{"b"}, x{"x"}, r{"r"},
        n{"n"};

    Halide::Func bounds{"bounds"};  // (x, t): TileBound x
    Halide::Func columns{
        "columns"};             // (c, t): do some queries attend column c of the block mask (1), or all (3)
    Halide::Func runs{"runs"};  // (x, r, t): TileBound x; this one and columns with masks only
    Halide::Func key_addends{"key_addends"};    // (c, n): what is added per key
    Halide::Func pair_addends{"pair_addends"};  // (c, i, n, t): and by bias, keep and drop mask
    Halide::Func addend_quads{"addend_quads"},
        addend_lanes{"addend_lanes"};       // as quads and queries: (l, c, g, n, t)
    Halide::Func mask_words{"mask_words"};  // (c, i, n, t): a byte of the mask for each of four keys
    Halide::Func word_quads{"word_quads"}, word_lanes{"word_lanes"};  // the same of words
    Halide::Func group_bounds{"group_bounds"};                        // (x, g): GroupBound x
    Halide::Func quads{
        "quads"};  // (b, d, l, g, t): queries l + 4 b of vector g, first step of the transposition
    Halide::Func queries{"queries"};  // (l, d, g, t): scaled queries, transposed
    Halide::Func left_sums{"left_sums"}, right_sums{"right_sums"};  // (i, c, s, t)
    std::vector<FullScores> full_scores;
    Halide::Func block{"block"};                // (i, j, t): BlockRow, then scores, then exponentials
    Halide::Func context_sums{"context_sums"};  // (d, i, g)

    Halide::RDom depth;                  // features
    Halide::RDom column_keys, run_keys;  // columns of the block mask, and runs
    // Steps or keys, and with masks runs around them.
    Halide::RDom left, right;
    std::array<Halide::RDom, kBlockUpdates> addend_keys;  // (c, n), of kKeyAddends to kKeptWords
    Halide::RDom key_once;
    std::vector<PairMask> pair_masks, word_masks;
    Halide::RDom exp_keys;
    std::vector<ValueKeys> value_keys;  // of the updates of context_sums

    AttentionTwoPass(const AttentionInputs& in, const AttentionTile& tile_sizes);

    // Number of an update in `block`, and whether this form has it.
    int update(BlockUpdate which) const { return numbers_[which]; }
    bool has(BlockUpdate which) const { return numbers_[which] >= 0; }

    // Results by query.
    Halide::Expr context(const Halide::Var& feature, const Halide::Var& query) const;
    Halide::Expr row_stats(const Halide::Var& query, const Halide::Var& column) const;  // largest score, sum
    // As softmax takes it: -infinity where dropped.
    Halide::Expr score(const Halide::Var& key, const Halide::Var& query) const;
    // exp(score - largest) / sum of key `key`, 0 where dropped.
    Halide::Expr probability(const Halide::Var& key, const Halide::Var& query, const Halide::Expr& largest,
                             const Halide::Expr& sum) const;

private:
    AttentionInputs in_;
    std::array<int, kBlockUpdates> numbers_;  // -1: not there
    void defined(BlockUpdate which);          // after each update of `block`
    Halide::Expr visible(const Halide::Expr& query, const Halide::Expr& key) const;
    Halide::Expr is_given(int flag) const { return (in_.masks->flags & flag) != 0; }
    Halide::Expr run_count(const Halide::Expr& tile_number) const;
    // Steps or keys of a tile between two bounds, at most `most`; with masks run by run.
    Halide::RDom span(const char* name, int most, TileBound first, TileBound end,
                      const Halide::Expr& tile_number) const;
    void define_bounds();
    void define_runs();
    void define_scores();
    Halide::Func define_ahead() const;
    void define_addends();
    void define_pair_addends();
    Halide::Expr pair_key(const Halide::Expr& column, const Halide::Expr& place) const;
    Halide::Expr safe_key(const Halide::Expr& key) const;  // to read what is per key with
    // Whether all that is added is the same for all queries, but for ALiBi: it needs no place in `block` then.
    Halide::Expr is_per_key() const;
    // Whether beside that there is a keep or a drop mask, not both: it has words in `block`, a fourth of its rows.
    Halide::Expr is_kept_by_words() const;
    void define_words();
    // Whether key `key` is dropped for lane i by the words in `block`.
    Halide::Expr is_dropped_by_word(const Halide::Expr& key) const;
    // What is added per key, to the score of lane i.
    Halide::Expr key_addend(const Halide::Expr& key) const;
    Halide::Expr with_alibi(const Halide::Expr& addend, const Halide::Expr& key) const;
    Halide::Expr with_masks(const Halide::Expr& score, const Halide::Expr& addend) const;
    void define_context();
    void add_values(const ValueKeys& keys, const Halide::Expr& number);
    Halide::Expr tile_of_group() const;
    Halide::Expr tile_query(const Halide::Expr& local) const;  // row of q for a lane, clamped
};

}  // namespace attnc
