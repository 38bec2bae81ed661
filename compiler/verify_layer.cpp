#include "compiler/verify_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "compiler/run_layer.h"
#include "runtime/kernel_abi.h"
#include "support/comparison.h"
#include "support/random.h"

namespace attnc {

namespace {

Sizes random_sizes(const Config& config, Random& random) {
    constexpr int64_t kReferenceBudget = 200'000'000;  // multiply-adds of the projections
    constexpr int64_t kLongest = 150;
    const int64_t token = config.in_proj || config.out_proj
                              ? config.d_model * config.num_heads * config.head_dim * 4
                              : config.num_heads * config.head_dim * 1000;
    const int64_t tokens = std::clamp<int64_t>(kReferenceBudget / token, 8, 4 * kLongest);
    Sizes sizes;
    sizes.batch = random.between(1, 3);
    const int64_t longest = std::clamp<int64_t>(tokens / sizes.batch / 2, 2, kLongest);
    sizes.seq_q = random.between(1, longest);
    sizes.seq_kv = random.chance(0.4) ? sizes.seq_q : random.between(1, longest);
    return sizes;
}

// A mask [1 or batch, 1 or heads, 1 or seq_q, 1 or seq_kv].
attnc_tensor mask_view(attnc_dtype dtype, const void* data, const int64_t (&extent)[4]) {
    return attnc_tensor_4d(dtype, data, extent[0], extent[1], extent[2], extent[3]);
}

std::vector<uint8_t> random_bytes(int64_t count, double ones, Random& random) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    for (uint8_t& byte : bytes) byte = random.chance(ones) ? 1 : 0;
    return bytes;
}

std::vector<int64_t> random_lengths(int64_t count, int64_t low, int64_t high, Random& random) {
    std::vector<int64_t> lengths(static_cast<size_t>(count));
    for (int64_t& length : lengths) length = random.between(low, high);
    return lengths;
}

// What masks count: the most keys of an item.
int64_t all_keys(const VerifyCall& call) {
    int64_t most = call.past.given() ? 0 : call.problem.sizes.seq_kv;
    for (int64_t item = 0; item < call.problem.sizes.batch && call.past.given(); ++item) {
        const auto n = static_cast<size_t>(item);
        const int64_t fresh = call.past.alone            ? 0
                              : call.key_lengths.empty() ? call.problem.sizes.seq_kv
                                                         : call.key_lengths[n];
        most = std::max(most, call.past.length(item) + fresh);
    }
    return most;
}

void add_masks(VerifyCall& call, Random& random) {
    const int64_t batch = call.problem.sizes.batch, seq_q = call.problem.sizes.seq_q;
    const int64_t seq_kv = all_keys(call);
    const int64_t heads = call.problem.config.num_heads;
    int64_t extent[4];
    const auto draw_extent = [&] {
        const int64_t full[4] = {batch, heads, seq_q, seq_kv};
        int64_t count = 1;
        for (int n = 0; n < 4; ++n) {
            extent[n] = random.chance(0.5) ? full[n] : 1;
            count *= extent[n];
        }
        return count;
    };
    if (random.chance(0.4)) {
        call.keep_mask = random_bytes(draw_extent(), 0.8, random);
        call.inputs.keep_mask = mask_view(ATTNC_U8, call.keep_mask.data(), extent);
    }
    if (random.chance(0.3)) {
        call.drop_mask = random_bytes(draw_extent(), 0.2, random);
        call.inputs.drop_mask = mask_view(ATTNC_U8, call.drop_mask.data(), extent);
    }
    if (random.chance(0.4)) {
        call.bias = generated(draw_extent(), random.bits(), 2);
        call.inputs.bias = mask_view(ATTNC_F32, call.bias.data(), extent);
    }
    const int64_t keys = batch * seq_kv;
    if (random.chance(0.3)) {
        call.key_keep_mask = random_bytes(keys, 0.8, random);
        call.inputs.key_keep_mask = attnc_tensor_2d(ATTNC_U8, call.key_keep_mask.data(), batch, seq_kv);
    }
    if (random.chance(0.3)) {
        call.key_drop_mask = random_bytes(keys, 0.2, random);
        call.inputs.key_drop_mask = attnc_tensor_2d(ATTNC_U8, call.key_drop_mask.data(), batch, seq_kv);
    }
    if (random.chance(0.3)) {
        call.key_bias = generated(keys, random.bits(), 2);
        call.inputs.key_bias = attnc_tensor_2d(ATTNC_F32, call.key_bias.data(), batch, seq_kv);
    }
}

// A mask of blocks of queries and keys.
void add_block_mask(VerifyCall& call, Random& random) {
    if (!random.chance(0.3)) return;
    constexpr int64_t kGranule = 16;
    attnc_inputs& in = call.inputs;
    in.block_q = kGranule * random.between(1, 4), in.block_kv = kGranule * random.between(1, 4);
    const auto blocks = [](int64_t seq, int64_t size) { return (seq + size - 1) / size; };
    const int64_t extent[4] = {random.chance(0.5) ? call.problem.sizes.batch : 1,
                               random.chance(0.5) ? call.problem.config.num_heads : 1,
                               blocks(call.problem.sizes.seq_q, in.block_q),
                               blocks(all_keys(call), in.block_kv)};
    call.block_keep_mask = random_bytes(extent[0] * extent[1] * extent[2] * extent[3], 0.6, random);
    in.block_keep_mask = mask_view(ATTNC_U8, call.block_keep_mask.data(), extent);
}

void add_lengths(VerifyCall& call, Random& random) {
    const auto [batch, seq_q, seq_kv] = call.problem.sizes;
    if (random.chance(0.5)) {
        call.key_lengths = random_lengths(batch, 0, seq_kv, random);
        call.inputs.key_lengths = attnc_tensor_1d(ATTNC_I64, call.key_lengths.data(), batch);
    }
    if (random.chance(0.4)) {
        call.query_lengths = random_lengths(batch, 0, seq_q, random);
        call.inputs.query_lengths = attnc_tensor_1d(ATTNC_I64, call.query_lengths.data(), batch);
    }
    call.inputs.causal =
        static_cast<attnc_causal>(random.between(ATTNC_CAUSAL_NOT_GIVEN, ATTNC_CAUSAL_OFFSET));
    if (call.inputs.causal == ATTNC_CAUSAL_OFFSET) {
        call.causal_offsets = random_lengths(batch, -seq_q, seq_kv, random);
        call.inputs.causal_offsets = attnc_tensor_1d(ATTNC_I64, call.causal_offsets.data(), batch);
    }
    call.options.empty_rows =
        static_cast<attnc_empty_rows>(random.between(ATTNC_EMPTY_ROWS_NOT_GIVEN, ATTNC_EMPTY_ROWS_NAN));
}

// Keys and values of earlier calls, of other lengths in each item; and a call that brings none.
void add_past(VerifyCall& call, Random& random) {
    const Config& config = call.problem.config;
    const int64_t batch = call.problem.sizes.batch;
    if (!config.cache || random.chance(0.3)) return;
    constexpr int64_t kLongest = 200;
    const int64_t past = random.between(1, kLongest);
    call.past_keys = generated(batch * config.num_kv_heads * past * config.head_dim, random.bits(), 1);
    call.past_values = generated(batch * config.num_kv_heads * past * config.v_head_dim, random.bits(), 1);
    call.past.keys =
        attnc_tensor_4d(ATTNC_F32, call.past_keys.data(), batch, config.num_kv_heads, past, config.head_dim);
    call.past.values = attnc_tensor_4d(ATTNC_F32, call.past_values.data(), batch, config.num_kv_heads, past,
                                       config.v_head_dim);
    call.past.lengths = random_lengths(batch, 0, past, random);
    call.past.alone = random.chance(0.2);
    if (!call.past.alone) return;
    call.inputs.key = call.inputs.value = call.inputs.key_lengths = {};
    call.key_lengths.clear();
}

// One item has all queries and one all keys, so that the longest ones are the sizes.
void pack(VerifyCall& call, Random& random) {
    if (call.past.given() || !random.chance(0.2)) return;
    call.packed = true;
    for (auto [lengths, all] : {std::pair(&call.query_lengths, call.problem.sizes.seq_q),
                                std::pair(&call.key_lengths, call.problem.sizes.seq_kv)}) {
        if (!lengths->empty()) lengths->front() = all;
    }
}

void add_window(VerifyCall& call, Random& random) {
    // Narrow ones, also beside long sequences, and wide ones that drop little.
    const auto keys = [&] { return random.between(0, random.chance(0.5) ? 8 : call.problem.sizes.seq_kv); };
    if (random.chance(0.4)) call.options.window_left = keys();
    if (random.chance(0.3)) call.options.window_right = keys();
}

// What the library was compiled for is used by most calls, not by all.
void add_options(VerifyCall& call, Random& random) {
    const Config& config = call.problem.config;
    if (config.softcap && random.chance(0.8)) call.options.softcap = std::exp2(random.between(-1, 6));
    if (config.scores && random.chance(0.6)) {
        call.options.scores_stage =
            static_cast<attnc_scores_stage>(random.between(ATTNC_SCORES_SCALED, ATTNC_SCORES_BIASED));
    }
    if (config.qk_norm && random.chance(0.3)) call.options.qk_norm_epsilon = 1e-5F;
}

void add_rotation(VerifyCall& call, Random& random) {
    const int64_t head_dim = call.problem.config.head_dim;
    if (call.problem.config.rotary == Rotary::kNone || random.chance(0.1)) return;
    attnc_rotary& rotary = call.options.rotary;
    rotary.base = random.chance(0.7) ? 10000 : 500000;
    if (random.chance(0.4)) rotary.dim = 2 * random.between(1, head_dim / 2);
    rotary.scaling = static_cast<attnc_rotary_scaling>(
        random.between(ATTNC_ROTARY_SCALING_NONE, ATTNC_ROTARY_SCALING_LLAMA3));
    if (rotary.scaling != ATTNC_ROTARY_SCALING_NONE) rotary.factor = 8;
    if (rotary.scaling == ATTNC_ROTARY_SCALING_LLAMA3) {
        rotary.low_freq_factor = 1;
        rotary.high_freq_factor = 4;
        rotary.original_positions = 64;
    }
    if (random.chance(0.2)) rotary.magnitude = 1.25;
    const auto [batch, seq_q, seq_kv] = call.problem.sizes;
    constexpr int64_t kFarthest = 100000;
    if (random.chance(0.5)) {
        call.position_offsets = random_lengths(batch, 0, kFarthest, random);
        call.inputs.position_offsets = attnc_tensor_1d(ATTNC_I64, call.position_offsets.data(), batch);
    }
    if (random.chance(0.3) && !call.packed) {
        call.query_positions = random_lengths(batch * seq_q, 0, kFarthest, random);
        call.inputs.query_positions = attnc_tensor_2d(ATTNC_I64, call.query_positions.data(), batch, seq_q);
    }
    if (random.chance(0.3) && !call.packed && !call.past.alone) {
        call.key_positions = random_lengths(batch * seq_kv, 0, kFarthest, random);
        call.inputs.key_positions = attnc_tensor_2d(ATTNC_I64, call.key_positions.data(), batch, seq_kv);
    }
}

KeyBlocks key_blocks_of(const attnc_library* library, const std::string& target) {
    if (library->device != nullptr && target == library->device->name)
        return {library->device->layout.tile_kv, library->device->layout.split_kv};
    for (int64_t n = 0; n < library->target_count; ++n) {
        if (target == library->targets[n].name) {
            const attnc_layout& layout = library->targets[n].layout;
            return {layout.tile_kv, layout.split_kv};
        }
    }
    throw std::runtime_error(fmt::format("the library has no target {}", target));
}

}  // namespace

std::unique_ptr<VerifyCall> random_call(const Config& config, uint64_t seed) {
    Random random(seed);
    const Problem problem = {config, random_sizes(config, random)};
    auto call = std::make_unique<VerifyCall>(VerifyCall{.problem = problem,
                                                        .seed = seed,
                                                        .weights = {config, 1000 * seed},
                                                        .tokens = {problem, 1000 * seed}});
    call->inputs.query = call->tokens.query_view;
    call->inputs.key = call->tokens.key_view;
    call->inputs.value = call->tokens.value_view;
    add_lengths(*call, random);
    add_past(*call, random);
    pack(*call, random);
    if (config.masks) {
        add_masks(*call, random);
        add_block_mask(*call, random);
    }
    add_window(*call, random);
    add_options(*call, random);
    add_rotation(*call, random);
    return call;
}

Config config_of(const attnc_library* library) { return parse_config(library->problem); }

Reference reference_of(const VerifyCall& call) {
    return reference_layer(call.problem.config, call.weights.view, call.options, call.inputs, call.past);
}

std::string check_call(const attnc_library* library, const std::string& target, const VerifyCall& call,
                       const Reference& want) {
    const Config& config = call.problem.config;
    const Wanted wanted = {.probs = config.probs, .probs_averaged = config.probs, .lse = true};
    const Reference got =
        call.packed ? run_packed(library, target, call.weights.view, call.inputs, call.options, wanted, want)
                    : run_layer(library, target, call.weights.view, call.inputs, call.options, wanted, want,
                                call.past);
    const LayerComparison comparison = compare_layer(config, got, want, key_blocks_of(library, target));
    return comparison.ok() ? "" : comparison.text();
}

}  // namespace attnc
