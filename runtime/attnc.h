/* attnc: multi-head attention layers compiled ahead of time. The C API.
 *
 * Shapes are in C order (outermost first); strides count elements. Structures that may grow begin with struct_size
 * and have an initialiser; zero means "not given" everywhere. No function prints, exits, aborts or throws. A layer is
 * immutable: any number of threads may call forward on one, each with its own workspace.
 *
 * A layer on a device (target "cuda") takes tensors, lengths and positions in device memory; what it can't do is said at
 * attnc_layer_options.target.
 *
 * Masks name their polarity: keep (non-zero = attend) or drop (non-zero = ignore). Masks and biases have rank 4,
 * [1 or batch, 1 or num_heads, 1 or seq_q, 1 or seq_kv]; a lower rank is refused, not guessed.
 */
#ifndef ATTNC_H
#define ATTNC_H

#include <stddef.h>
#include <stdint.h>

/* The initial value of a struct that begins with struct_size: the rest is zero. Apart for C++ (14 or later), where a
 * compiler warns of the members that a designated initialiser leaves out. */
#ifdef __cplusplus
template <typename Struct>
constexpr Struct attnc_sized() {
    Struct value{};
    value.struct_size = sizeof(Struct);
    return value;
}
#define ATTNC_SIZED(type) attnc_sized<type>()
#else
#define ATTNC_SIZED(type) \
    { .struct_size = sizeof(type) }
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ATTNC_VERSION 100 /* 10000 * major + 100 * minor + patch */

/* Status numbers are fixed for ever. */
typedef enum attnc_status {
    ATTNC_OK = 0,
    ATTNC_NULL_ARGUMENT = 1,   /* a pointer that is needed is null */
    ATTNC_BAD_STRUCT_SIZE = 2, /* struct_size is not one this runtime knows */
    ATTNC_BAD_LIBRARY = 3,     /* the library's table is of an ABI this runtime does not serve */
    ATTNC_BAD_DTYPE = 4,       /* a tensor has another element type than asked for */
    ATTNC_BAD_RANK = 5,
    ATTNC_BAD_EXTENT = 6,
    ATTNC_BAD_STRIDE = 7,
    ATTNC_BAD_VALUE = 8, /* a number out of its range: a length, an enumerator, a scale */
    ATTNC_MISSING_TENSOR = 9,
    ATTNC_UNEXPECTED_TENSOR = 10, /* a tensor that this layer has no use for, or that excludes another one */
    ATTNC_NOT_SUPPORTED = 11,     /* the library was not compiled for it, or a device can't do it yet */
    ATTNC_OVERLAP = 12,           /* an output overlaps an input, another output or the workspace */
    ATTNC_TOO_LARGE = 13,         /* sizes overflow, or one item is beyond the kernels' 2 GiB */
    ATTNC_WORKSPACE_TOO_SMALL = 14, /* or the memory for a cache */
    ATTNC_WORKSPACE_MISALIGNED =
        15, /* the workspace, and a cache's memory, must be aligned to 64 bytes; on a device to 256 */
    ATTNC_OUT_OF_MEMORY = 16,
    ATTNC_NO_TARGET = 17, /* the target asked for is not in the library, or this CPU can't run it */
    ATTNC_NO_DEVICE =
        18, /* no driver, no device that the library's code runs on, or a layer that isn't on one */
    ATTNC_EXECUTOR_FAILED = 19, /* the executor's parallel_for returned non-zero or did not run all tasks */
    ATTNC_KERNEL_FAILED = 20,   /* a kernel's own check failed; a fault of attnc */
    ATTNC_DEVICE_FAILED = 21 /* the device's driver refused a call; the sentence has its name for the error */
} attnc_status;

/* A sentence for a status, never null. */
const char* attnc_status_text(attnc_status status);

/* ATTNC_VERSION of the runtime that is linked. */
int attnc_version(void);

/* Filled on failure only. */
typedef struct attnc_error {
    attnc_status code;
    char text[256]; /* one sentence, zero-terminated */
} attnc_error;

typedef enum attnc_dtype {
    ATTNC_F32 = 1,
    ATTNC_U8 = 2, /* masks: one byte an element, any non-zero value is true */
    ATTNC_I32 = 3,
    ATTNC_I64 = 4,
    ATTNC_F16 = 5,  /* named so that it can be refused by name */
    ATTNC_BF16 = 6, /* the same */
    ATTNC_F64 = 7   /* the same */
} attnc_dtype;

#define ATTNC_MAX_RANK 5

/* A view of the caller's memory. Frozen. rank 0 = not given. Inputs are never written. */
typedef struct attnc_tensor {
    void* data;
    int32_t dtype; /* attnc_dtype */
    int32_t rank;
    int64_t extent[ATTNC_MAX_RANK];
    int64_t stride[ATTNC_MAX_RANK]; /* in elements; >= 0; the inner one must be 1 unless said otherwise */
    int64_t reserved;               /* 0 */
} attnc_tensor;

/* Dense tensors in C order. data may be null where only sizes count. */
attnc_tensor attnc_tensor_1d(attnc_dtype dtype, const void* data, int64_t e0);
attnc_tensor attnc_tensor_2d(attnc_dtype dtype, const void* data, int64_t e0, int64_t e1);
attnc_tensor attnc_tensor_3d(attnc_dtype dtype, const void* data, int64_t e0, int64_t e1, int64_t e2);
attnc_tensor attnc_tensor_4d(attnc_dtype dtype, const void* data, int64_t e0, int64_t e1, int64_t e2,
                             int64_t e3);

/* Views of the same memory with two dimensions exchanged (sequence-first tokens [seq, batch, features] as
 * [batch, seq, features]; [batch, seq, heads, head_dim] as [batch, heads, seq, head_dim]), and with one dimension left out
 * at an index (of [batch, seq, 3, heads, head_dim] the queries, keys or values). A dimension or an index that the tensor
 * does not have gives rank -1, which every call refuses. */
attnc_tensor attnc_tensor_transpose(attnc_tensor tensor, int dimension, int other);
attnc_tensor attnc_tensor_select(attnc_tensor tensor, int dimension, int64_t index);

/* A generated library; its header has a function that returns it. */
typedef struct attnc_library attnc_library;

/* Weights of a layer, f32, stored as linear layers are: [out_features, in_features], row-major (inner stride 1, any
 * row stride). Biases are optional, each by itself. in_proj_weight and in_proj_bias replace wq, wk, wv and bq, bk, bv
 * where all inputs are d_model wide and num_kv_heads * head_dim etc. equal d_model. A library without input
 * projections takes none of wq..bv, one without output projection no wo and bo. */
typedef struct attnc_weights {
    size_t struct_size;
    attnc_tensor wq;             /* [num_heads * head_dim, d_model] */
    attnc_tensor wk;             /* [num_kv_heads * head_dim, k_dim] */
    attnc_tensor wv;             /* [num_kv_heads * v_head_dim, v_dim] */
    attnc_tensor wo;             /* [d_model, num_heads * v_head_dim] */
    attnc_tensor bq, bk, bv, bo; /* [out_features] of the weight above */
    attnc_tensor in_proj_weight; /* [3 * d_model, d_model]: wq, wk, wv */
    attnc_tensor in_proj_bias;   /* [3 * d_model] */
    attnc_tensor bias_k;         /* [num_kv_heads * head_dim]; only for a library with bias_kv */
    attnc_tensor bias_v;         /* [num_kv_heads * v_head_dim] */
    /* Where a library has one of the following options and its weights are not given, the layer does without it. */
    attnc_tensor sink; /* [num_heads], finite; only for a library with sinks. A logit that takes its share
                                    in a head's softmax and has no value; beside the scores as it is, not scaled. 0:
                                    softmax with 1 added to its denominator */
    attnc_tensor
        alibi_slopes; /* [num_heads], finite, >= 0; only for a library with alibi. A score loses slope times
                                    the distance between its key and the query's own one, which is on the
                                    call's diagonal; the bottom-right one where the call names none. Appended
                                    keys have no distance */
    attnc_tensor q_norm,
        k_norm; /* [head_dim], both or neither; only for a library with qk_norm. Each head of q and k becomes
                                    x / sqrt(mean(x^2) + qk_norm_epsilon) times these, before it is rotated */
    attnc_tensor
        rotary_frequencies; /* F32 or F64 [rotary.dim / 2], radians a position, of less than 2^32; instead of
                                    rotary.base and its
                                    scaling */
    attnc_tensor rotary_cos,
        rotary_sin; /* [positions, rotary.dim / 2]: the caller's own table, instead of frequencies.
                                    A call's positions must be within it */
} attnc_weights;

/* What a query that may attend no key gives. With a sink it always has context 0, probabilities 0 and the sink as its
 * lse, whatever is asked for here; with appended keys there is no such query. */
typedef enum attnc_empty_rows {
    ATTNC_EMPTY_ROWS_NOT_GIVEN = 0,      /* as zero */
    ATTNC_EMPTY_ROWS_ZERO = 1,           /* context 0 (so out is bo), probabilities 0, lse -inf */
    ATTNC_EMPTY_ROWS_MEAN_OF_VALUES = 2, /* uniform over the item's keys within its key length; none: zero.
                                            lse stays -inf */
    ATTNC_EMPTY_ROWS_NAN = 3             /* context and probabilities NaN, lse -inf */
} attnc_empty_rows;

/* The caller's memory functions. allocate returns memory aligned to `alignment` (a power of two), or null. */
typedef struct attnc_allocator {
    void* context;
    void* (*allocate)(void* context, size_t bytes, size_t alignment);
    void (*deallocate)(void* context, void* memory, size_t bytes);
} attnc_allocator;

/* Which sides of a window are limited. Beside the limits themselves, so that a limit of 0 keys can be given, and so that
 * a number that means "unlimited" elsewhere (-1) is refused. */
typedef enum attnc_window {
    ATTNC_WINDOW_NOT_GIVEN = 0, /* neither */
    ATTNC_WINDOW_LEFT = 1,
    ATTNC_WINDOW_RIGHT = 2,
    ATTNC_WINDOW_BOTH = 3
} attnc_window;

/* How the frequencies of a rotary embedding change for sequences longer than those of training. */
typedef enum attnc_rotary_scaling {
    ATTNC_ROTARY_SCALING_NONE = 0,
    ATTNC_ROTARY_SCALING_LINEAR = 1, /* all divided by factor */
    ATTNC_ROTARY_SCALING_LLAMA3 =
        2 /* wavelengths above original_positions / low_freq_factor are divided by factor,
                                        those below original_positions / high_freq_factor stay, those between
                                        are interpolated */
} attnc_rotary_scaling;

/* Rotary position embedding (Su et al. 2021) of q and k; only for a library with rotary or rotary_pairs. A layer with
 * neither a base nor frequencies nor a table of its own is not rotated. Pair i of a head
 * at position p is turned by the angle p * base^(-2 i / dim): features i and i + dim / 2 (a library with rotary), or 2 i
 * and 2 i + 1 (rotary_pairs). Angles are exact to double precision or
 * better, cosines and sines are rounded to float once. A model that makes its frequencies in float has slightly other
 * ones: give them as rotary_frequencies where that matters. */
typedef struct attnc_rotary {
    int64_t dim; /* the first features of a head that are rotated, even; 0: head_dim */
    double base; /* > 1; most models: 10000 */
    attnc_rotary_scaling scaling;
    double factor;                            /* >= 1; with a scaling only */
    double low_freq_factor, high_freq_factor; /* 0 < low < high; LLAMA3 only */
    int64_t original_positions;               /* LLAMA3 only */
    double magnitude;                         /* multiplies cos and sin; 0: 1 */
} attnc_rotary;

typedef struct attnc_layer_options {
    size_t struct_size;
    /* null: the best that this CPU and operating system support; of a library without code for CPUs its device.
     *
     * "cuda", of a library built with it: the layer is on a CUDA device, in the context that is current on the thread that
     * makes it; where none is, in the primary context of device 0. The weights are copied there once, and the code is
     * loaded. Every tensor of a call of its is then in device memory that the context can reach, and so is its workspace,
     * aligned to 256 bytes: tensors, masks, lengths, cu_seqlens, offsets and positions, which the host never reads.
     * attnc_layer_forward only launches, on attnc_run.stream: no allocation, no copy, no waiting, so that it may be captured
     * in a graph. It returns before the work is done; what it was given stays there until then. The calling thread's context
     * is afterwards as it was. Executors are not used.
     * Instead of being refused, lengths, first rows, positions, slots and pages outside of their ranges become the nearest
     * that are allowed; of 64-bit numbers the low 32 bits count. New keys for which an item has no room in its cache are left
     * out. In packed batches seq_q and seq_kv, of masks and outputs too, are the rows of query and, without a cache, of key, and
     * rows of no item are written as well. The form of attention depends on seq_q and seq_kv, not on lengths. */
    const char* target;
    const attnc_allocator* allocator; /* null: malloc and free. Used in create and destroy only; copied */
    attnc_empty_rows empty_rows;
    float qk_scale; /* multiplies Q K^T; 0: 1/sqrt(head_dim). Finite */
    /* Sliding window. The call's diagonal (attnc_causal) gives each query a key of its own; the query sees that one,
     * window_left keys to its left and window_right to its right. A call whose diagonal is none has the window on the
     * bottom-right one. Combines with causal and with every mask; appended keys and sinks are outside of it. */
    attnc_window window;
    int64_t window_left;  /* >= 0; with ATTNC_WINDOW_LEFT or _BOTH only */
    int64_t window_right; /* >= 0; with ATTNC_WINDOW_RIGHT or _BOTH only */
    /* 2^-126 to 2^126: scores become softcap * tanh(score / softcap), before ALiBi and biases, those of appended keys
     * too; 0: they stay as they are. Only for a library with softcap. */
    float softcap;
    float qk_norm_epsilon; /* > 0 and normal; 0: 1e-6. Only for a layer with q_norm and k_norm */
    attnc_rotary rotary;
} attnc_layer_options;

#define ATTNC_WEIGHTS_INIT ATTNC_SIZED(attnc_weights)
#define ATTNC_LAYER_OPTIONS_INIT ATTNC_SIZED(attnc_layer_options)

typedef struct attnc_layer attnc_layer;

/* Packs the weights (the layer's only allocation; on a device one more there) and keeps no pointer to them. options may be
 * null. Destroying a layer on a device waits until the work of its context is done. */
attnc_status attnc_layer_create(const attnc_library* library, const attnc_weights* weights,
                                const attnc_layer_options* options, attnc_layer** layer, attnc_error* error);
void attnc_layer_destroy(attnc_layer* layer); /* null is allowed */

/* Name of the target that the layer runs on: "x86-64-linux-avx512_skylake", "cuda". */
const char* attnc_layer_target(const attnc_layer* layer);

/* Of the library: its manifest (JSON), its problem string, and its targets in the order of preference, a device last.
 * target_name returns null past the end; target_runs says whether this CPU and operating system can run it, of a device
 * whether there are a driver and a device. */
const char* attnc_library_manifest(const attnc_library* library);
const char* attnc_library_problem(const attnc_library* library);
const char* attnc_library_target_name(const attnc_library* library, int64_t index);
int attnc_library_target_runs(const attnc_library* library, int64_t index);

/* The diagonal is always named; it counts each item's own lengths. A window (attnc_layer_options) counts from it too. */
typedef enum attnc_causal {
    ATTNC_CAUSAL_NOT_GIVEN = 0, /* bottom_right for a library compiled causal, else none */
    ATTNC_CAUSAL_NONE = 1,
    ATTNC_CAUSAL_TOP_LEFT = 2,     /* query i sees keys j <= i */
    ATTNC_CAUSAL_BOTTOM_RIGHT = 3, /* query i sees keys j <= i + keys - queries */
    ATTNC_CAUSAL_OFFSET = 4        /* query i sees keys j <= i + causal_offsets[item] */
} attnc_causal;

/* Keys and values that stay from call to call, as attention reads them: projected, and normalised and rotated where the
 * library does so. Only for a library with cache. It lives in the caller's memory and has no pointers into itself: there is
 * nothing to destroy, and its bytes may be moved to other memory that is aligned to 64 bytes. It serves every layer of the
 * same widths: num_kv_heads, head_dim, v_head_dim and page size.
 *
 * Of a layer on a device only its head lies in the host's memory; keys, values and the slots' lengths lie in device memory of
 * the caller's, which stays where it is. It serves every such layer in the same context. What a call launches needs nothing of
 * the head, so that a graph which was captured may be launched again and goes on where the last launch ended. */
typedef struct attnc_cache attnc_cache;

/* SLOTS: each slot holds keys 0 .. length of a sequence, at most capacity. RING: each slot holds the last keys, at most
 * capacity, of a sequence of any length; for layers with window_left whose empty_rows is not mean_of_values. PAGED: pages
 * of page_size keys (a number of the library; one without has none of this kind), which a call's block table gives to its
 * items; the caller keeps the lengths. */
typedef enum attnc_cache_kind {
    ATTNC_CACHE_KIND_NOT_GIVEN = 0, /* as slots */
    ATTNC_CACHE_SLOTS = 1,
    ATTNC_CACHE_RING = 2,
    ATTNC_CACHE_PAGED = 3
} attnc_cache_kind;

/* What a call does with its cache. APPEND: it puts its keys and values behind those that the item has there, then attends
 * all. READ: it attends those that are there; key and value must be absent. */
typedef enum attnc_cache_use {
    ATTNC_CACHE_USE_NOT_GIVEN = 0, /* as append */
    ATTNC_CACHE_APPEND = 1,
    ATTNC_CACHE_READ = 2
} attnc_cache_use;

/* Inputs of a call. Self-attention: give query alone, or the same memory three times.
 *
 * Tokens have rank 3 [batch, seq, features], inner stride 1, the others free. In a library without input projections
 * they are [batch, seq, heads * features of a head], or rank 4 [batch, heads, seq, features of a head], as
 * scaled_dot_product_attention takes them; key and value have num_kv_heads. No value: it is key; no key either (then
 * value must be absent too): both are query.
 */
typedef struct attnc_inputs {
    size_t struct_size;
    attnc_tensor query;         /* [batch, seq_q, d_model] */
    attnc_tensor key;           /* [batch, seq_kv, k_dim] */
    attnc_tensor value;         /* [batch, seq_kv, v_dim] */
    attnc_tensor keep_mask;     /* U8, rank 4; any strides, 0 for an extent that is broadcast is not needed */
    attnc_tensor drop_mask;     /* U8, rank 4 */
    attnc_tensor bias;          /* F32, rank 4; added to the scaled scores; -inf drops */
    attnc_tensor key_keep_mask; /* U8 [batch, seq_kv] */
    attnc_tensor key_drop_mask; /* U8 [batch, seq_kv] */
    attnc_tensor key_bias;      /* F32 [batch, seq_kv] */
    attnc_tensor key_lengths;   /* I32 or I64 [batch]; keys past it are not read */
    attnc_tensor query_lengths; /* I32 or I64 [batch]; rows past it give 0, lse -inf, and are not read */
    attnc_causal causal;
    attnc_tensor causal_offsets; /* I32 or I64 [batch]; with ATTNC_CAUSAL_OFFSET only */
    /* U8 [1 or batch, 1 or num_heads, seq_q / block_q, seq_kv / block_kv], both rounded up: non-zero = the queries of a
     * block attend the keys of a block. Combines with all other masks, and gives the bits of a keep_mask of the same
     * pairs; blocks that are dropped are not computed. (What other masks drop in tiles of 16 keys isn't either.) */
    attnc_tensor block_keep_mask;
    int64_t block_q, block_kv; /* multiples of 16; with block_keep_mask only */
    /* Packed batches: sequences of different lengths one after another, without padding. Item b owns rows cu_seqlens[b] to
     * cu_seqlens[b + 1] of the tokens, which have no batch dimension: [rows, features], or split into heads
     * [heads, rows, features of a head]; so has out. Everything else is as for a padded batch whose seq_q and seq_kv are
     * the longest sequences. Lengths leave the end of an item's rows out. Rows of no item are neither read nor written. */
    attnc_tensor
        query_cu_seqlens; /* I32 or I64 [batch + 1], never falling; read by attnc_layer_workspace too */
    attnc_tensor key_cu_seqlens; /* the same; with a key of its own only */
    /* Positions for a library with rotary, from -2^31 + 1 to 2^31 - 1, or within the caller's table. Row t of an item, of
     * queries as of keys, has position position_offsets[item] + t, unless its position is given. No offsets: 0, with a
     * cache the number of keys that the item had before the call. Appended keys (bias_kv, zero_attn) have no position:
     * they are neither normalised nor rotated. */
    attnc_tensor position_offsets; /* I32 or I64 [batch] */
    attnc_tensor query_positions;  /* I32 or I64 [batch, seq_q]; of packed tokens [rows of query] */
    attnc_tensor
        key_positions; /* the same for keys, [batch, seq_kv]; self-attention: the queries', where not given */
    /* A cache. key, value (or query in their place), key_lengths and key_positions are then those of the keys that the
     * call appends; everything else counts all keys of an item, what it had and what it got: the diagonal, and masks,
     * biases, probs and scores, whose seq_kv is max_keys. Every refusal comes before anything is written; lengths grow when
     * the call succeeds. After a failure they are as before (but for one of a device's driver after the last launch), and so
     * are the keys; of a ring those that a repetition needs, while it doesn't hold the others any more. With seq_q 0 a call
     * only appends. */
    attnc_cache* cache;
    attnc_cache_use cache_use; /* with a cache only */
    /* Which slots the items have; not given: item b has slot b. A call appends to a slot, and to a page, for one item: on
     * a device that is the caller's to see to. */
    attnc_tensor cache_slots; /* I32 or I64 [batch] */
    /* Paged only: key j of item b is in page block_table[b][j / page_size], where the item had cache_lengths[b] keys
     * before the call. Entries past an item's keys are not read. */
    attnc_tensor block_table;   /* I32 [batch, pages of an item], any strides */
    attnc_tensor cache_lengths; /* I32 or I64 [batch] */
    /* With a cache only: the most keys that an item has after the call; an item with more is refused. 0: the largest count of
     * the call's items.
     * On a device, whose lengths the host doesn't know, keys past max_keys are neither appended nor seen, and 0 is all that
     * an item has room for: the capacity, or the pages of its block table. A ring always needs it there, since its sequences
     * have no end; where it is more than the ring's capacity, seq_q and window_left together must not be, in a packed batch
     * the queries of an item and window_left, and keys that the ring doesn't hold any more are the caller's not to ask for. Less
     * than the room makes a call cheaper. */
    int64_t max_keys;
} attnc_inputs;

/* Which scores outputs.scores holds. Keys past an item's length have -inf in all of them, rows past its query length 0.
 * Before biases every key of the item has its score, whatever drops it later. Appended keys and sinks have no column. */
typedef enum attnc_scores_stage {
    ATTNC_SCORES_NOT_GIVEN = 0,
    ATTNC_SCORES_SCALED = 1,     /* q . k times qk_scale */
    ATTNC_SCORES_SOFTCAPPED = 2, /* after softcap, where the layer has one */
    ATTNC_SCORES_BIASED = 3      /* as softmax takes them: with alibi and biases, -inf where dropped */
} attnc_scores_stage;

/* Outputs of a call; out is needed, the others where wanted. Asking for more changes no bit of out. */
typedef struct attnc_outputs {
    size_t struct_size;
    attnc_tensor out;   /* F32, query's shape with d_model features (no output projection:
                                    [batch, seq_q, num_heads * v_head_dim] or [batch, num_heads, seq_q, v_head_dim]) */
    attnc_tensor probs; /* F32 [batch, num_heads, seq_q, seq_kv + appended keys]; a sink has no column */
    attnc_tensor probs_averaged; /* F32 [batch, seq_q, seq_kv + appended keys]: mean over the heads */
    attnc_tensor lse;    /* F32 [batch, num_heads, seq_q]: natural log of the sum of exponentials, the sink's
                                    among them */
    attnc_tensor scores; /* F32 [batch, num_heads, seq_q, seq_kv]; only for a library with scores */
    attnc_scores_stage scores_stage;
} attnc_outputs;

/* Runs tasks: calls task(data, 0 .. count-1), each once, in any order, on any threads, and returns 0 when all have
 * returned. The runtime asks for at most `concurrency` tasks and hands work out inside them, so an executor that runs
 * them one after another is right too. */
typedef struct attnc_executor {
    void* context;
    int64_t concurrency; /* >= 1 */
    int (*parallel_for)(void* context, int64_t count, int (*task)(void* data, int64_t index), void* data);
} attnc_executor;

typedef struct attnc_run {
    size_t struct_size;
    void*
        workspace; /* aligned to 64 bytes, on a device to 256; contents are of no meaning before and after */
    size_t workspace_bytes;
    const attnc_executor* executor; /* null: the calling thread alone */
    void* stream; /* on a device: a CUstream of the layer's context, null: its default stream */
} attnc_run;

#define ATTNC_INPUTS_INIT ATTNC_SIZED(attnc_inputs)
#define ATTNC_OUTPUTS_INIT ATTNC_SIZED(attnc_outputs)
#define ATTNC_RUN_INIT ATTNC_SIZED(attnc_run)

/* Asks the system to put this memory, a workspace or a cache, into large pages (of 2 MiB, as far as whole ones lie in it),
 * which makes calls some percent faster. Before it is first written to; changes nothing else, and does nothing where there
 * are no such pages. attnc_layer_create does so with the memory that it allocates itself, and so do the C++ classes. */
void attnc_memory_advise(void* memory, size_t bytes);

/* Bytes of workspace that forward needs for exactly these arguments; data pointers may be null (lengths' data too:
 * then the most for any lengths), run's workspace is not looked at. run may be null: one thread. */
attnc_status attnc_layer_workspace(const attnc_layer* layer, const attnc_inputs* inputs,
                                   const attnc_outputs* outputs, const attnc_run* run, size_t* bytes,
                                   attnc_error* error);

/* Limits of a program's calls. max_seq_kv: of the rows of key and value, and with a cache of the keys that an item has, on a
 * device of max_keys or what it stands for. */
typedef struct attnc_limits {
    size_t struct_size;
    int64_t max_batch, max_seq_q, max_seq_kv, max_concurrency; /* each >= 1 */
} attnc_limits;
#define ATTNC_LIMITS_INIT ATTNC_SIZED(attnc_limits)

/* Bytes that suffice for every call within the limits, whatever it asks for; monotone in each limit. */
attnc_status attnc_layer_workspace_bound(const attnc_layer* layer, const attnc_limits* limits, size_t* bytes,
                                         attnc_error* error);

/* Runs the layer. Checks every argument before it writes anything; allocates nothing. run is needed, since it has the
 * workspace. batch 0 or seq_q 0: success, nothing written. */
attnc_status attnc_layer_forward(const attnc_layer* layer, const attnc_inputs* inputs,
                                 const attnc_outputs* outputs, const attnc_run* run, attnc_error* error);

/* For programs that have no other way to the memory of a device: of the layer's context, on the calling thread. What is
 * allocated is aligned to 256 bytes; free may be given null. A copy comes after what `stream` (as in attnc_run) was given
 * before it, and is complete when the function returns. synchronize waits for the stream. On a layer of a CPU:
 * ATTNC_NO_DEVICE. */
attnc_status attnc_device_allocate(const attnc_layer* layer, size_t bytes, void** memory, attnc_error* error);
attnc_status attnc_device_free(const attnc_layer* layer, void* memory, attnc_error* error);
attnc_status attnc_device_copy_in(const attnc_layer* layer, void* to, const void* from, size_t bytes,
                                  void* stream, attnc_error* error);
attnc_status attnc_device_copy_out(const attnc_layer* layer, void* to, const void* from, size_t bytes,
                                   void* stream, attnc_error* error);
attnc_status attnc_device_synchronize(const attnc_layer* layer, void* stream, attnc_error* error);

/* slots are sequences, capacity the most keys of one; a paged cache has pages instead. The capacity of a ring is a multiple
 * of 16 and has room for window_left and all keys of one call: 4096 + 256 for a window_left of 4096 and prefill in chunks
 * of 256. */
typedef struct attnc_cache_options {
    size_t struct_size;
    attnc_cache_kind kind;
    int64_t slots, capacity, pages;
    /* For a layer on a device only: memory there that the layer's context can reach, aligned to 256 bytes, of at least the
     * size that attnc_cache_device_bytes names. All rows of a head are below 2 GiB. Not looked at where sizes are asked for. */
    void* device_memory;
    size_t device_bytes;
} attnc_cache_options;
#define ATTNC_CACHE_OPTIONS_INIT ATTNC_SIZED(attnc_cache_options)

/* The size of a cache, and a cache in `memory`, which is aligned to 64 bytes and has at least that size; device_bytes is what
 * it has on the layer's device besides, 0 without one. All slots are empty. Calls of one cache on different slots (or pages)
 * may run at the same time, and so may calls that only read. Nothing may use a slot (or page) while a call appends to it, and
 * no slot while attnc_cache_reorder runs.
 *
 * On a device attnc_cache_create and the functions below copy at once and outside of every stream, and are complete when they
 * return: the caller has waited for the work that uses the slots (or pages), and has captured nothing meanwhile. */
attnc_status attnc_cache_bytes(const attnc_layer* layer, const attnc_cache_options* options, size_t* bytes,
                               attnc_error* error);
attnc_status attnc_cache_device_bytes(const attnc_layer* layer, const attnc_cache_options* options,
                                      size_t* bytes, attnc_error* error);
attnc_status attnc_cache_create(const attnc_layer* layer, const attnc_cache_options* options, void* memory,
                                size_t bytes, attnc_cache** cache, attnc_error* error);

/* Keys of a slot so far, in a ring those too that it doesn't hold any more. -1 for a slot that isn't there, and where a device
 * refuses to tell. */
int64_t attnc_cache_length(const attnc_cache* cache, int64_t slot);

/* Forgets the keys of a slot from `length` on; 0 clears it. A ring goes back only to a length that it still holds, and
 * a call is refused whose window reaches keys that were overwritten before. */
attnc_status attnc_cache_rewind(attnc_cache* cache, int64_t slot, int64_t length, attnc_error* error);

/* Slot i takes over what slot from[i] held, for all i < count at once: duplicates, exchanges and cycles are right (beam
 * search). In place, without other memory. A paged cache is reordered in its block tables, so it is refused here. `from` is
 * the host's memory, of a device too. */
attnc_status attnc_cache_reorder(attnc_cache* cache, const int64_t* from, int64_t count, attnc_error* error);

/* Keys first .. first + count of each item, of a slot or of the pages of a block table. Both tables are the host's memory, of a
 * device too. */
typedef struct attnc_cache_range {
    size_t struct_size;
    attnc_tensor slots;       /* I32 or I64 [batch]; not given: item b is slot b. Not for paged caches */
    attnc_tensor block_table; /* I32 [batch, pages of an item]; paged only */
    int64_t first, count;
} attnc_cache_range;
#define ATTNC_CACHE_RANGE_INIT ATTNC_SIZED(attnc_cache_range)

/* Copies keys and values, as the cache holds them, to and from key [batch, num_kv_heads, count, head_dim] and value
 * [batch, num_kv_heads, count, v_head_dim], F32, inner stride 1, for a device in its memory. Export: rank 0 or null: not
 * wanted; every key must be
 * there (in pages the caller knows). Import: both; slots have first + count keys afterwards. It begins at most at the
 * slot's length; in a ring anywhere, and count is at most capacity. */
attnc_status attnc_cache_export(const attnc_cache* cache, const attnc_cache_range* range,
                                const attnc_tensor* key, const attnc_tensor* value, attnc_error* error);
attnc_status attnc_cache_import(attnc_cache* cache, const attnc_cache_range* range, const attnc_tensor* key,
                                const attnc_tensor* value, attnc_error* error);

/* Projects keys and values into a cache, to be attended many times by calls with ATTNC_CACHE_READ: the encoder's output,
 * for cross-attention. inputs has key, value, key_lengths, positions and the cache's fields; no query, masks or diagonal.
 * Like a call, it appends: rewind the slot for another memory. memory_workspace names the bytes of workspace that it
 * needs (data pointers may be null); those of attnc_layer_workspace_bound suffice as well. */
attnc_status attnc_memory_project(const attnc_layer* layer, const attnc_inputs* inputs, attnc_cache* cache,
                                  const attnc_run* run, attnc_error* error);
attnc_status attnc_memory_workspace(const attnc_layer* layer, const attnc_inputs* inputs, attnc_cache* cache,
                                    const attnc_run* run, size_t* bytes, attnc_error* error);

/* Heads of queries have the layer's num_heads and its q_norm, heads of keys num_kv_heads and k_norm. */
typedef enum attnc_heads { ATTNC_HEADS_QUERY = 1, ATTNC_HEADS_KEY = 2 } attnc_heads;

/* Heads that are already projected, to be normalised and rotated as forward does it between projection and attention. */
typedef struct attnc_rotation {
    size_t struct_size;
    attnc_heads heads;
    attnc_tensor x; /* F32 [batch, seq, heads * head_dim] or [batch, heads, seq, head_dim], inner stride 1 */
    attnc_tensor positions; /* I32 or I64 [batch, seq] */
    attnc_tensor
        position_offsets; /* I32 or I64 [batch]; positions not given: row t has position_offsets[item] + t */
    attnc_tensor out; /* F32, either shape; x itself, with its strides, or memory that doesn't overlap it */
} attnc_rotation;
#define ATTNC_ROTATION_INIT ATTNC_SIZED(attnc_rotation)

/* Applies the layer's norm, if it has one, and its rotary embedding to heads, with the bits that forward would have: to
 * fill a store of rotated keys of one's own, or to rotate what forward doesn't project. For a library with rotary,
 * rotary_pairs or qk_norm. run is needed, for its workspace. */
attnc_status attnc_layer_rotate(const attnc_layer* layer, const attnc_rotation* rotation,
                                const attnc_run* run, attnc_error* error);
/* Bytes of workspace for that, whatever the sizes. run may be null: one thread. */
attnc_status attnc_layer_rotate_workspace(const attnc_layer* layer, const attnc_run* run, size_t* bytes,
                                          attnc_error* error);

/* A ready executor: `threads` threads in all, the calling one among them (threads - 1 are started). In a child of fork
 * it runs on the calling thread alone. One parallel_for at a time; others wait. From within a task of the same pool it
 * runs on that task's thread. */
typedef struct attnc_pool attnc_pool;
attnc_status attnc_pool_create(int64_t threads, attnc_pool** pool, attnc_error* error);
const attnc_executor* attnc_pool_executor(attnc_pool* pool);
void attnc_pool_destroy(attnc_pool* pool); /* null is allowed */

/* Named conversions to masks and biases, elementwise over `count` elements. */
void attnc_keep_mask_from_i64(const int64_t* from, uint8_t* to, int64_t count); /* non-zero = 1 */
void attnc_keep_mask_from_i32(const int32_t* from, uint8_t* to, int64_t count);
void attnc_keep_mask_from_f32(const float* from, uint8_t* to, int64_t count);
void attnc_bias_from_scaled_mask(const float* mask, float factor, float* bias,
                                 int64_t count); /* mask * factor */

#ifdef __cplusplus
}
#endif
#endif
