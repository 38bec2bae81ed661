// One attention layer of a published model: the library that it needs, the values that a layer of that library is
// created with, and the names of its tensors in the model's checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stages/config.h"

namespace attnc {

// Rotary position embedding. Pair i of the first `dim` features of a head turns by position * frequency i.
struct RotarySettings {
    // How the frequencies base^(-2i/dim) are changed before they are used.
    enum class Scaling { kNone, kLinear, kLlama3 };

    int64_t dim = 0;  // even; 0: the layer has none
    double base = 0;
    Scaling scaling = Scaling::kNone;
    double factor = 0;           // with a scaling only
    double low_freq_factor = 0;  // these three: Llama 3's scaling only
    double high_freq_factor = 0;
    int64_t original_positions = 0;

    // [dim / 2], radians a position, in the place of base and scaling; empty: those two say all. For YaRN and
    // LongRoPE, whose frequencies are constants of the model.
    std::vector<double> frequencies;
    double magnitude = 1;  // multiplies cosine and sine

    bool operator==(const RotarySettings&) const = default;
};

// What a layer is created with, beside its weights. "Not given" is 0 or nothing.
struct LayerSettings {
    double qk_scale = 0;  // 0: 1 / sqrt(head_dim)
    double softcap = 0;
    std::optional<int64_t> window_left;  // keys to the left of the query's own that it sees
    std::optional<int64_t> window_right;
    double qk_norm_epsilon = 0;
    RotarySettings rotary;
    std::vector<float> alibi_slopes;  // [num_heads]

    bool operator==(const LayerSettings&) const = default;
};

// How the projections of query, key and value lie in a checkpoint.
enum class Packing {
    kSeparate,  // a tensor each
    kStacked,   // one tensor: all rows of the queries, then of the keys, then of the values
    kPerHead,   // one tensor: for each head its rows of the query, the key and the value
};

// Names of a layer's tensors. Projections are named without ".weight" and ".bias".
struct TensorNames {
    std::vector<std::string> prefixes;  // that the model's name may put before `layer`, besides none: "bert."
    std::string layer;                  // begins all that follow: "encoder.layer.3.attention."
    Packing packing = Packing::kSeparate;
    std::string q, k, v;  // kStacked, kPerHead: q alone
    std::string out;
    bool transposed = false;  // true: weights are [in_features, out_features]; false: as linear layers are
    bool bias_q = false, bias_k = false, bias_v = false, bias_out = false;
    std::string q_norm, k_norm;  // empty: none; of ".weight"
    bool norm_adds_one = false;  // true: the checkpoint holds w of a norm that multiplies by 1 + w
    std::string sink;            // empty: none; the whole name
};

struct ModelLayer {
    std::string model_type;  // "llama"
    std::string kind;        // "decoder.self"
    int64_t number = 0;      // of the layer among its kind, from 0
    Config config;           // completed
    LayerSettings settings;
    TensorNames names;

    std::string name() const { return kind + "." + std::to_string(number); }
};

}  // namespace attnc
