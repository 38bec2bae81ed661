// What the Python side of the benchmark calls through ctypes: attnc's layer, the naive one and the probe, each with one
// function that does one call. Every function that can fail returns null or non-zero and leaves a line in `error`, which
// has room for kBenchErrorBytes. Tensors are f32, dense, in C order.
#pragma once

#include <cstdint>

extern "C" {

enum { kBenchErrorBytes = 1024 };

// Where the keys of a call are: given as tokens; in a cache that the call appends one step to; in a cache that it reads.
enum BenchMode { kBenchTokens = 0, kBenchDecode = 1, kBenchMemory = 2 };

struct BenchProblem {
    const char* problem;     // "d512_h8_f32:b32_q50_kv50"
    const int32_t* lengths;  // [batch]: valid tokens of each item, queries and keys alike; null: all
    int64_t mode;            // BenchMode
    // Keys of a cache before the call, [batch, num_kv_heads, cached, head_dim]: seq_kv less what a call appends.
    const float* cached_keys;
    const float* cached_values;
};

struct BenchWeights {
    const float *wq, *wk, *wv, *wo, *bq, *bk, *bv, *bo;
};

// key is null for self-attention and where keys come from a memory; probs is null where they aren't wanted.
struct BenchCall {
    const float* query;
    const float* key;
    float* out;
    float* probs;
};

struct BenchPool;
BenchPool* bench_pool_create(int64_t threads, char* error);
void bench_pool_destroy(BenchPool* pool);

// Floating-point operations a second of all threads of the pool together, from about a millisecond of multiply-adds.
double bench_probe(BenchPool* pool);
const char* bench_probe_name();

// The layer of lib<name>.a. `command` is the attnc executable of the tree whose runtime it is linked with.
struct BenchLayer;
BenchLayer* bench_layer_create(const char* command, const char* archive, const BenchProblem* problem,
                               const BenchWeights* weights, BenchPool* pool, int64_t probs, char* error);
int bench_layer_call(BenchLayer* layer, const BenchCall* call, char* error);
int64_t bench_layer_workspace_bytes(const BenchLayer* layer);
const char* bench_layer_target(const BenchLayer* layer);
void bench_layer_destroy(BenchLayer* layer);

// Plain loops in C++ over the same problem, rows split over the pool.
struct BenchNaive;
BenchNaive* bench_naive_create(const BenchProblem* problem, const BenchWeights* weights, BenchPool* pool,
                               char* error);
int bench_naive_call(BenchNaive* layer, const BenchCall* call, char* error);
void bench_naive_destroy(BenchNaive* layer);
}
