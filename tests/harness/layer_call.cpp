#include "tests/harness/layer_call.h"

#include <cmath>
#include <type_traits>
#include <utility>

namespace attnc::test {

template <typename T>
attnc_tensor Array<T>::view() const {
    attnc_tensor t = {};
    t.rank = static_cast<int32_t>(shape.size());
    if (t.rank == 0) return t;
    static T nothing;  // an address for tensors without elements, which may not be null
    t.data = const_cast<T*>(values.empty() ? &nothing : values.data());
    t.dtype = std::is_same_v<T, float>     ? ATTNC_F32
              : std::is_same_v<T, double>  ? ATTNC_F64
              : std::is_same_v<T, uint8_t> ? ATTNC_U8
                                           : ATTNC_I64;
    int64_t stride = 1;
    for (size_t n = shape.size(); n-- > 0;) {
        t.extent[n] = shape[n];
        t.stride[n] = stride;
        stride *= shape[n];
    }
    return t;
}
template struct Array<float>;
template struct Array<double>;
template struct Array<uint8_t>;
template struct Array<int64_t>;

Array<uint8_t> random_mask(std::vector<int64_t> shape, uint64_t seed, double chance) {
    Array<uint8_t> mask = filled<uint8_t>(std::move(shape), 0);
    Random random(seed);
    for (auto& value : mask.values) value = random.chance(chance) ? 1 : 0;
    return mask;
}

Array<float> random_array(std::vector<int64_t> shape, uint64_t seed, float amplitude) {
    Array<float> array = filled<float>(std::move(shape), 0);
    fill_generated(array.values, seed, amplitude);
    return array;
}

attnc_weights LayerCall::weights() const {
    attnc_weights w = ATTNC_WEIGHTS_INIT;
    w.wq = wq.view(), w.wk = wk.view(), w.wv = wv.view(), w.wo = wo.view();
    w.bq = bq.view(), w.bk = bk.view(), w.bv = bv.view(), w.bo = bo.view();
    w.bias_k = bias_k.view(), w.bias_v = bias_v.view(), w.sink = sink.view();
    w.alibi_slopes = alibi_slopes.view(), w.q_norm = q_norm.view(), w.k_norm = k_norm.view();
    w.rotary_frequencies = rotary_frequencies.view();
    w.rotary_cos = rotary_cos.view(), w.rotary_sin = rotary_sin.view();
    return w;
}

ReferenceOptions LayerCall::reference_options() const {
    return {.empty_rows = empty_rows,
            .qk_scale = qk_scale,
            .window_left = window_left,
            .window_right = window_right,
            .softcap = softcap,
            .qk_norm_epsilon = qk_norm_epsilon,
            .rotary = rotary,
            .scores_stage = scores_stage};
}

attnc_layer_options LayerCall::options() const { return layer_options_of(reference_options()); }

attnc_inputs LayerCall::inputs() const {
    attnc_inputs in = ATTNC_INPUTS_INIT;
    in.query = query.view(), in.key = key.view(), in.value = value.view();
    in.keep_mask = keep_mask.view(), in.drop_mask = drop_mask.view(), in.bias = bias.view();
    in.key_keep_mask = key_keep_mask.view(), in.key_drop_mask = key_drop_mask.view(),
    in.key_bias = key_bias.view();
    in.key_lengths = key_lengths.view(), in.query_lengths = query_lengths.view();
    in.causal = causal, in.causal_offsets = causal_offsets.view();
    in.block_keep_mask = block_keep_mask.view(), in.block_q = block_q, in.block_kv = block_kv;
    in.position_offsets = position_offsets.view();
    in.query_positions = query_positions.view(), in.key_positions = key_positions.view();
    return in;
}

Reference LayerCall::reference() const {
    return reference_layer(config, weights(), reference_options(), inputs());
}

int64_t LayerCall::keys() const {
    return sizes.seq_kv + (config.bias_kv ? 1 : 0) + (config.zero_attn ? 1 : 0);
}
int64_t LayerCall::query_length(int64_t item) const {
    return query_lengths.given() ? query_lengths.at(item) : sizes.seq_q;
}
int64_t LayerCall::key_length(int64_t item) const {
    return key_lengths.given() ? key_lengths.at(item) : sizes.seq_kv;
}

LayerCall random_call(const Config& given, const Sizes& sizes, uint64_t seed) {
    LayerCall call;
    call.config = complete(given);
    call.sizes = sizes;
    call.seed = seed;
    const Config& c = call.config;
    uint64_t drawn = 0;
    const auto make = [&](std::vector<int64_t> shape, double amplitude) {
        return random_array(std::move(shape), mixed_bits(seed, drawn++), static_cast<float>(amplitude));
    };
    const auto weight = [&](int64_t out, int64_t in) {
        return make({out, in}, std::sqrt(3.0 / static_cast<double>(in)));  // keeps the variance of its input
    };
    const int64_t q = c.num_heads * c.head_dim, k = c.num_kv_heads * c.head_dim,
                  v = c.num_kv_heads * c.v_head_dim;
    if (c.in_proj) {
        call.wq = weight(q, c.d_model), call.bq = make({q}, 0.25);
        call.wk = weight(k, c.k_dim), call.bk = make({k}, 0.25);
        call.wv = weight(v, c.v_dim), call.bv = make({v}, 0.25);
    }
    if (c.out_proj)
        call.wo = weight(c.d_model, c.num_heads * c.v_head_dim), call.bo = make({c.d_model}, 0.25);
    if (c.bias_kv) call.bias_k = make({k}, 2), call.bias_v = make({v}, 2);
    if (c.sink) call.sink = make({c.num_heads}, 2);
    if (c.softcap) call.softcap = 4;
    if (c.alibi) {
        call.alibi_slopes = make({c.num_heads}, 1);
        for (float& slope : call.alibi_slopes.values) slope = std::fabs(slope);
    }
    if (c.rotary != Rotary::kNone) call.rotary.base = 10000;
    if (c.qk_norm) call.q_norm = make({c.head_dim}, 2), call.k_norm = make({c.head_dim}, 2);
    call.query = make({sizes.batch, sizes.seq_q, c.in_proj ? c.d_model : q}, 2);
    call.key = make({sizes.batch, sizes.seq_kv, c.in_proj ? c.k_dim : k}, 2);
    call.value = make({sizes.batch, sizes.seq_kv, c.in_proj ? c.v_dim : v}, 2);
    return call;
}

LayerCall random_call(std::string_view problem, uint64_t seed) {
    const Problem parsed = parse_problem(problem);
    return random_call(parsed.config, parsed.sizes, seed);
}

LayerCall everything(std::string_view problem, uint64_t seed) {
    LayerCall call = random_call(problem, seed);
    call.lse = true;
    call.probs = call.probs_averaged = call.config.probs;
    if (call.config.scores) call.scores_stage = ATTNC_SCORES_BIASED;
    return call;
}

namespace {

template <typename T>
void keep_item(Array<T>& array, int64_t item) {
    if (!array.given() || array.shape[0] == 1) return;
    const int64_t each = array.count() / array.shape[0];
    const auto first = array.values.begin() + item * each;
    array.values = std::vector<T>(first, first + each);
    array.shape[0] = 1;
}

}  // namespace

LayerCall item_of(const LayerCall& call, int64_t item) {
    LayerCall alone = call;
    alone.sizes.batch = 1;
    for (auto* array : {&alone.query, &alone.key, &alone.value, &alone.bias, &alone.key_bias})
        keep_item(*array, item);
    for (auto* array : {&alone.keep_mask, &alone.drop_mask, &alone.key_keep_mask, &alone.key_drop_mask,
                        &alone.block_keep_mask}) {
        keep_item(*array, item);
    }
    for (auto* array : {&alone.key_lengths, &alone.query_lengths, &alone.causal_offsets,
                        &alone.position_offsets, &alone.query_positions, &alone.key_positions}) {
        keep_item(*array, item);
    }
    return alone;
}

}  // namespace attnc::test
