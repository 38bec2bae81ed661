#include "stages/device_kernels.h"

#include <algorithm>
#include <array>

#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

#define ATTNC_X(id, name) #name,
constexpr std::array<const char*, ATTNC_DEVICE_KERNEL_COUNT> kNames = {ATTNC_DEVICE_KERNELS(ATTNC_X)};
#undef ATTNC_X

// Whatever the heads are, these are the same.
bool is_for_any_heads(int kernel) {
    switch (kernel) {
        case ATTNC_DEVICE_KERNEL_FILL_ITEMS:
        case ATTNC_DEVICE_KERNEL_ATTEND_LSE:
        case ATTNC_DEVICE_KERNEL_AVERAGE_PROBS:
        case ATTNC_DEVICE_KERNEL_ROTARY_ANGLES:
        case ATTNC_DEVICE_KERNEL_ROTARY_ROWS:
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BIAS:
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BLOCKS:
        case ATTNC_DEVICE_KERNEL_FILL_POSITIONS:
        case ATTNC_DEVICE_KERNEL_CLEAR_ROWS:
        case ATTNC_DEVICE_KERNEL_FILL_CACHE:
        case ATTNC_DEVICE_KERNEL_FILL_RUNS:
        case ATTNC_DEVICE_KERNEL_APPEND_ROWS:
        case ATTNC_DEVICE_KERNEL_KEEP_LENGTHS:
            return true;
        default:
            return false;
    }
}

bool has_score_steps(int kernel) {
    return kernel == ATTNC_DEVICE_KERNEL_ATTEND_MASKED || kernel == ATTNC_DEVICE_KERNEL_ATTEND_GUARDED ||
           kernel == ATTNC_DEVICE_KERNEL_ATTEND_DECODE || kernel == ATTNC_DEVICE_KERNEL_ATTEND_PROBS ||
           kernel == ATTNC_DEVICE_KERNEL_ATTEND_SCORES;
}

bool reads_keys_or_values(int kernel) {
    return has_score_steps(kernel) || kernel == ATTNC_DEVICE_KERNEL_ATTEND ||
           kernel == ATTNC_DEVICE_KERNEL_FILL_EMPTY;
}

}  // namespace

std::vector<int> device_kernels_of(const Config& config) {
    std::vector<int> kernels;
    const auto add = [&](int kernel, bool wanted) {
        if (wanted) kernels.push_back(kernel);
    };
    const bool rotary = config.rotary != Rotary::kNone;
    // Heads of the caller's that are rotated by themselves are taken from tokens and given back.
    const bool changes_heads = rotary || config.qk_norm;
    add(ATTNC_DEVICE_KERNEL_FILL_ITEMS, true);
    add(ATTNC_DEVICE_KERNEL_PROJECT_HEADS, config.in_proj);
    add(ATTNC_DEVICE_KERNEL_PROJECT_OUT, config.out_proj);
    add(ATTNC_DEVICE_KERNEL_ATTEND, true);
    add(ATTNC_DEVICE_KERNEL_ATTEND_MASKED, config.masks || config.alibi || config.softcap);
    // Any call may be causal or have few queries, and any layer may have a window or a policy for rows without keys; with
    // appended keys there are no such rows.
    add(ATTNC_DEVICE_KERNEL_ATTEND_SUSPECTS, true);
    add(ATTNC_DEVICE_KERNEL_ATTEND_GUARDED, true);
    add(ATTNC_DEVICE_KERNEL_ATTEND_DECODE, true);
    add(ATTNC_DEVICE_KERNEL_ATTEND_MERGE, true);
    add(ATTNC_DEVICE_KERNEL_FILL_EMPTY, !config.bias_kv && !config.zero_attn);
    add(ATTNC_DEVICE_KERNEL_ATTEND_LSE, true);
    add(ATTNC_DEVICE_KERNEL_ATTEND_PROBS, config.probs);
    add(ATTNC_DEVICE_KERNEL_ATTEND_SCORES, config.scores);
    add(ATTNC_DEVICE_KERNEL_AVERAGE_PROBS, config.probs);
    add(ATTNC_DEVICE_KERNEL_SPLIT_HEADS, !config.in_proj || changes_heads);
    add(ATTNC_DEVICE_KERNEL_MERGE_HEADS, !config.out_proj || changes_heads);
    add(ATTNC_DEVICE_KERNEL_NORM_HEADS, config.qk_norm);
    add(ATTNC_DEVICE_KERNEL_ROTARY_ANGLES, rotary);
    add(ATTNC_DEVICE_KERNEL_ROTARY_ROWS, rotary);
    add(ATTNC_DEVICE_KERNEL_ROTATE_HEADS, rotary);
    add(ATTNC_DEVICE_KERNEL_FILL_KEY_BIAS, config.masks);
    add(ATTNC_DEVICE_KERNEL_FILL_KEY_BLOCKS, config.masks);
    add(ATTNC_DEVICE_KERNEL_FILL_POSITIONS, rotary);
    add(ATTNC_DEVICE_KERNEL_CLEAR_ROWS, config.out_proj);
    add(ATTNC_DEVICE_KERNEL_FILL_CACHE, config.cache);
    add(ATTNC_DEVICE_KERNEL_FILL_RUNS, config.cache);
    add(ATTNC_DEVICE_KERNEL_APPEND_ROWS, config.cache);
    add(ATTNC_DEVICE_KERNEL_KEEP_LENGTHS, config.cache);
    return kernels;
}

const char* device_kernel_name(int kernel) {
    if (kernel < 0 || kernel >= ATTNC_DEVICE_KERNEL_COUNT)
        throw ConfigError("device kernel number " + std::to_string(kernel) + " is unknown");
    return kNames[static_cast<size_t>(kernel)];
}

int device_kernel_by_name(std::string_view name) {
    const auto* const found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end()) throw ConfigError("device kernel " + in_quotes(name) + " is unknown");
    return static_cast<int>(found - kNames.begin());
}

std::string device_kernel_config(const Config& config, int kernel) {
    KernelConfig parts{.head_dim = padded_head(config.head_dim),
                       .v_head_dim = padded_head(config.v_head_dim)};
    if (is_for_any_heads(kernel)) parts.head_dim = parts.v_head_dim = ATTNC_HEAD_ALIGN;
    parts.softcap = config.softcap && has_score_steps(kernel);
    parts.alibi = config.alibi && has_score_steps(kernel);
    parts.sink = config.sink && kernel == ATTNC_DEVICE_KERNEL_ATTEND_MERGE;
    parts.rotary_pairs = config.rotary == Rotary::kPairs && kernel == ATTNC_DEVICE_KERNEL_ROTATE_HEADS;
    parts.cache = config.cache && reads_keys_or_values(kernel);
    return to_string(parts);
}

std::string device_kernel_symbol(int kernel) {
    return std::string("attnc_device_") + device_kernel_name(kernel);
}

}  // namespace attnc
