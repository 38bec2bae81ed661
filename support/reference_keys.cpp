#include "support/reference_keys.h"

#include <cmath>
#include <limits>

#include "support/reference_rows.h"

namespace attnc {
namespace {

// Keys from the query's own one on the diagonal to the key; negative: to the left. The own one of a call without a
// diagonal is on the bottom-right one. Sums of offsets and lengths may need 65 bits, sign included; long double has as
// many.
long double distance_to(const attnc_inputs& inputs, attnc_causal causal, const QueryKey& at) {
    auto own = static_cast<long double>(at.row);
    if (causal == ATTNC_CAUSAL_OFFSET) {
        own += static_cast<long double>(integer(inputs.causal_offsets, {at.item}));
    } else if (causal != ATTNC_CAUSAL_TOP_LEFT) {
        own += static_cast<long double>(at.keys - at.queries);
    }
    return static_cast<long double>(at.key) - own;
}

bool is_kept(const attnc_inputs& in, const QueryKey& at) {
    const auto flag = [&](const attnc_tensor& t) {
        return (t.rank == 2 ? element<uint8_t>(t, {at.item, at.key})
                            : element<uint8_t>(t, {at.item, at.head, at.row, at.key})) != 0;
    };
    if (is_given(in.keep_mask) && !flag(in.keep_mask)) return false;
    if (is_given(in.drop_mask) && flag(in.drop_mask)) return false;
    if (is_given(in.key_keep_mask) && !flag(in.key_keep_mask)) return false;
    if (is_given(in.key_drop_mask) && flag(in.key_drop_mask)) return false;
    return !is_given(in.block_keep_mask) ||
           element<uint8_t>(in.block_keep_mask,
                            {at.item, at.head, at.row / in.block_q, at.key / in.block_kv}) != 0;
}

}  // namespace

KeyPermission key_permission(const Config& config, const attnc_weights& weights,
                             const ReferenceOptions& options, const attnc_inputs& inputs,
                             const QueryKey& at) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    attnc_causal causal = inputs.causal;
    if (causal == ATTNC_CAUSAL_NOT_GIVEN)
        causal = config.causal ? ATTNC_CAUSAL_BOTTOM_RIGHT : ATTNC_CAUSAL_NONE;
    const long double to_right = distance_to(inputs, causal, at);
    if (causal != ATTNC_CAUSAL_NONE && to_right > 0) return {};
    if (options.window_left && -to_right > static_cast<long double>(*options.window_left)) return {};
    if (options.window_right && to_right > static_cast<long double>(*options.window_right)) return {};
    if (!is_kept(inputs, at)) return {};

    const double bias =
        is_given(inputs.bias) ? element<float>(inputs.bias, {at.item, at.head, at.row, at.key}) : 0.0;
    const double key_bias =
        is_given(inputs.key_bias) ? element<float>(inputs.key_bias, {at.item, at.key}) : 0.0;
    if (bias == -kInfinity || key_bias == -kInfinity) return {};
    double alibi = 0;
    if (config.alibi && is_given(weights.alibi_slopes)) {
        alibi = element<float>(weights.alibi_slopes, {at.head}) * static_cast<double>(std::fabs(to_right));
    }
    return {true, bias + key_bias - alibi, std::fabs(bias) + std::fabs(key_bias) + alibi};
}

}  // namespace attnc
