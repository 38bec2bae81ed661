/* What a library holds for a device (CUDA), as kernel_abi.h has it for CPUs: kernels, what each takes, and their layout.
 * Plain C; included by kernel_abi.h.
 *
 * A kernel takes a whole batch, or a slice of one: where a CPU's kernels are called for each head of each item, here a
 * launch's grid is that list. All buffers are in device memory. Halide's order, innermost dimension first: `d` features of a
 * head, padded with zeros to a multiple of ATTNC_HEAD_ALIGN in every buffer between kernels; `m` rows (tokens of all items),
 * `h` heads, `b` items, `i` queries and `j` keys of an item, `k` inner features of a projection, `n` columns of a panel of
 * weights, `c` columns of a table. Every buffer has min 0, and stride 1 in its first dimension unless said otherwise; rows of
 * padded heads and of weights begin at multiples of 16 bytes.
 *
 * Of a launch's grid x goes over rows and items together, so that neither has a limit but 2^31; y, of at most 65535, over
 * heads, for projections over panels of columns; z over splits of keys and, for probabilities and scores, over blocks of
 * tile_kv keys. No extent may be 0: a call without queries has nothing to launch, one without keys passes a row of any.
 */
#ifndef ATTNC_DEVICE_ABI_H
#define ATTNC_DEVICE_ABI_H

#include <stdint.h>

/* Kernels for a device, in the order of the table: X(id, name). A library lacks those that its configuration never calls.
 *
 * fill_items     query_lengths (b), key_lengths (b), causal_offsets (b), query_starts (b + 1), key_starts (b + 1), given,
 *     seq_q, seq_kv, diagonal, window_left, window_right -> items (c, b), query_counts (b), key_counts (b)
 *     Columns of items are ATTNC_ITEM_*. The five tables are int32 with any stride (of a table of int64 the low halves);
 *     `given` (ATTNC_GIVEN_*) says which are read, the others are any valid buffers of these extents. Without starts item b has
 *     rows b * seq_q .. of q and b * seq_kv .. of k; with them rows starts(b) .. starts(b + 1). Lengths outside of 0 .. rows of the item become the nearest of these,
 *     starts the same for seq_q * items rows. diagonal is ATTNC_DIAGONAL_*; a window's side that is not limited is negative,
 *     and a window without a diagonal is on the bottom-right one. query_counts and key_counts are the lengths.
 * project_heads  x (k, m), weights (n, k, p), bias_vector (n, p), lengths (b), seq -> y (d, m, h)
 *     y = x * weights + bias: one plane of rows for each padded head. Rows b * seq .. b * seq + lengths(b) count, the others
 *     become 0 and are not read. Panels are `panel` columns; k of weights is filled up with zeros to a multiple of `depth`.
 * project_out    the same -> out (n, m), panels of out_panel columns, k to a multiple of out_depth
 * attend         q (d, m, h), k (d, m, h), v (d, m, h), items, seq_q, seq_kv, qk_scale -> context (d, h, m), row_stats (m, h, c)
 *     softmax attention; h of k may be fewer than of q, which then share them in groups. row_stats as of the CPU's attend:
 *     the largest score and the sum. Rows of an item past its queries get context 0. seq_q and seq_kv are the most of an
 *     item.
 * attend_masked  the same and key_bias (j, b), bias, keep_mask, drop_mask (j, i, h, b), key_blocks (jb, ib, h, b), mask_flags, and
 *     as the configuration has them softcap, alibi_slopes (h). Masks have any strides, 0 included; mask_flags are those of
 *     ATTNC_MASK_*.
 * attend_suspects  context, items, seq_q -> suspects (h, b): 1 where a context is not finite
 * attend_guarded  attend_masked's and suspects -> context, row_stats, which attend or attend_masked wrote: heads of items that
 *     are suspect are done again without multiplying the values of dropped keys; the others keep their bits.
 * attend_decode  attend_masked's without key_blocks -> context (d, h, m, split), row_stats (m, h, c, split): splits of split_kv keys
 *     at absolute multiples. A block of threads has the queries of all heads that share one of K and V. Guarded in itself.
 * attend_merge   contexts (d, h, m, split), row_stats_in (m, h, c, split) and, in a library with sinks, sinks (h)
 *     -> context (d, h, m), row_stats (m, h, c): joins disjoint sets of keys, then the sink, which rows that don't count
 *     get as well.
 * fill_empty     row_stats_in (m, h, c), v (d, m, h), items, seq_q, empty_rows -> context (d, h, m): rows that count and
 *     whose sum is 0 become what empty_rows (attnc_empty_rows) says; the others keep their bits.
 * attend_lse     row_stats_in (m, h, c), items -> lse (i, h, b): log-sum-exp, -inf in rows that see no key or don't count
 * attend_probs   attend_masked's without v, row_stats_in, empty_rows -> probs (j, i, h, b): weights; 0 where dropped, in rows that
 *     don't count and for keys past an item's; rows that see no key are what empty_rows says: NaN for every key, or the same
 *     weight for each of the item's.
 * attend_scores  the same without row_stats_in and empty_rows -> scores (j, i, h, b): -inf where dropped and past an item's keys, 0
 *     in rows that don't count
 * average_probs  probs (j, i, h, b) -> averaged (j, i, b): mean over the heads
 * split_heads    x (d, i, h, b), lengths (b) -> y (d, m, h): row b * i's extent + i; rows that don't count and padding are 0 and are
 *     not read
 * merge_heads    context (d, h, m), lengths (b) -> out (d, i, h, b): the extent of d of out; rows that don't count become 0
 * norm_heads     x (d, m, h), norm_weight (d), epsilon -> y (d, m, h): as of the CPU. y may be x.
 * rotary_angles  positions (i, b), position_offsets (b), given, first_row, frequencies (r), magnitude -> cos_table (r, m),
 *     sin_table (r, m)
 *     row m = b * i's extent + i has position positions(i, b), or position_offsets(b) + first_row + i, or first_row + i, as
 *     `given` says; int32 of any stride. Frequencies and accuracy as of the CPU's rotary_angles.
 * rotary_rows    positions, position_offsets, given, first_row, table_cos (r, t), table_sin (r, t) -> cos_table (r, m),
 *     sin_table (r, m): the
 *     caller's own table instead; positions outside of it become the nearest
 * rotate_heads   cos_table (r, m), sin_table (r, m), x (d, m, h) -> y (d, m, h): as of the CPU. y may be x.
 * fill_key_bias  bias, key_bias_in, keep_mask, key_keep_mask, drop_mask, key_drop_mask (j, b), given -> key_bias (j, b)
 *     What a call gives per key, with any strides, as one number to add: the sum of the biases, at least the lowest finite
 *     number; -inf where a bias is, or a mask drops the key. `given` (ATTNC_GIVEN_*) says which are read, the others are any
 *     valid buffers of these extents.
 * fill_key_blocks  block_keep_mask (kb, qb, h, b), block_q, block_kv -> key_blocks (jb, ib, h, b): a mask, with any strides, of blocks
 *     of block_q queries and block_kv keys, multiples of 16, as the granules of 16 x 16 that attention takes.
 * fill_positions  starts (b + 1), position_offsets (b), given, seq -> row_positions (m): of packed tokens. Row starts(b) + i,
 *     before starts(b + 1) and i < seq, has position i, with ATTNC_GIVEN_POSITION_OFFSETS position_offsets(b) + i or the last of int32.
 *     Tables as those of fill_items. Rows of no item are not written.
 * clear_rows     items, seq_q -> out (n, m): rows of items that don't count become 0; all others keep their bits.
 *
 * In a library with cache attend, attend_masked, attend_guarded, attend_decode, attend_probs, attend_scores and fill_empty take
 * key_runs (r, b) besides: key j of item b is row key_runs(j / ATTNC_RUN_KEYS, b) + j % ATTNC_RUN_KEYS of k and v. In others it
 * is row ATTNC_ITEM_KEY_ROW + j. Such a library has, n being slots:
 *
 * fill_cache     cache_lengths (n), cache_slots (b), key_lengths (b), given, seq, max_keys, slots -> held (b), counts (b),
 *     slots_out (b)
 *     An item's keys before and after a call that brings at most seq for each. Tables as those of fill_items. slots_out is
 *     cache_slots(b) with ATTNC_GIVEN_CACHE_SLOTS, else b, or what is nearest of 0 .. slots - 1. held is
 *     cache_lengths(slots_out), with ATTNC_GIVEN_PAGED cache_lengths(b), which then has an element for each item, or what is
 *     nearest of 0 .. max_keys. counts is held and key_lengths(b), with ATTNC_GIVEN_KEY_LENGTHS, else seq, of which neither more
 *     than seq count nor more than max_keys leaves room for.
 * fill_runs      items, counts (b), cache_slots (b), block_table (p, b), given, slot_rows, capacity, page_size, pages
 *     -> key_runs (r, b)
 *     key_runs(r, b) is the row of key r * ATTNC_RUN_KEYS of item b, which the next ATTNC_RUN_KEYS - 1 follow; 0 where that key is
 *     none of counts(b). With ATTNC_GIVEN_PAGED: page block_table(key / page_size, b), or what is nearest of 0 .. pages - 1,
 *     times page_size, and key % page_size. With ATTNC_GIVEN_CACHE_SLOTS: cache_slots(b), which is fill_cache's slots_out, times
 *     slot_rows, and key % capacity; capacity is a ring's, else slot_rows. With neither: ATTNC_ITEM_KEY_ROW and key, for keys
 *     that are in no cache. block_table is int32 with any strides; tables that aren't given are any valid buffers, and sizes
 *     any numbers. slot_rows, capacity and page_size are multiples of ATTNC_RUN_KEYS.
 * append_rows    x (d, m, h), first_rows (b), held (b), counts (b), key_runs (r, b), seq -> y (d, n, h), n being rows of a cache
 *     Row first_rows(b) + i of x becomes the row of key held(b) + i, for i < counts(b) - held(b), at most seq of each item. Nothing
 *     else of x is read, nor of y written. first_rows has any stride. Keys of one launch have rows of their own: of a ring an item
 *     brings no more than its capacity.
 * keep_lengths   counts (b), cache_slots (b), capacity -> kept (n)
 *     A number of each slot, which are n: those of the items' slots become counts, or with a capacity above 0 at least counts -
 *     capacity, which is what a ring still holds. Slots of no item keep theirs.
 */
#define ATTNC_DEVICE_KERNELS(X)         \
    X(FILL_ITEMS, fill_items)           \
    X(PROJECT_HEADS, project_heads)     \
    X(PROJECT_OUT, project_out)         \
    X(ATTEND, attend)                   \
    X(ATTEND_MASKED, attend_masked)     \
    X(ATTEND_SUSPECTS, attend_suspects) \
    X(ATTEND_GUARDED, attend_guarded)   \
    X(ATTEND_DECODE, attend_decode)     \
    X(ATTEND_MERGE, attend_merge)       \
    X(FILL_EMPTY, fill_empty)           \
    X(ATTEND_LSE, attend_lse)           \
    X(ATTEND_PROBS, attend_probs)       \
    X(ATTEND_SCORES, attend_scores)     \
    X(AVERAGE_PROBS, average_probs)     \
    X(SPLIT_HEADS, split_heads)         \
    X(MERGE_HEADS, merge_heads)         \
    X(NORM_HEADS, norm_heads)           \
    X(ROTARY_ANGLES, rotary_angles)     \
    X(ROTARY_ROWS, rotary_rows)         \
    X(ROTATE_HEADS, rotate_heads)       \
    X(FILL_KEY_BIAS, fill_key_bias)     \
    X(FILL_KEY_BLOCKS, fill_key_blocks) \
    X(FILL_POSITIONS, fill_positions)   \
    X(CLEAR_ROWS, clear_rows)           \
    X(FILL_CACHE, fill_cache)           \
    X(FILL_RUNS, fill_runs)             \
    X(APPEND_ROWS, append_rows)         \
    X(KEEP_LENGTHS, keep_lengths)

/* Arguments of kernels for a device: X(id, name). A kernel with an argument of any other name does not build. */
#define ATTNC_DEVICE_ARGUMENTS(X)         \
    X(USER_CONTEXT, __user_context)       \
    X(QUERY_LENGTHS, query_lengths)       \
    X(KEY_LENGTHS, key_lengths)           \
    X(CAUSAL_OFFSETS, causal_offsets)     \
    X(QUERY_STARTS, query_starts)         \
    X(KEY_STARTS, key_starts)             \
    X(GIVEN, given)                       \
    X(SEQ_Q, seq_q)                       \
    X(SEQ_KV, seq_kv)                     \
    X(DIAGONAL, diagonal)                 \
    X(WINDOW_LEFT, window_left)           \
    X(WINDOW_RIGHT, window_right)         \
    X(ITEMS, items)                       \
    X(QUERY_COUNTS, query_counts)         \
    X(KEY_COUNTS, key_counts)             \
    X(INPUT, x)                           \
    X(WEIGHTS, weights)                   \
    X(BIAS_VECTOR, bias_vector)           \
    X(LENGTHS, lengths)                   \
    X(SEQ, seq)                           \
    X(Y, y)                               \
    X(OUT, out)                           \
    X(Q, q)                               \
    X(K, k)                               \
    X(V, v)                               \
    X(QK_SCALE, qk_scale)                 \
    X(CONTEXT, context)                   \
    X(ROW_STATS, row_stats)               \
    X(KEY_BIAS, key_bias)                 \
    X(BIAS, bias)                         \
    X(KEEP_MASK, keep_mask)               \
    X(DROP_MASK, drop_mask)               \
    X(KEY_BLOCKS, key_blocks)             \
    X(MASK_FLAGS, mask_flags)             \
    X(SOFTCAP, softcap)                   \
    X(ALIBI_SLOPES, alibi_slopes)         \
    X(SUSPECTS, suspects)                 \
    X(CONTEXTS, contexts)                 \
    X(ROW_STATS_IN, row_stats_in)         \
    X(SINKS, sinks)                       \
    X(EMPTY_ROWS, empty_rows)             \
    X(LSE, lse)                           \
    X(PROBS, probs)                       \
    X(SCORES, scores)                     \
    X(AVERAGED, averaged)                 \
    X(NORM_WEIGHT, norm_weight)           \
    X(EPSILON, epsilon)                   \
    X(POSITIONS, positions)               \
    X(POSITION_OFFSETS, position_offsets) \
    X(FREQUENCIES, frequencies)           \
    X(MAGNITUDE, magnitude)               \
    X(TABLE_COS, table_cos)               \
    X(TABLE_SIN, table_sin)               \
    X(COS_TABLE, cos_table)               \
    X(SIN_TABLE, sin_table)               \
    X(KEY_BIAS_IN, key_bias_in)           \
    X(KEY_KEEP_MASK, key_keep_mask)       \
    X(KEY_DROP_MASK, key_drop_mask)       \
    X(BLOCK_KEEP_MASK, block_keep_mask)   \
    X(BLOCK_Q, block_q)                   \
    X(BLOCK_KV, block_kv)                 \
    X(CACHE_LENGTHS, cache_lengths)       \
    X(CACHE_SLOTS, cache_slots)           \
    X(MAX_KEYS, max_keys)                 \
    X(SLOTS, slots)                       \
    X(HELD, held)                         \
    X(COUNTS, counts)                     \
    X(SLOTS_OUT, slots_out)               \
    X(BLOCK_TABLE, block_table)           \
    X(SLOT_ROWS, slot_rows)               \
    X(CAPACITY, capacity)                 \
    X(PAGE_SIZE, page_size)               \
    X(PAGES, pages)                       \
    X(KEY_RUNS, key_runs)                 \
    X(KEPT, kept)                         \
    X(FIRST_ROWS, first_rows)             \
    X(FIRST_ROW, first_row)               \
    X(STARTS, starts)                     \
    X(ROW_POSITIONS, row_positions)

#define ATTNC_X(id, name) ATTNC_DEVICE_KERNEL_##id,
enum { ATTNC_DEVICE_KERNELS(ATTNC_X) ATTNC_DEVICE_KERNEL_COUNT };
#undef ATTNC_X
#define ATTNC_X(id, name) ATTNC_DEVICE_ARGUMENT_##id,
enum { ATTNC_DEVICE_ARGUMENTS(ATTNC_X) ATTNC_DEVICE_ARGUMENT_COUNT };
#undef ATTNC_X

/* Columns of items, int32. */
enum {
    ATTNC_ITEM_QUERY_ROW, /* row of its first query in q, and of the context */
    ATTNC_ITEM_QUERIES,   /* those that count */
    ATTNC_ITEM_ROWS,      /* rows of the context that are written; those that don't count become 0 */
    ATTNC_ITEM_KEY_ROW,   /* row of its first key in k and v */
    ATTNC_ITEM_KEYS,      /* those that count */
    ATTNC_ITEM_FIRST,     /* query i sees key j when max(0, i + first) <= j < min(keys, i + last) */
    ATTNC_ITEM_LAST,
    ATTNC_ITEM_OWN_KEY, /* query i's own key is i + own_key: where ALiBi has its distance from */
    ATTNC_ITEM_COLUMNS
};

/* Bits of `given`: tables and masks that are read. */
enum {
    ATTNC_GIVEN_QUERY_LENGTHS = 1,
    ATTNC_GIVEN_KEY_LENGTHS = 2,
    ATTNC_GIVEN_CAUSAL_OFFSETS = 4,
    ATTNC_GIVEN_QUERY_STARTS = 8,
    ATTNC_GIVEN_KEY_STARTS = 16,
    ATTNC_GIVEN_POSITIONS = 32,
    ATTNC_GIVEN_POSITION_OFFSETS = 64,
    ATTNC_GIVEN_BIAS = 128,
    ATTNC_GIVEN_KEY_BIAS = 256,
    ATTNC_GIVEN_KEEP_MASK = 512,
    ATTNC_GIVEN_KEY_KEEP_MASK = 1024,
    ATTNC_GIVEN_DROP_MASK = 2048,
    ATTNC_GIVEN_KEY_DROP_MASK = 4096,
    ATTNC_GIVEN_CACHE_SLOTS = 8192,
    ATTNC_GIVEN_PAGED = 16384 /* the cache has pages instead of slots */
};

/* The diagonal of a call. */
enum {
    ATTNC_DIAGONAL_NONE = 0,
    ATTNC_DIAGONAL_TOP_LEFT = 1,
    ATTNC_DIAGONAL_BOTTOM_RIGHT = 2,
    ATTNC_DIAGONAL_OFFSETS = 3
};

/* The code of a kernel for a device: PTX, zero-terminated, for architecture 0 and the newest; or a cubin for one (80: sm_80). */
typedef struct attnc_device_image {
    int64_t architecture;
    const void* data;
    int64_t bytes;
} attnc_device_image;

/* A kernel: host code that checks its buffers and launches. It takes arguments as attnc_kernel_argv does; behind USER_CONTEXT is an
 * attnc_task. What it leaves undefined for the device the runtime implements: no kernel loads a module by itself. */
typedef struct attnc_device_kernel {
    int32_t (*run)(void** argv); /* null: not in this library */
    const int64_t* arguments;    /* ATTNC_DEVICE_ARGUMENT_*, in argv's order */
    int64_t argument_count;
    const attnc_device_image* images; /* cubins, then the PTX */
    int64_t image_count;
} attnc_device_kernel;

/* In elements. */
typedef struct attnc_device_layout {
    int64_t panel, out_panel; /* columns of a packed panel of wq, wk, wv and of wo */
    int64_t depth, out_depth; /* inner features of their weights are filled up to multiples of these */
    int64_t tile_kv;          /* keys of a block of attention, at absolute multiples */
    int64_t split_kv;         /* keys of a split of attend_decode, at absolute multiples */
    int64_t tile_q;           /* queries of a block of threads of attend */
    int64_t decode_rows;      /* rows (queries times heads of a group) of a block of attend_decode */
} attnc_device_layout;

/* What the runtime does with a device: a table of functions, of its own. A library for a CPU alone doesn't link it. */
typedef struct attnc_device_runtime attnc_device_runtime;

typedef struct attnc_device_entry {
    const char* name;                    /* "cuda" */
    const attnc_device_runtime* runtime; /* attnc_abi1_cuda */
    attnc_device_layout layout;
    attnc_device_kernel kernels[ATTNC_DEVICE_KERNEL_COUNT];
} attnc_device_entry;

#endif
