/* The one header that the build side and the runtime share: what a generated library holds, and what each kernel
 * takes. Plain C. Everything in a table is 8 bytes wide, so that it can be written as assembler text for any target.
 *
 * Buffers are in Halide's order here, innermost dimension first; `d` counts the features of one head, `i` queries,
 * `j` keys, `m` rows (tokens), `k` the inner dimension of a projection, `n` columns of a weight panel. Every buffer
 * has min 0 in every dimension; stride 1 in its first dimension and any strides in the others unless said otherwise.
 * A library's kernels for CPUs trust the runtime with all of that.
 */
#ifndef ATTNC_KERNEL_ABI_H
#define ATTNC_KERNEL_ABI_H

#include <stdint.h>

#include "runtime/device_abi.h"

/* Version of this file's contract. A runtime serves the numbers it lists and refuses all others. */
#define ATTNC_ABI_VERSION 1

/* Feature counts of a head are padded with zeros to a multiple of this in every buffer between kernels. */
#define ATTNC_HEAD_ALIGN 16

/* Most appended keys (bias_k, then the zero key). */
#define ATTNC_MAX_APPENDED_KEYS 2

/* Keys that attend_decode finds in consecutive rows, its most rows (queries times heads), and the most queries of an item
 * whose attention it makes. */
#define ATTNC_RUN_KEYS 16
#define ATTNC_DECODE_ROWS 64
#define ATTNC_DECODE_QUERIES 8
/* Rows that a tail kernel of projections makes in a step of as many. */
#define ATTNC_FEW_ROWS 2
/* Most keys of a split. */
#define ATTNC_MAX_SPLIT_KV 8192

/* Kernels, in the order of the table: X(id, name). A library lacks those that its configuration never calls.
 *
 * project_heads  x (k, m), weights (n, k, p), bias_vector (n, p) -> y (n, a, m, c, h)
 *     y = x * weights + bias. Column n of panel p = c + extent_c * h goes to feature n % head of head a of the group:
 *     panels are `panel` columns wide; n spans min(panel, padded head), a the heads inside one panel (1 when the head
 *     is wider than the panel), c the panels inside one head, h the heads (or groups of heads).
 *     All extents of n and a are fixed by the configuration; k, m, c, h are free.
 * project_out    x (k, m), weights (n, k, p), bias_vector (n, p) -> out (n, m)
 *     the same with panels of `out_panel` columns side by side; the last panel may be cut short by the extent of out.
 * project_heads_tail, project_out_tail  the same arguments and bits, in steps of other rows (attnc_layout.tile_rows): some of
 *     both make up any number of rows. ATTNC_FEW_ROWS or fewer are one step, of as many.
 * attend         q (d, i), k (d, j), v (d, j), qk_scale, first_key, last_key, ahead_q, ahead_k, ahead_k_bytes, ahead_v,
 *     ahead_v_bytes, ahead_context
 *     -> context (d, i), row_stats (i, 2)
 *     softmax attention of one head of one item over one block of keys; query i sees key j when
 *     max(0, i + first_key) <= j < min(extent_j, i + last_key). Rows of k and of v lie one after another, but those of
 *     attend_single, attend_guarded and attend_decode need not. row_stats holds what joins blocks and gives lse and
 *     probabilities, exactly where a score is so large that it swallows a logarithm: column 0 the largest score, column 1
 *     the sum of exp(score - largest). A query that sees no key gets context 0 and sum 0; any other has a sum of at
 *     least 1. ahead_q, ahead_k, ahead_v and ahead_context (uint64) are addresses of rows that a later call reads or writes, as many
 *     as of q, k, v and context, with the strides of q and context, and ahead_k_bytes and ahead_v_bytes from one to the next;
 *     0: nothing is known of that. They are brought into the cache meanwhile and
 *     never change a bit.
 * attend_narrow, attend_single  the same arguments and bits as attend, faster for fewer queries (attnc_layout.tile_q).
 * attend_masked  the same and key_bias (j), bias (j, i), keep_mask (j, i), drop_mask (j, i), key_blocks (jb, ib),
 *     mask_flags, and as the configuration has them softcap, alibi_slope, own_key
 *     mask_flags says which of the five masks are read (ATTNC_MASK_*); the others are any valid buffers of these extents.
 *     All strides of these five are free, 0 included. A bias of -inf drops. key_blocks has an element for each granule of
 *     16 keys and 16 queries, the last ones cut short; 0 drops its pairs, which are not computed where a kernel's whole
 *     tile of queries drops a column of granules. ATTNC_MASK_SOFTCAP: a scaled score s that
 *     the interval does not drop becomes softcap * tanh(s / softcap). ATTNC_MASK_ALIBI: then it loses
 *     alibi_slope * |i + own_key - j|. Then come biases and masks.
 * attend_guarded the same arguments and bits as attend_masked, but the value of a dropped key is replaced by 0 before
 *     it is multiplied, so that NaN and infinity there stay where they are.
 * attend_merge   context_a (d, i), row_stats_a (i, 2), context_b (d, i), row_stats_b (i, 2)
 *     -> context (d, i), row_stats (i, 2): joins the results of two disjoint sets of keys. context may be context_a's
 *     memory, row_stats must not alias. Where one side saw no key, the other side's bits pass through. A sink is a
 *     side with context 0, its logit as the largest score and sum 1.
 * attend_lse     row_stats_in (i, 2) -> lse (i): natural logarithm of the sum of exponentials, -inf where no key is seen
 * attend_probs   q, k, qk_scale, first_key, last_key, all that attend_masked takes for its scores, row_stats_in (i, 2)
 *     -> probs (j, i): exp(score - largest) / sum, exactly 0 where dropped and in rows that see no
 *     key. One block of keys; the statistics are those of all blocks.
 * attend_scores  the same but for row_stats_in -> scores (j, i): scores as the softmax takes them, -inf where dropped;
 *     without the steps that mask_flags leaves out, and of all keys where first_key and last_key let all be seen
 * attend_decode  q (d, i, g), k (d, row), v (d, row), key_rows (run), keys, qk_scale, first_key, last_key, ask_ahead,
 *     key_bias (j), bias (j, i, g), keep_mask (j, i, g), drop_mask (j, i, g), mask_flags -> context (d, i, g), row_stats (i, g, 2)
 *     softmax attention of few queries i of heads g that share one head of K and V over one split of keys, at most
 *     split_kv; i times g is at most ATTNC_DECODE_ROWS. k and v are pools of rows, of the same extent: key j is row
 *     key_rows(j / ATTNC_RUN_KEYS) + j % ATTNC_RUN_KEYS; rows of keys from `keys` on are not read. Query i sees key j when
 *     max(0, i + first_key) <= j < min(keys, i + last_key). The masks are those of attend_masked, row_stats those of attend.
 *     Where the configuration has them, softcap, alibi_slopes (g) and own_key come before the biases, as in attend_masked.
 *     The value of a dropped key is not multiplied. A row's bits don't depend on other rows, nor on where in the pools its
 *     keys lie. With ask_ahead not 0 keys and values are brought into the cache some time before they are read.
 * split_heads    x (d, m, h) -> y (d, m, h): copies the features of heads and fills y's further ones with 0.
 * merge_heads    x (d, m, h) -> y (d, m, h): copies back y's extent of features.
 * norm_heads     x (d, m, h), norm_weight (d), epsilon -> y (d, m, h): y = x * norm_weight / sqrt(sum over d of x^2 +
 *     epsilon). Features of padding have weight 0. x and y may be the same memory, otherwise they don't overlap.
 * rotate_heads   cos_table (r, m), sin_table (r, m) -> y (d, m, h): turns pairs of features of y where they lie: feature
 *     a becomes y(a) cos - y(b) sin, feature b y(b) cos + y(a) sin; pair r is a = r, b = r + extent_r, or in a library
 *     with ATTNC_CONFIG_ROTARY_PAIRS a = 2 r, b = 2 r + 1. Features from 2 extent_r on keep their bits.
 * rotary_angles  positions (m) int32, frequencies (r) uint64, magnitude float64 -> cos_table (r, m), sin_table (r, m):
 *     cosine and sine of position times frequency, times magnitude. A frequency is a fraction of a turn for each unit
 *     of position, in units of 2^-64. Each is off by at most 1.02 * 2^-24 times magnitude.
 */
#define ATTNC_KERNELS(X)                      \
    X(PROJECT_HEADS, project_heads)           \
    X(PROJECT_OUT, project_out)               \
    X(PROJECT_HEADS_TAIL, project_heads_tail) \
    X(PROJECT_OUT_TAIL, project_out_tail)     \
    X(ATTEND, attend)                         \
    X(ATTEND_NARROW, attend_narrow)           \
    X(ATTEND_SINGLE, attend_single)           \
    X(ATTEND_MASKED, attend_masked)           \
    X(ATTEND_GUARDED, attend_guarded)         \
    X(ATTEND_MERGE, attend_merge)             \
    X(ATTEND_LSE, attend_lse)                 \
    X(ATTEND_PROBS, attend_probs)             \
    X(SPLIT_HEADS, split_heads)               \
    X(MERGE_HEADS, merge_heads)               \
    X(ATTEND_DECODE, attend_decode)           \
    X(ATTEND_SCORES, attend_scores)           \
    X(NORM_HEADS, norm_heads)                 \
    X(ROTATE_HEADS, rotate_heads)             \
    X(ROTARY_ANGLES, rotary_angles)

/* Arguments of kernels: X(id, name). A kernel with an argument of any other name does not build. */
#define ATTNC_ARGUMENTS(X)          \
    X(USER_CONTEXT, __user_context) \
    X(INPUT, x)                     \
    X(WEIGHTS, weights)             \
    X(BIAS_VECTOR, bias_vector)     \
    X(Y, y)                         \
    X(OUT, out)                     \
    X(Q, q)                         \
    X(K, k)                         \
    X(V, v)                         \
    X(QK_SCALE, qk_scale)           \
    X(FIRST_KEY, first_key)         \
    X(LAST_KEY, last_key)           \
    X(AHEAD_Q, ahead_q)             \
    X(AHEAD_K, ahead_k)             \
    X(AHEAD_K_BYTES, ahead_k_bytes) \
    X(AHEAD_V, ahead_v)             \
    X(AHEAD_V_BYTES, ahead_v_bytes) \
    X(AHEAD_CONTEXT, ahead_context) \
    X(ASK_AHEAD, ask_ahead)         \
    X(KEY_BIAS, key_bias)           \
    X(BIAS, bias)                   \
    X(KEEP_MASK, keep_mask)         \
    X(DROP_MASK, drop_mask)         \
    X(MASK_FLAGS, mask_flags)       \
    X(CONTEXT, context)             \
    X(ROW_STATS, row_stats)         \
    X(CONTEXT_A, context_a)         \
    X(ROW_STATS_A, row_stats_a)     \
    X(CONTEXT_B, context_b)         \
    X(ROW_STATS_B, row_stats_b)     \
    X(ROW_STATS_IN, row_stats_in)   \
    X(LSE, lse)                     \
    X(PROBS, probs)                 \
    X(KEY_BLOCKS, key_blocks)       \
    X(SOFTCAP, softcap)             \
    X(ALIBI_SLOPE, alibi_slope)     \
    X(ALIBI_SLOPES, alibi_slopes)   \
    X(OWN_KEY, own_key)             \
    X(KEY_ROWS, key_rows)           \
    X(KEYS, keys)                   \
    X(SCORES, scores)               \
    X(NORM_WEIGHT, norm_weight)     \
    X(EPSILON, epsilon)             \
    X(COS_TABLE, cos_table)         \
    X(SIN_TABLE, sin_table)         \
    X(POSITIONS, positions)         \
    X(FREQUENCIES, frequencies)     \
    X(MAGNITUDE, magnitude)

#define ATTNC_X(id, name) ATTNC_KERNEL_##id,
enum { ATTNC_KERNELS(ATTNC_X) ATTNC_KERNEL_COUNT };
#undef ATTNC_X
#define ATTNC_X(id, name) ATTNC_ARGUMENT_##id,
enum { ATTNC_ARGUMENTS(ATTNC_X) ATTNC_ARGUMENT_COUNT };
#undef ATTNC_X

/* Bits of mask_flags (int32). */
enum {
    ATTNC_MASK_KEY_BIAS = 1,
    ATTNC_MASK_BIAS = 2,
    ATTNC_MASK_KEEP = 4,
    ATTNC_MASK_DROP = 8,
    ATTNC_MASK_BLOCKS = 16,
    ATTNC_MASK_SOFTCAP = 32,
    ATTNC_MASK_ALIBI = 64
};

/* CPU features a target needs, as bits. Baseline x86-64 needs none. */
enum {
    ATTNC_CPU_SSE41 = 1,
    ATTNC_CPU_AVX = 2,
    ATTNC_CPU_F16C = 4,
    ATTNC_CPU_FMA = 8,
    ATTNC_CPU_AVX2 = 16,
    ATTNC_CPU_AVX512_SKYLAKE = 32 /* F, CD, VL, BW and DQ */
};

/* A kernel by the argv convention: argv[n] points to the value of a scalar (for USER_CONTEXT: to the pointer to the
 * attnc_task), or is the halide_buffer_t itself. Returns 0 or an error code of the hooks. */
typedef int32_t (*attnc_kernel_argv)(void** argv);

typedef struct attnc_kernel_entry {
    attnc_kernel_argv run;    /* null: not in this library */
    const int64_t* arguments; /* ATTNC_ARGUMENT_*, in argv's order */
    int64_t argument_count;
    int64_t
        scratch_bytes; /* heap that one call takes at most, each block with 64 bytes and rounded up to 64 */
} attnc_kernel_entry;

/* Numbers that decide memory between kernels; one set per target. In elements. */
typedef struct attnc_layout {
    int64_t panel;     /* columns of a packed panel of wq, wk, wv; a multiple of 16 */
    int64_t out_panel; /* columns of a packed panel of wo; a multiple of 16 */
    /* Rows of a step of project_heads and of its tail kernel, then of project_out and its; a tail's 0: not there. */
    int64_t tile_rows, tail_rows, out_tile_rows, out_tail_rows;
    int64_t tile_kv;       /* keys in one block of attend; blocks start at multiples of it */
    int64_t tile_q;        /* queries that one call of attend handles best; a task takes a multiple of it */
    int64_t tile_q_narrow; /* the same of attend_narrow, fewer; 0: the target does without that kernel */
    int64_t tile_q_single; /* the same of attend_single, fewer still */
    int64_t split_kv; /* most keys of a call of attend_decode; splits start at multiples of it; a multiple of
                          ATTNC_RUN_KEYS, at most ATTNC_MAX_SPLIT_KV */
} attnc_layout;

typedef struct attnc_target_entry {
    const char* name;     /* Halide's name of the target: "x86-64-linux-avx2-fma-f16c" */
    int64_t cpu_features; /* ATTNC_CPU_* */
    attnc_layout layout;
    attnc_kernel_entry kernels[ATTNC_KERNEL_COUNT];
} attnc_target_entry;

/* Bits of attnc_config.flags. */
enum {
    ATTNC_CONFIG_IN_PROJ = 1,    /* query, key and value are projected; else they arrive split into heads */
    ATTNC_CONFIG_OUT_PROJ = 2,   /* wo is applied; else the merged heads are the output */
    ATTNC_CONFIG_CAUSAL = 4,     /* a call that does not say has the bottom-right diagonal */
    ATTNC_CONFIG_MASKS = 8,      /* masks, biases and per-key forms are supported */
    ATTNC_CONFIG_PROBS = 16,     /* probs and probs_averaged are supported */
    ATTNC_CONFIG_BIAS_KV = 32,   /* bias_k and bias_v are appended as one key, before the zero key */
    ATTNC_CONFIG_ZERO_ATTN = 64, /* a key and value of zeros is appended */
    ATTNC_CONFIG_SINK = 128,     /* each head has a logit without a value */
    ATTNC_CONFIG_ALIBI = 256,    /* scores fall with the distance of the key */
    ATTNC_CONFIG_SOFTCAP = 512,  /* scores may be soft-capped */
    ATTNC_CONFIG_QK_NORM = 1024, /* heads of q and k are RMS-normalised */
    ATTNC_CONFIG_ROTARY = 2048,  /* q and k are rotated by position: features i and i + dim / 2 */
    ATTNC_CONFIG_ROTARY_PAIRS = 4096, /* the same, features 2 i and 2 i + 1; never both */
    ATTNC_CONFIG_CACHE = 8192,        /* keys and values may stay from call to call */
    ATTNC_CONFIG_SCORES = 16384       /* scores before the softmax are supported */
};

typedef struct attnc_config {
    int64_t d_model, num_heads, num_kv_heads, head_dim, v_head_dim, k_dim, v_dim;
    int64_t flags;     /* ATTNC_CONFIG_* */
    int64_t page_size; /* keys of a page of a paged cache, a multiple of 16; 0: none */
} attnc_config;

/* A generated library: targets best first, the last one runs everywhere. */
struct attnc_library {
    int64_t abi_version; /* first for ever */
    int64_t hash;        /* of configuration and layouts; also in the header's symbol */
    const char* name;    /* the library's name */
    const char* problem; /* canonical problem string: "d512_h8_f32" */
    attnc_config config;
    int64_t target_count; /* 0: for a device alone */
    const attnc_target_entry* targets;
    const char* manifest; /* JSON, zero-terminated */
    int64_t manifest_bytes;
    const attnc_device_entry* device; /* null: none */
};

/* What the hooks find behind USER_CONTEXT. One per task, on the task's thread. */
typedef struct attnc_task {
    unsigned char* scratch; /* aligned to 64 */
    int64_t scratch_bytes;
    int64_t scratch_used;
    int64_t scratch_top; /* offset of the newest block's header, -1 when empty */
    int32_t error_code;  /* first failure of this task, 0 if none */
    char error_text[256];
    const void* launch; /* on a device: what its runtime launches kernels by */
} attnc_task;

#endif
