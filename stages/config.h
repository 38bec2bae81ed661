// The configuration of an attention layer: what a library is compiled for. One value type, its validation and its
// canonical text, the problem string, which is the same in commands, tests, benchmarks, records and bug reports.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace attnc {

// A configuration, size or schedule that can't be: what() is one lower-case line with what was got and wanted.
struct ConfigError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Which features of a head a rotary embedding turns together, if any: i and i + half, or 2 i and 2 i + 1.
enum class Rotary { kNone, kHalf, kPairs };

struct Config {
    int64_t d_model = 0;
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;  // divides num_heads; grouped-query attention when smaller
    int64_t head_dim = 0;      // features of a head of Q and K
    int64_t v_head_dim = 0;    // features of a head of V
    int64_t k_dim = 0;         // features of `key`
    int64_t v_dim = 0;         // features of `value`

    bool in_proj = true;     // false: query, key and value arrive projected
    bool out_proj = true;    // false: the merged heads are the output
    bool causal = false;     // true: a call that names no diagonal has the bottom-right one
    bool masks = true;       // keep and drop masks, biases and per-key forms are supported
    bool probs = true;       // probabilities are supported
    bool bias_kv = false;    // one learned key and value is appended
    bool zero_attn = false;  // a key and value of zeros is appended, after bias_kv's
    bool sink = false;       // each head has a sink: a logit that takes part in the softmax and has no value
    bool alibi = false;      // scores fall with the distance of the key
    bool softcap = false;    // scores may be soft-capped
    bool qk_norm = false;    // heads of q and k are RMS-normalised
    Rotary rotary = Rotary::kNone;
    bool cache = false;     // keys and values may stay from call to call
    int64_t page_size = 0;  // keys of a page of a paged cache, a multiple of 16; 0: none. Needs cache
    bool scores = false;    // scores before the softmax are supported

    bool operator==(const Config&) const = default;
};

// Fills what is 0 with its default (num_kv_heads = num_heads, head_dim = d_model / num_heads, v_head_dim = head_dim,
// k_dim = v_dim = d_model) and validates. Without input projections k_dim and v_dim are what the heads make them, and
// d_model, if 0, is num_heads * head_dim. Throws ConfigError: "d_model 500 is not divisible by num_heads 12".
Config complete(Config config);

// Canonical text: "d512_h8_f32", then what differs from its default, in this order:
//   d<d_model>_h<num_heads>[_kv<num_kv_heads>][_hd<head_dim>][_vhd<v_head_dim>][_kdim<k_dim>][_vdim<v_dim>]_f32
//   [_noin][_noout][_causal][_nomask][_noprobs][_biaskv][_zeroattn][_sink][_alibi][_softcap][_qknorm]
//   [_rope|_ropepairs][_cache][_page<page_size>][_scores]
std::string to_string(const Config& config);

// Reads what to_string writes (tokens after _f32 in any order, each once); validated and completed.
Config parse_config(std::string_view text);

// Run-time sizes of a call: "b32_q50_kv50"; 0 batches, queries or keys are sizes too. kv may be left out: equal to q.
struct Sizes {
    int64_t batch = 1, seq_q = 0, seq_kv = 0;
    bool operator==(const Sizes&) const = default;
};
std::string to_string(const Sizes& sizes);
Sizes parse_sizes(std::string_view text);

// "d512_h8_f32:b32_q50_kv50".
struct Problem {
    Config config;
    Sizes sizes;
};
Problem parse_problem(std::string_view text);
std::string to_string(const Problem& problem);

// The options as bits of the library's table: ATTNC_CONFIG_*.
int64_t config_flags(const Config& config);

// Features of a head as stored between kernels: rounded up to ATTNC_HEAD_ALIGN.
int64_t padded_head(int64_t head_dim);

// Kernels (ATTNC_KERNEL_*) that a library of this configuration holds for each target, in the table's order.
std::vector<int> kernels_of(const Config& config);
const char* kernel_name(int kernel);        // "attend"
int kernel_by_name(std::string_view name);  // throws ConfigError for an unknown name

// What a kernel's object code depends on, as a configuration text: kernels that are equal for many layers are
// compiled from equal texts. "hd64_vhd64" with padded sizes, then what the kernel has of softcap, alibi, sink, pairs and cache.
std::string kernel_config(const Config& config, int kernel);
struct KernelConfig {
    int64_t head_dim = 0, v_head_dim = 0;  // padded
    bool softcap = false, alibi = false;   // steps of the scores
    bool sink = false;                     // a device's join of splits adds the heads' sinks
    bool rotary_pairs = false;             // a rotary embedding's pairs lie side by side
    bool cache = false;                    // a device's attention finds keys by runs of rows
};
std::string to_string(const KernelConfig& config);
KernelConfig parse_kernel_config(std::string_view text);

// Symbol of a kernel inside a library before names become local: "attnc_attend__x86_64_linux_avx2_fma_f16c".
std::string kernel_symbol(int kernel, std::string_view target);

// Text from a file or a command line, fit for one line of an error: quoted, cut, unprintable characters as '?'.
std::string in_quotes(std::string_view text);

// C identifier check for library names; throws ConfigError.
inline constexpr size_t kLongestLibraryName = 63;  // significant characters of an external name in C
void check_library_name(std::string_view name);

}  // namespace attnc
